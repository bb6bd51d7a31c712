"""Data classes whose objects never change, and are quickly made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

Class = TypeVar("Class", bound=type)

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    @dataclass_transform(frozen_default=True, field_specifiers=(field,))
    def frozen(*, slots: bool = True) -> Callable[[Class], Class]: ...

else:

    def frozen(*, slots=True):
        """A data class that type checkers know to be frozen. At run time it is not: that
        would double the time to make an object, and a text has many.
        """

        def make(cls):
            hashed = "__hash__" not in vars(cls)
            return dataclass(cls, slots=slots, unsafe_hash=hashed)
        return make
