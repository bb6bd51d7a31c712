"""Arguments to parameters: which value goes where, and whether its type fits."""

from __future__ import annotations

from difflib import get_close_matches
from typing import NamedTuple, Union

from nnef_grad import syntax
from nnef_grad.errors import InvalidGraphError
from nnef_grad.ir import Operand, Tensor
from nnef_grad.source import Span
from nnef_grad.types import (
    GENERIC,
    ArrayType,
    Primitive,
    TensorType,
    TupleType,
    Type,
    is_generic,
)

# What an expression evaluates to: an array is a list, so that it can be told from a
# tuple.
Evaluated = Union[
    Tensor, bool, int, float, str, "list[Evaluated]", "tuple[Evaluated, ...]"
]

_PRIMITIVES = {bool: "logical", int: "integer", float: "scalar", str: "string"}


class Bound(NamedTuple):
    """The arguments of an invocation: a value for each parameter, as an `Operation`
    keeps them.
    """

    operands: tuple[Operand, ...]
    attributes: dict[str, syntax.Value]
    dtype: str | None


def bind(
    fragment: syntax.Fragment,
    invocation: syntax.Invocation,
    values: list[Evaluated],
    dtype: str | None,
) -> Bound:
    """Gives each parameter of a fragment its value.

    Args:
        fragment: the declaration.
        invocation: the arguments as written.
        values: what they evaluate to, in the same order.
        dtype: the explicit data type of the invocation, or None.

    Raises:
        InvalidGraphError: an argument is missing, unknown, given twice, misplaced or of
            the wrong type.
    """
    given: dict[str, tuple[Evaluated, syntax.Expression]] = {}
    for parameter, argument, value in zip(
        _parameters(fragment, invocation), invocation.arguments, values
    ):
        if parameter in given:
            raise InvalidGraphError(
                f"argument '{parameter}' of '{fragment.name}' is given twice",
                argument.span,
            )
        given[parameter] = (value, argument.value)
    _refuse_missing(fragment, given, invocation.span)

    binding = _Binding(fragment, invocation, dtype)
    bound = {
        p.name: binding.fit(p, *given[p.name])
        for p in fragment.parameters
        if p.name in given
    }
    bound = {**fragment.defaults, **bound}
    return Bound(
        tuple(bound[p.name] for p in fragment.operands),
        {p.name: bound[p.name] for p in fragment.attributes},  # type: ignore[misc]
        binding.settled(),
    )


def _parameters(fragment: syntax.Fragment, invocation: syntax.Invocation) -> list[str]:
    """The name of the parameter that each argument is for."""
    names = [p.name for p in fragment.parameters]
    chosen: list[str] = []
    for position, argument in enumerate(invocation.arguments):
        if argument.keyword is not None:
            _check_keyword(fragment, argument.keyword, names, argument.span)
            chosen.append(argument.keyword)
            continue
        if any(a.keyword is not None for a in invocation.arguments[:position]):
            raise InvalidGraphError(
                "a positional argument cannot follow a keyword argument", argument.span
            )
        if position >= len(names):
            count = f"{len(names)} parameter{'s' if len(names) != 1 else ''}"
            raise InvalidGraphError(
                f"too many arguments: '{fragment.name}' has {count}", argument.span
            )
        if position >= len(fragment.operands):
            name = names[position]
            raise InvalidGraphError(
                f"an attribute needs its keyword: write {name} = {argument.span.text}",
                argument.span,
            )
        chosen.append(names[position])
    return chosen


def _check_keyword(
    fragment: syntax.Fragment, keyword: str, names: list[str], span: Span
) -> None:
    if keyword in names:
        return
    known = suggestion(keyword, names) or f"; it has {', '.join(names)}"
    raise InvalidGraphError(
        f"'{fragment.name}' has no parameter '{keyword}'{known}", span
    )


def _refuse_missing(
    fragment: syntax.Fragment,
    given: dict[str, object] | dict[str, tuple[Evaluated, syntax.Expression]],
    span: Span,
) -> None:
    missing = [
        p.name for p in fragment.parameters if p.default is None and p.name not in given
    ]
    if missing:
        names = " and ".join(f"'{name}'" for name in missing)
        raise InvalidGraphError(f"'{fragment.name}' needs {names}", span)


def suggestion(name: str, known: list[str]) -> str:
    """`; did you mean 'x'?` where a known name is near, otherwise nothing."""
    near = get_close_matches(name, known, n=1, cutoff=0.7)
    return f"; did you mean '{near[0]}'?" if near else ""


# ---- Types ----


class _Mismatch(Exception):
    """The value at a path of indices into an argument does not fit."""

    def __init__(self, path: tuple[int, ...] = ()) -> None:
        self.path = path


