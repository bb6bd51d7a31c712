"""The arguments of an operation: their values, defaults filled in, and their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple, Union, cast

from nnef_grad.base.errors import InvalidGraphError, brief, suggestion
from nnef_grad.base.frozen import NOTHING, FrozenDict
from nnef_grad.base.process import Memo
from nnef_grad.graph.extents import Extent
from nnef_grad.graph.ir import Operand, Operation, Tensor
from nnef_grad.language import syntax, types
from nnef_grad.language.types import (
    GENERIC,
    ArrayType,
    Primitive,
    TensorType,
    TupleType,
    Type,
)

# The value of an expression. An array is a list, to distinguish it from a tuple.
Evaluated = Union[Operand, "list[Evaluated]", "tuple[Evaluated, ...]"]

_PRIMITIVES = {
    bool: "logical",
    int: "integer",
    Extent: "integer",
    float: "scalar",
    str: "string",
}


class Call(NamedTuple):
    """An `Operation` before it has results: a value for each parameter."""

    definition: syntax.Fragment
    operands: tuple[Operand, ...]
    attributes: Mapping[str, Any]
    dtype: str | None


def settings_key(call: Call | Operation) -> str:
    """Equal for equal attributes. Their text distinguishes values that Python has for
    equal: 1, 1.0 and True, 0.0 and -0.0.
    """
    names, settings = call.definition.attribute_names, cast("Any", call.attributes)
    return repr([settings[name] for name in names]) if names else ""


def bind(
    fragment: syntax.Fragment, values: Mapping[str, Evaluated], dtype: str | None
) -> Call:
    """The call of an invocation, of values of the right types, defaults filled in."""
    whole: dict[str, Any] = dict(fragment.defaults)
    for name, value in values.items():
        whole[name] = freeze(value) if isinstance(value, (list, tuple)) else value
    names = fragment.attribute_names
    return Call(
        fragment,
        tuple([whole[name] for name in fragment.operand_names]),
        FrozenDict({n: whole[n] for n in names}) if names else NOTHING,
        dtype or _deduced_dtype(fragment, whole),
    )


def _deduced_dtype(
    fragment: syntax.Fragment, values: Mapping[str, Operand]
) -> str | None:
    """The data type that `?` stands for: the declared default, or that of the values."""
    if fragment.generic != GENERIC:
        return fragment.generic
    for parameter in fragment.generic_parameters:
        value = values[parameter.name]
        while isinstance(value, tuple) and value:
            value = value[0]
        if value != ():
            return dtype_of(value)
    return None


# ---- Calls from Python ----


# Checked calls with their defaults as operands, and their settings, by all that a check
# looks at besides the declaration.
_checked: Memo[object, tuple[Call, str]] = Memo(10_000)


def bind_call(
    fragment: syntax.Fragment,
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    dtype: str | None,
) -> tuple[Call, str]:
    """The call of an operation from Python, checked, defaults filled in, and its
    `settings_key`. One like an earlier one, in all but its tensors and numbers, is right too.
    """
    first = freeze(operands)
    # Their text distinguishes values that Python has for equal.
    texts = repr([(name, freeze(value)) for name, value in attributes.items()])
    key = (fragment.name, dtype, texts, *map(_kind, first))
    checked = _checked.get(key)
    if checked is None or checked[0].definition is not fragment:
        named = zip(fragment.operand_names, operands, strict=False)
        values = {**dict(named), **attributes}
        _refuse_wrong_types(fragment, values, dtype)
        _refuse_misfits(fragment, len(operands), attributes)
        call = bind(fragment, values, dtype)
        rest = call._replace(operands=call.operands[len(first) :])
        checked = _checked.keep(key, (rest, settings_key(call)))
    rest, settings = checked
    return Call(fragment, first + rest.operands, rest.attributes, rest.dtype), settings


def _kind(operand: Operand) -> object:
    """The data type of a tensor, the Python type of a literal."""
    if type(operand) is Tensor:
        return operand.dtype
    return tuple(map(_kind, operand)) if type(operand) is tuple else type(operand)


def _refuse_wrong_types(
    fragment: syntax.Fragment, values: Mapping[str, Any], dtype: str | None
) -> None:
    """Ignores missing and superfluous values."""
    name, default = fragment.name, fragment.generic
    if dtype is not None and (dtype not in types.DTYPES or default is None):
        raise InvalidGraphError(f"there is no operation '{name}<{dtype}>'")
    if dtype is None and default == GENERIC and not fragment.deduces_dtype:
        raise InvalidGraphError(f"'{name}' needs its data type: give dtype")
    generics = types.Generics(dtype or (default if default != GENERIC else None))
    for p in fragment.parameters:
        if p.name in values and not _is_of(values[p.name], p.type, generics):
            value = brief(_describe(values[p.name]))
            message = f"argument '{p.name}' of '{name}' must be {p.type}, not {value}"
            raise InvalidGraphError(message)


def _refuse_misfits(
    fragment: syntax.Fragment, count: int, attributes: Mapping[str, object]
) -> None:
    """Refuses too many operands, unknown attributes, missing ones."""
    operands, settings = fragment.operand_names, fragment.attribute_names
    if count > (most := len(operands)):
        words = f"{most} operand{'s' if most != 1 else ''}, and {count} are given"
        advice = ": attributes need their keyword" if settings else ""
        raise InvalidGraphError(f"'{fragment.name}' takes {words}{advice}")
    for name in attributes:
        if name in operands:
            message = f"'{name}' of '{fragment.name}' is an operand: give it in its place, without a keyword"
            raise InvalidGraphError(message)
        if name not in settings:
            near = suggestion(name, settings)
            message = f"'{fragment.name}' has no attribute '{name}'{near}"
            raise InvalidGraphError(message)
    supplied = {*operands[:count], *attributes, *fragment.defaults}
    for what, names in (("operand", operands), ("attribute", settings)):
        if missing := [f"'{name}'" for name in names if name not in supplied]:
            words = f"{what}{'s' if len(missing) > 1 else ''} {' and '.join(missing)}"
            raise InvalidGraphError(f"'{fragment.name}' needs {words}")


def _is_of(value: object, type_: Type, generics: types.Generics) -> bool:
    """Whether a value is one of a type; a number can stand for a tensor."""
    if isinstance(type_, (ArrayType, TupleType)):
        if not isinstance(value, (list, tuple)):
            return False
        if isinstance(type_, TupleType):
            is_long = len(value) == len(type_.items)
            return is_long and all(map(_is_of, value, type_.items, repeat(generics)))
        # Arrays of numbers may be long, and have few types.
        is_plain = isinstance(type_.item, Primitive)
        items = {type(item): item for item in value}.values() if is_plain else value
        return all(_is_of(item, type_.item, generics) for item in items)
    if isinstance(value, Tensor):
        return types.is_assignable(TensorType(value.dtype), type_, generics)
    name = _PRIMITIVES.get(type(value))
    return name is not None and types.is_assignable(Primitive(name), type_, generics)


def _describe(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_describe, value))}]"
    return f"tensor<{value.dtype}>" if isinstance(value, Tensor) else repr(value)


# ---- Values ----


def freeze(value: Any) -> Any:
    """The value as an operation keeps it: arrays are tuples."""
    if isinstance(value, (list, tuple)):
        return tuple([freeze(v) if isinstance(v, (list, tuple)) else v for v in value])
    return value


def thaw(type_: Type, value: Operand) -> Evaluated:
    """The value of a parameter as expressions see it: arrays are lists again."""
    if isinstance(type_, ArrayType) and isinstance(value, tuple):
        return [thaw(type_.item, item) for item in value]
    if isinstance(type_, TupleType) and isinstance(value, tuple):
        items = zip(type_.items, value, strict=True)
        return tuple(thaw(item_type, item) for item_type, item in items)
    assert not isinstance(value, tuple)
    return value


def dtype_of(value: Operand) -> str:
    """The data type of a tensor or of a literal."""
    assert not isinstance(value, tuple)
    return value.dtype if isinstance(value, Tensor) else _PRIMITIVES[type(value)]
