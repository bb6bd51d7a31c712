"""Data classes and mappings that never change: what is returned is shared with what is made
next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

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
def frozen(
    *, slots: bool = True, eq: bool = True
) -> Callable[[type[Class]], type[Class]]:
    """A frozen data class, whose objects are quickly made: see `_constructor`.

    Args:
        slots: whether objects have their fields alone; otherwise they can keep what is
            computed from these.
        eq: whether objects with equal fields are equal.
    """

    def make(cls: type[Class]) -> type[Class]:
        data: Any = dataclass(cls, slots=slots, eq=False, repr=False, init=False)
        made = {**_SHARED, **(_comparison(data) if eq else {})}
        if slots:
            # All that there is are the arguments.
            made["__getstate__"] = _no_state
        for name, method in made.items():
            if name not in vars(cls):
                setattr(data, name, method)
        data.__new__ = _constructor(data)
        return cast("type[Class]", data)

    return make


# What `dataclass` would compile for each class, which takes most of the time of a start.


def _comparison(cls: Any) -> dict[str, Any]:
    """How objects are compared, by their fields, and hashed."""
    compared = [x.name for x in fields(cls) if x.compare]
    values: Callable[[Any], Any] = attrgetter(*compared) if compared else type

    def equal(self: Any, other: Any) -> Any:
        is_like = other.__class__ is self.__class__
        return values(self) == values(other) if is_like else NotImplemented

    return {"__eq__": equal, "__hash__": lambda self: hash(values(self))}


def _text(self: Any) -> str:
    shown = (f"{x.name}={getattr(self, x.name)!r}" for x in fields(self) if x.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: Any, name: str, *_: Any) -> NoReturn:
    raise FrozenInstanceError(f"'{name}' of a {type(self).__name__} stays as it is")


def _arguments(self: Any) -> tuple[tuple[()], dict[str, Any]]:
    """The parts that copies and pickles are made of."""
    return (), {x.name: getattr(self, x.name) for x in fields(self) if x.init}


def _no_state(self: Any) -> None:
    return None


_SHARED = {
    "__repr__": _text,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__getnewargs_ex__": _arguments,
}


def _constructor(cls: Any) -> Any:
    """The constructor of a frozen data class: an object is of an open class until all fields
    are set. A text becomes a hundred thousand objects, and those that are frozen from the
    start, field by field, take three times as long to make.
    """
    own = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    open_class = type(cls.__name__, (cls,), {"__slots__": (), **own})
    init = [x for x in fields(cls) if x.init]
    defaults = {f"_{x.name}": x.default for x in init if x.default is not MISSING}
    words = {x.name: x.name for x in init}
    words |= {name[1:]: f"{name[1:]}={name}" for name in defaults}
    keywords = [words.pop(x.name) for x in init if x.kw_only]
    parameters = ["_class", *words.values(), *(["*", *keywords] if keywords else [])]
    lines = [
        f"def __new__({', '.join(parameters)}):",
        "_self = _new(_open)",
        *[f"_self.{x.name} = {x.name}" for x in init],
        *(["_self.__post_init__()"] if hasattr(cls, "__post_init__") else []),
        "_self.__class__ = _class",
        "return _self",
    ]
    names: dict[str, Any] = {"_new": object.__new__, "_open": open_class, **defaults}
    exec("\n    ".join(lines), names)
    constructor = names["__new__"]
    constructor.__qualname__ = f"{cls.__qualname__}.__new__"
    constructor.__annotations__ = {x.name: x.type for x in init}
    return constructor


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
