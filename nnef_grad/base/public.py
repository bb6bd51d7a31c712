"""Functions that users call: what they are given is checked by its annotations, so that a
mistake is named where it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import signature, unwrap
from numbers import Integral, Real
from os import PathLike
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, is_typeddict

from nnef_grad.base.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])

# What numbers are, but for bool, which Python takes for one.
_NUMBERS: dict[Any, Any] = {int: Integral, float: Real}

_CONTAINERS = (Mapping, Sequence, Iterable)

_WORDS = {
    int: "an integer", float: "a number", bool: "True or False", str: "a string",
    type(None): "None", Mapping: "a mapping", Sequence: "a sequence",
    Iterable: "an iterable",
}  # fmt: skip


def public(function: Function) -> Function:
    """The function, which raises `UsageError` where an argument is of another kind than it
    is annotated with. What annotations do not say is the function's own to check.
    """
    parameters = signature(function).parameters
    kinds: dict[str, Any] = {}

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not kinds:
            # Only now, when all names of its module are known.
            written = {n: p.annotation for n, p in parameters.items()}
            kinds.update({n: _kind(text, function) for n, text in written.items()})
        for name, value in (*zip(parameters, args, strict=False), *kwargs.items()):
            kind = kinds.get(name, Any)
            if not _fits(value, kind):
                what = f"'{name}' of {function.__name__} is {_described(kind)}"
                raise UsageError(f"{what}, and not {_of(value)}{_door(kind, value)}")
        return function(*args, **kwargs)

    return checked  # type: ignore[return-value]


def _kind(written: str, function: Callable[..., Any]) -> Any:
    """The annotation of a parameter; any, if it has names for type checkers alone."""
    try:
        return eval(written, unwrap(function).__globals__)
    except NameError:
        return Any


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of an annotated kind, as far as can be told without a change."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if kind in _NUMBERS:
        return isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool)
    if kind is None or origin is Literal:
        return value is None if kind is None else isinstance(value, str)
    if kind is Any or is_typeddict(kind) or not isinstance(origin or kind, type):
        return True
    if (origin or kind).__module__.startswith("numpy._typing"):
        # What numpy makes arrays of, nobody else can tell.
        return True
    if isinstance(value, (bytes, str)):
        # Sequences for Python, and for nobody else.
        return origin is None and isinstance(value, kind)
    if getattr(value, "ndim", 1) == 0 and origin in _CONTAINERS:
        # numpy has a way to iterate for single numbers, too, which fails.
        return False
    return isinstance(value, origin or kind) and _all_fit(value, parts)


def _all_fit(value: Any, parts: tuple[Any, ...]) -> bool:
    """Whether items fit; what makes its items when asked for them is not asked."""
    if isinstance(value, dict) and len(parts) == 2:
        return all(_fits(k, parts[0]) and _fits(v, parts[1]) for k, v in value.items())
    if isinstance(value, (list, tuple, set, frozenset)) and len(parts) == 1:
        return all(_fits(item, parts[0]) for item in value)
    return True


def _described(kind: Any) -> str:
    """A kind in words."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_described, parts)))
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if kind in _WORDS:
        return _WORDS[kind]
    plain = origin or kind
    if plain is Callable:
        return "a function"
    if not isinstance(plain, type) or not parts:
        return str(getattr(plain, "__name__", kind))
    inner = "" if parts[-1] is Any else f" of {_described(parts[-1])}"
    return f"{_WORDS.get(plain, plain.__name__)}{inner}"


def _door(kind: Any, value: Any) -> str:
    """Who takes a value that is no graph, if that is known."""
    if "Graph" not in _described(kind).split():
        return ""
    if isinstance(value, (str, PathLike)):
        return ": load reads one from a path, and function takes the path"
    if hasattr(value, "graph"):
        return ": it has one, .graph"
    return ": interop.from_torch reads modules" if hasattr(value, "forward") else ""


def _of(value: Any) -> str:
    """A value, in words."""
    if value is None:
        return "None"
    items = value.values() if isinstance(value, dict) else value
    is_several = isinstance(value, (dict, list, tuple)) and len(value) > 0
    inner = {type(item).__name__ for item in items} if is_several else {}
    return f"{type(value).__name__}{' of ' if inner else ''}{', '.join(sorted(inner))}"
