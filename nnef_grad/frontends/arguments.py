"""The arguments of an invocation: which parameter each is for, and what it becomes there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import InvalidGraphError, brief
from nnef_grad.base.source import Span
from nnef_grad.frontends.values import described, is_known, items_of
from nnef_grad.graph.extents import Extent
from nnef_grad.graph.ir import Tensor
from nnef_grad.language import syntax
from nnef_grad.language.matching import parameter_at, refuse_missing
from nnef_grad.language.types import (
    MAX_INTEGER,
    ArrayType,
    Primitive,
    TensorType,
    TupleType,
    Type,
    holds_tensors,
)


def match(
    fragment: syntax.Fragment, node: syntax.Invocation
) -> tuple[dict[str, syntax.Expression], list[syntax.Keyword]]:
    """The argument of each parameter that has one, and the arguments that no parameter
    takes. One without a keyword, also an attribute, is for the parameter at its position.
    """
    names = [p.name for p in fragment.parameters]
    given: dict[str, syntax.Expression] = {}
    ignored: list[syntax.Keyword] = []
    for position, argument in enumerate(node.arguments):
        if not isinstance(argument, syntax.Keyword):
            name, value = parameter_at(fragment, argument, position).name, argument
        elif argument.name in names:
            name, value = argument.name, argument.value
        else:
            ignored.append(argument)
            continue
        if name in given:
            message = f"argument '{name}' of '{fragment.name}' is given twice"
            raise InvalidGraphError(message, argument.span)
        given[name] = value
    refuse_missing(fragment, given, node.span)
    return given, ignored


class ArgumentError(ValueError):
    """A value cannot become what its parameter wants."""


# The numbers that a tensor has whatever the model is fed, if any, at the place where they
# are needed; and those of a value, or else the value itself.
NumbersOf = Callable[[Tensor, Span], Array | None]
Known = Callable[[Any], Any]


def fit(
    fragment: syntax.Fragment,
    values: Mapping[str, Any],
    places: Mapping[str, Span],
    numbers_of: NumbersOf,
    *,
    is_loose: bool,
) -> dict[str, Any]:
    """The values that the parameters of an operation want, from the arguments and their
    places: numbers in the place of tensors of one element whose data are known, arrays in
    that of single values. What does not fit may stay: a document declares other types for
    its own fragments than it passes.
    """
    types = {p.name: p.type for p in fragment.parameters}
    fitted: dict[str, Any] = {}
    for name, value in values.items():

        def known(x: Any, place: Span = places[name]) -> Any:
            numbers = numbers_of(x, place) if isinstance(x, Tensor) else None
            return x if numbers is None else numbers

        if (fragment.name, name) in _JOINED and isinstance(value, list):
            value = _joined(value)
        try:
            fitted[name] = _fitted(types[name], value, known)
        except ArgumentError:
            if is_loose:
                fitted[name] = value
                continue
            message = f"argument '{name}' of '{fragment.name}' must be {types[name]}"
            is_unknown = not holds_tensors(types[name]) and _holds_tensor(value)
            advice = (
                ", which is not known when the document is read" if is_unknown else ""
            )
            raise InvalidGraphError(
                f"{message}, not {brief(described(value))}{advice}", places[name]
            ) from None
    return fitted


# Where tract puts the arrays within an array side by side.
_JOINED = {("reshape", "shape"), ("tile", "repeats")}


def _joined(parts: list[Any]) -> list[Any]:
    """The items of arrays in an array, with what else is in it."""
    is_array = [not isinstance(x, Tensor) and np.ndim(x) == 1 for x in parts]
    rows = [[*items_of(x)] if a else [x] for a, x in zip(is_array, parts, strict=True)]
    return [item for row in rows for item in row]


def _fitted(type_: Type, value: Any, known: Known) -> Any:
    if isinstance(type_, TensorType):
        return _operand(value)
    if isinstance(type_, ArrayType):
        value = value if holds_tensors(type_) else known(value)
        return [_fitted(type_.item, item, known) for item in items_of(value)]
    if isinstance(type_, TupleType):
        return _tuple(type_, value, known)
    return _number(type_, known(value))


def _tuple(type_: TupleType, value: Any, known: Known) -> tuple[Any, ...]:
    """A tuple; the step at the end of one for the results of a loop may be left out."""
    if not isinstance(value, (list, tuple, np.ndarray)):
        raise ArgumentError
    items = [*items_of(value)]
    if len(items) == len(type_.items) - 1 == 3:
        items.append(1)
    if len(items) != len(type_.items):
        raise ArgumentError
    pairs = zip(type_.items, items, strict=True)
    return tuple(_fitted(item_type, item, known) for item_type, item in pairs)


def _number(type_: Primitive, value: Any) -> Any:
    if isinstance(value, (list, np.ndarray)) and is_known(value):
        items = np.asarray(value).reshape(-1).tolist()
        value = items[0] if len(items) == 1 else None
    kind, convert = _PRIMITIVES.get(type_.dtype, (object, None))
    if value is None or isinstance(value, Tensor) or not isinstance(value, kind):
        raise ArgumentError
    return convert(value) if convert else value


def _holds_tensor(value: Any) -> bool:
    parts = value if isinstance(value, (list, tuple)) else ()
    return isinstance(value, Tensor) or any(map(_holds_tensor, parts))


def _operand(value: Any) -> Any:
    """A tensor, or a known value: an array of numbers is a constant."""
    if isinstance(value, list) and is_known(value):
        try:
            array = np.array(value)
        except ValueError:
            raise ArgumentError from None
        if array.dtype.kind not in "bifO":
            raise ArgumentError
        return array
    if isinstance(value, Tensor) or is_known(value):
        return value
    raise ArgumentError


def _integer(value: Any) -> Any:
    if isinstance(value, Extent):
        return value
    if abs(value) > MAX_INTEGER or int(value) != value:
        raise ArgumentError
    return int(value)


_NUMBERS = (bool, int, float, Extent)
# What a value must be, and what makes the value that is wanted of it.
_PRIMITIVES: dict[str, tuple[Any, Callable[[Any], Any] | None]] = {
    "scalar": (_NUMBERS, float), "integer": (_NUMBERS, _integer),
    "logical": (_NUMBERS, bool), "string": (str, None),
}  # fmt: skip