class _Binding:
    """The types of one invocation: what `?` stands for is settled by the first value
    that tells.
    """

    def __init__(
        self,
        fragment: syntax.Fragment,
        invocation: syntax.Invocation,
        dtype: str | None,
    ) -> None:
        self.fragment = fragment
        self.invocation = invocation
        if dtype is not None and fragment.generic is None:
            raise InvalidGraphError(
                f"'{fragment.name}' takes no data type", invocation.span
            )
        default = fragment.generic if fragment.generic != GENERIC else None
        self.dtype = dtype if dtype is not None else default

    def settled(self) -> str | None:
        if self.fragment.generic is not None and self.dtype is None:
            name = self.fragment.name
            raise InvalidGraphError(
                f"'{name}' needs a data type: write {name}<scalar>(...)",
                self.invocation.span,
            )
        return self.dtype

    def fit(
        self,
        parameter: syntax.Parameter,
        value: Evaluated,
        expression: syntax.Expression,
    ) -> Operand:
        try:
            return self.convert(parameter.type, value)
        except _Mismatch as mismatch:
            expected = str(parameter.type)
            if self.dtype is not None and is_generic(parameter.type):
                expected = expected.replace(GENERIC, self.dtype)
            message = (
                f"argument '{parameter.name}' of '{self.fragment.name}'"
                f" wants {expected}, got {type_name(value)}"
            )
            raise InvalidGraphError(
                message + _advice(parameter.type, value),
                _narrow(expression, mismatch.path),
            ) from None

    def convert(self, type_: Type, value: Evaluated) -> Operand:
        """The value as an operation keeps it: arrays become tuples."""
        if isinstance(type_, ArrayType) and isinstance(value, list):
            return self.convert_items([type_.item] * len(value), value)
        if (
            isinstance(type_, TupleType)
            and isinstance(value, tuple)
            and len(value) == len(type_.items)
        ):
            return self.convert_items(type_.items, value)
        if isinstance(type_, TensorType) and isinstance(
            value, (Tensor, bool, int, float, str)
        ):
            self.unify(type_.dtype, dtype_of(value))
            return value
        if isinstance(type_, Primitive) and isinstance(value, (bool, int, float, str)):
            self.unify(type_.name, dtype_of(value))
            return value
        raise _Mismatch

    def convert_items(
        self,
        types: tuple[Type, ...] | list[Type],
        values: list[Evaluated] | tuple[Evaluated, ...],
    ) -> Operand:
        items: list[Operand] = []
        for index, (type_, value) in enumerate(zip(types, values)):
            try:
                items.append(self.convert(type_, value))
            except _Mismatch as mismatch:
                raise _Mismatch((index, *mismatch.path)) from None
        return tuple(items)

    def unify(self, wanted: str | None, actual: str) -> None:
        if wanted == GENERIC:
            self.dtype = self.dtype or actual
            wanted = self.dtype
        if wanted is not None and wanted != actual:
            raise _Mismatch


def dtype_of(value: Tensor | bool | int | float | str) -> str:
    """The data type of a tensor or of a literal."""
    return value.dtype if isinstance(value, Tensor) else _PRIMITIVES[type(value)]


def type_name(value: Evaluated) -> str:
    """The type of a value, as the language spells it."""
    if isinstance(value, Tensor):
        return f"tensor<{value.dtype}>"
    if isinstance(value, list):
        return f"{type_name(value[0])}[]" if value else "[]"
    if isinstance(value, tuple):
        return f"({', '.join(map(type_name, value))})"
    return _PRIMITIVES[type(value)]


def _advice(type_: Type, value: Evaluated) -> str:
    """What to write instead, where the value is an integer and a scalar is wanted."""
    dtype = (
        type_.dtype
        if isinstance(type_, TensorType)
        else type_.name
        if isinstance(type_, Primitive)
        else None
    )
    return f": write {float(value)}" if dtype == "scalar" and type(value) is int else ""


def _narrow(expression: syntax.Expression, path: tuple[int, ...]) -> Span:
    """The place of the item that a path of indices leads to, as far as it was written
    out.
    """
    for index in path:
        if not isinstance(expression, (syntax.Array, syntax.Tuple)):
            break
        expression = expression.items[index]
    return expression.span


def thaw(type_: Type, value: Operand) -> Evaluated:
    """The value of a parameter as expressions see it: arrays are lists again."""
    if isinstance(type_, ArrayType):
        assert isinstance(value, tuple)
        return [thaw(type_.item, item) for item in value]
    if isinstance(type_, TupleType):
        assert isinstance(value, tuple)
        return tuple(
            thaw(item_type, item) for item_type, item in zip(type_.items, value)
        )
    assert not isinstance(value, tuple)
    return value
