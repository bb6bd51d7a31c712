"""Data classes whose objects never change, and are quickly made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

Class = TypeVar("Class")

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**facts: Any) -> Callable[[Any], Any]:
        """Tells type checkers what a decorator does: Python 3.10 does not have it."""
        return lambda decorator: decorator


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(*, slots: bool = True) -> Callable[[type[Class]], type[Class]]:
    """A data class that is frozen, as type checkers verify. At run time nothing does: an
    object would take twice as long to make, and a text becomes a hundred thousand.

    Args:
        slots: whether objects have their fields alone; otherwise they can keep what is
            computed from these.
    """

    def make(cls: type[Class]) -> type[Class]:
        has_own_hash = "__hash__" in vars(cls)
        return dataclass(cls, slots=slots, unsafe_hash=not has_own_hash)

    return make


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def identified(cls: type[Class]) -> type[Class]:
    """A data class whose objects are equal to nothing but themselves, and are frozen at run
    time, too: users of the library hold them. Fields that have a default have None.

    Its `__init__` writes to the slots themselves: that of `dataclass(frozen=True)` takes
    three times as long.
    """
    made = dataclass(cls, frozen=True, slots=True, eq=False)
    given = [f for f in fields(made) if f.init]  # type: ignore[arg-type]
    parameters = [f.name if f.default is MISSING else f"{f.name}=None" for f in given]
    lines = [f"write_{f.name}(self, {f.name})" for f in given]
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    writers: dict[str, Any] = {
        f"write_{f.name}": vars(made)[f.name].__set__ for f in given
    }
    head = f"def __init__(self, {', '.join(parameters)}):"
    exec("\n    ".join([head, *lines]), writers)
    made.__init__ = writers["__init__"]  # type: ignore[method-assign]
    return made
