"""Data classes and mappings that never change: what is returned is shared with what is made
next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

Class = TypeVar("Class")
Key = TypeVar("Key")
Value = TypeVar("Value")

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**facts: Any) -> Callable[[Any], Any]:
        """Tells type checkers what a decorator does: Python 3.10 does not have it."""
        return lambda decorator: decorator


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(*, slots: bool = True) -> Callable[[type[Class]], type[Class]]:
    """A frozen data class.

    Args:
        slots: whether objects have their fields alone; otherwise they can keep what is
            computed from these.
    """
    return partial(dataclass, slots=slots, frozen=True)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def identified(cls: type[Class]) -> type[Class]:
    """The same, of objects that are equal to nothing but themselves."""
    return dataclass(cls, slots=True, eq=False, frozen=True)


class FrozenDict(dict[Key, Value]):
    """A dictionary that refuses to be changed; `dict(...)` of it is one that does not."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "this mapping is part of a graph, and stays: change a copy of it"
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> Any:
        return FrozenDict, (dict(self),)


class OpenDict(dict[Key, Value]):
    """A dictionary that is still being written."""

    __slots__ = ()

    def frozen(self) -> FrozenDict[Key, Value]:
        """The dictionary itself, frozen from now on: large ones are not copied."""
        self.__class__ = FrozenDict  # type: ignore[assignment]
        return self  # type: ignore[return-value]


NOTHING: FrozenDict[Any, Any] = FrozenDict()
