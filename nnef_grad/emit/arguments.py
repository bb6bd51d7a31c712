"""The arguments of an operation: their values, defaults filled in, and their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple, Union, cast

from nnef_grad.base.errors import InvalidGraphError, brief, suggestion
from nnef_grad.base.frozen import NOTHING, FrozenDict
from nnef_grad.base.memo import Memo
from nnef_grad.graph.extents import Extent
from nnef_grad.graph.ir import Operand, Operation, Tensor
from nnef_grad.language import syntax, types
from nnef_grad.language.types import GENERIC, ArrayType, TensorType, TupleType, Type

# The value of an expression. An array is a list, to distinguish it from a tuple.
Evaluated = Union[
    Tensor, bool, int, float, str, "list[Evaluated]", "tuple[Evaluated, ...]"
]

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


def operation_key(call: Call | Operation, settings: str) -> tuple[object, ...]:
    """Equal for what computes the same.

    Args:
        call: the operation.
        settings: its `settings_key`.
    """
    operands = [o if type(o) is Tensor else _identity(o) for o in call.operands]
    return call.definition.name, call.dtype, settings, *operands


def beginning(call: Call | Operation) -> object:
    """Equal for what computes the same, and soon found: the name of the operation, and its
    first operand if that is a tensor.
    """
    name, operands = call.definition.name, call.operands
    first = operands[0] if operands else None
    return (name, first) if type(first) is Tensor else name


def settings_key(call: Call | Operation) -> str:
    """Equal for equal attributes. Their text distinguishes values that Python has for
    equal: 1, 1.0 and True, 0.0 and -0.0.
    """
    names, settings = call.definition.attribute_names, cast("Any", call.attributes)
    return repr([settings[name] for name in names]) if names else ""


def _identity(operand: Operand) -> object:
    """A tensor; for a literal, what is equal for the same one alone."""
    if isinstance(operand, Tensor):
        return operand
    if isinstance(operand, tuple):
        return tuple(map(_identity, operand))
    return type(operand), repr(operand)


def bind(
    fragment: syntax.Fragment, values: Mapping[str, Evaluated], dtype: str | None
) -> Call:
    """The call of an invocation, defaults filled in.

    Args:
        fragment: the declaration.
        values: the values of the arguments, by parameter; their types were checked.
        dtype: the explicit data type of the invocation, or None.
    """
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

    Raises:
        InvalidGraphError: there are too many or too few, or their types are wrong.
    """
    given = freeze(operands)
    # Their text distinguishes values that Python has for equal.
    named = repr([(name, freeze(value)) for name, value in attributes.items()])
    key = (fragment.name, dtype, named, *map(_kind, given))
    known = _checked.get(key)
    if known is None or known[0].definition is not fragment:
        call = _bound(fragment, operands, attributes, dtype)
        rest = call._replace(operands=call.operands[len(given) :])
        known = _checked.keep(key, (rest, settings_key(call)))
    rest, settings = known
    return Call(fragment, given + rest.operands, rest.attributes, rest.dtype), settings


def _kind(operand: Operand) -> object:
    """The data type of a tensor, the Python type of a literal."""
    if type(operand) is Tensor:
        return operand.dtype
    return tuple(map(_kind, operand)) if type(operand) is tuple else type(operand)


def _bound(
    fragment: syntax.Fragment,
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    dtype: str | None,
) -> Call:
    names = (p.name for p in fragment.operands)
    values = {**dict(zip(names, operands, strict=False)), **attributes}
    _refuse_wrong_types(fragment, values, dtype)
    _refuse_misfits(fragment, len(operands), attributes)
    return bind(fragment, values, dtype)


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
            found = brief(_describe(values[p.name]))
            message = f"argument '{p.name}' of '{name}' wants {p.type}, got {found}"
            raise InvalidGraphError(message)


def _refuse_misfits(
    fragment: syntax.Fragment, count: int, attributes: Mapping[str, object]
) -> None:
    """Refuses too many operands, unknown attributes, missing ones."""
    most = len(fragment.operands)
    needed = fragment.needed[min(count, most)]
    if count <= most and needed <= attributes.keys() <= _names(fragment.attributes):
        return
    if count > most:
        words = f"{most} operand{'s' if most != 1 else ''}, and {count} are given"
        advice = ": attributes need their keyword" if fragment.attributes else ""
        raise InvalidGraphError(f"'{fragment.name}' takes {words}{advice}")
    known = _names(fragment.attributes)
    for name in attributes:
        if name not in known:
            raise InvalidGraphError(_unknown_attribute(fragment, name))
    kinds = {"operand": fragment.operands, "attribute": fragment.attributes}
    for what, parameters in kinds.items():
        absent = [p.name for p in parameters if p.name in needed - attributes.keys()]
        missing = [f"'{name}'" for name in absent]
        if missing:
            words = f"{what}{'s' if len(missing) > 1 else ''} {' and '.join(missing)}"
            raise InvalidGraphError(f"'{fragment.name}' needs {words}")


def _names(parameters: Sequence[syntax.Parameter]) -> set[str]:
    return {p.name for p in parameters}


def _unknown_attribute(fragment: syntax.Fragment, name: str) -> str:
    if name in [p.name for p in fragment.operands]:
        return f"'{name}' of '{fragment.name}' is an operand: give it in its place, without a keyword"
    near = suggestion(name, [p.name for p in fragment.attributes])
    return f"'{fragment.name}' has no attribute '{name}'{near}"


def _is_of(value: object, type_: Type, generics: types.Generics) -> bool:
    """Whether a value is one of a type; a number can stand for a tensor."""
    if isinstance(type_, TensorType):
        dtype = value.dtype if type(value) is Tensor else _PRIMITIVES.get(type(value))
        if type_.dtype is None:
            return dtype is not None
        return dtype is not None and generics.unify(dtype, type_.dtype)
    if isinstance(type_, ArrayType):
        return isinstance(value, (list, tuple)) and _are_of(value, type_.item, generics)
    if isinstance(type_, TupleType):
        return (
            isinstance(value, (list, tuple))
            and len(value) == len(type_.items)
            and all(map(_is_of, value, type_.items, repeat(generics)))
        )
    name = _PRIMITIVES.get(type(value))
    return name is not None and generics.unify(name, type_.name)


def _are_of(values: Sequence[object], type_: Type, generics: types.Generics) -> bool:
    if isinstance(type_, types.Primitive) and type_.name != GENERIC:
        # Arrays of numbers may be long, and have few types.
        found = {_PRIMITIVES.get(kind) for kind in {*map(type, values)}}
        return found <= {type_.name}
    return all(_is_of(value, type_, generics) for value in values)


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
