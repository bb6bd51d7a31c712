"""The arguments of an invocation: which parameter each is for, and what it becomes there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nnef_grad.base.errors import InvalidGraphError, brief
from nnef_grad.base.source import Span
from nnef_grad.frontends.values import Array, described, is_known, items_of
from nnef_grad.graph.extents import Extent
from nnef_grad.graph.ir import Tensor
from nnef_grad.language import syntax
from nnef_grad.language.matching import refuse_missing
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
    takes. An argument without a keyword, also an attribute, is for the parameter at its
    position.

    Raises:
        InvalidGraphError: an argument is missing, given twice or one too many.
    """
    names = [p.name for p in fragment.parameters]
    given: dict[str, syntax.Expression] = {}
    ignored: list[syntax.Keyword] = []
    for position, argument in enumerate(node.arguments):
        if isinstance(argument, syntax.Keyword):
            if argument.name not in names:
                ignored.append(argument)
                continue
            name, value = argument.name, argument.value
        elif position < len(names):
            name, value = names[position], argument
        else:
            count = f"{len(names)} parameter{'s' if len(names) != 1 else ''}"
            message = f"too many arguments: '{fragment.name}' has {count}"
            raise InvalidGraphError(message, argument.span)
        if name in given:
            message = f"argument '{name}' of '{fragment.name}' is given twice"
            raise InvalidGraphError(message, argument.span)
        given[name] = value
    refuse_missing(fragment, given, node.span)
    return given, ignored


class MisfitError(ValueError):
    """A value cannot become what its parameter wants."""


class Fitting:
    """Turns values into what parameters want: numbers in the place of tensors of one
    element whose data are known, arrays in the place of single values.

    Args:
        numbers_of: the numbers that a tensor has whatever the model is fed, if any; it is
            given the place where they are needed.
    """

    def __init__(self, numbers_of: Callable[[Tensor, Span], Array | None]) -> None:
        self._numbers_of = numbers_of

    def fit(
        self,
        fragment: syntax.Fragment,
        values: Mapping[str, Any],
        places: Mapping[str, Span],
        place: Span,
        *,
        is_loose: bool,
    ) -> dict[str, Any]:
        """The values for an operation. A document declares other types for its own
        fragments than it passes: with `is_loose`, what does not fit stays.

        Raises:
            InvalidGraphError: a value does not fit.
        """
        types = {p.name: p.type for p in fragment.parameters}
        fitted: dict[str, Any] = {}
        for name, value in values.items():
            span = places.get(name, place)
            try:
                fitted[name] = self._value(types[name], value, span)
            except MisfitError:
                if is_loose:
                    fitted[name] = value
                    continue
                found = brief(described(value))
                message = f"argument '{name}' of '{fragment.name}' wants {types[name]}"
                known = "" if holds_tensors(types[name]) else _NOT_KNOWN
                advice = known if _holds_tensor(value) else ""
                raise InvalidGraphError(
                    f"{message}, got {found}{advice}", span
                ) from None
        return fitted

    def _value(self, type_: Type, value: Any, span: Span) -> Any:
        if isinstance(type_, TensorType):
            return _operand(value)
        if isinstance(type_, ArrayType):
            value = self._known(value, span) if not holds_tensors(type_) else value
            return [self._value(type_.item, item, span) for item in items_of(value)]
        if isinstance(type_, TupleType):
            return self._tuple(type_, value, span)
        return self._number(type_, value, span)

    def _tuple(self, type_: TupleType, value: Any, span: Span) -> tuple[Any, ...]:
        """A tuple; the step at the end of one for the results of a loop may be left out."""
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise MisfitError
        items = [*items_of(value)]
        if len(items) == len(type_.items) - 1 == 3:
            items.append(1)
        if len(items) != len(type_.items):
            raise MisfitError
        pairs = zip(type_.items, items, strict=True)
        return tuple(self._value(item_type, item, span) for item_type, item in pairs)

    def _number(self, type_: Primitive, value: Any, span: Span) -> Any:
        value = self._known(value, span)
        if isinstance(value, (list, np.ndarray)) and is_known(value):
            items = np.asarray(value).reshape(-1).tolist()
            value = items[0] if len(items) == 1 else None
        if value is None or isinstance(value, Tensor):
            raise MisfitError
        return _CONVERSIONS[type_.name](value)

    def _known(self, value: Any, span: Span) -> Any:
        """A value, or the numbers that it has if it is a variable."""
        if not isinstance(value, Tensor):
            return value
        numbers = self._numbers_of(value, span)
        return value if numbers is None else numbers


_NOT_KNOWN = ", which is not known when the document is read"


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_tensor, value))
    return isinstance(value, Tensor)


def _operand(value: Any) -> Any:
    """A tensor, or a known value: an array of numbers is a constant."""
    if isinstance(value, list) and is_known(value):
        try:
            array = np.array(value)
        except ValueError:
            raise MisfitError from None
        if array.dtype.kind not in "bifO":
            raise MisfitError
        return array
    if isinstance(value, Tensor) or is_known(value):
        return value
    raise MisfitError


def _scalar(value: Any) -> float:
    return float(_a_number(value))


def _integer(value: Any) -> Any:
    if isinstance(value, Extent):
        return value
    number = _a_number(value)
    if abs(number) > MAX_INTEGER or int(number) != number:
        raise MisfitError
    return int(number)


def _logical(value: Any) -> bool:
    return bool(_a_number(value))


def _a_number(value: Any) -> Any:
    if not isinstance(value, (bool, int, float, Extent)):
        raise MisfitError
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise MisfitError
    return value


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "scalar": _scalar,
    "integer": _integer,
    "logical": _logical,
    "string": _string,
    "?": lambda value: value,
}
