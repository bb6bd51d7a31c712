"""Operations of the standard on known values, computed by the interpreter while a document
is read: exporters compute extents with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nnef_grad.emit.arguments import bind
from nnef_grad.emit.emitter import Emitter
from nnef_grad.frontends.values import (
    Array,
    as_array,
    converted,
    dtype_of,
    is_open,
    simple,
)
from nnef_grad.graph.extents import Extent
from nnef_grad.graph.ir import Operation
from nnef_grad.interpreter import EVALUATIONS
from nnef_grad.interpreter.execution import execute
from nnef_grad.language.syntax import Fragment
from nnef_grad.language.types import GENERIC, ArrayType, TensorType, Type
from nnef_grad.ops.opset import OpSet

# The results of these are integers where their operands are; a quotient is truncated.
WHOLE = frozenset(
    {
        "add", "sub", "mul", "div", "neg", "abs", "sign", "min", "max", "pad", "sqr",
        "sum_reduce", "min_reduce", "max_reduce", "floor", "ceil", "round",
    }
)  # fmt: skip


def fold(
    fragment: Fragment, values: Mapping[str, Any], dtype: str | None
) -> tuple[Any, ...]:
    """The results of an operation whose operands are known.

    Args:
        fragment: an operation of the standard.
        values: the arguments, by parameter; attributes are converted already.
        dtype: the explicit data type of the invocation, or the one that its operands
            have in common.

    Raises:
        InvalidGraphError: the arguments do not fit each other.
        UsageError: the interpreter does not have the operation, or no value for it.
    """
    scratch = Emitter(OpSet())
    given = {**fragment.defaults, **values}
    operands = [given[p.name] for p in fragment.operands]
    is_of_extents = is_open(operands)
    arrays = [
        _as_they_are(value) if is_of_extents else _arrays(p.type, value, dtype)
        for p, value in zip(fragment.operands, operands, strict=True)
    ]
    for p, own in zip(fragment.operands, arrays, strict=True):
        given[p.name] = _stand_ins(scratch, own)
    scratch.emit_op(bind(fragment, given, None if fragment.deduces_dtype else dtype))
    if is_of_extents:
        return (_of_extents(scratch.operations[-1], arrays),)
    results = execute(scratch.operations[-1], arrays)
    is_whole = fragment.name in WHOLE and not any(map(_has_scalars, operands))
    return tuple(_result(value, is_whole) for value in results)


def _arrays(type_: Type, value: Any, dtype: str | None) -> Any:
    """A known operand as an array, or a tuple of them; `dtype` is the generic data type."""
    if isinstance(type_, ArrayType):
        return tuple(_arrays(type_.item, item, dtype) for item in value)
    assert isinstance(type_, TensorType)
    wanted = dtype if type_.dtype == GENERIC else type_.dtype
    return converted(value, wanted or dtype_of(value))


def _as_they_are(value: Any) -> Any:
    """Operands beside extents with symbols: integers that become no scalars."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_as_they_are, value))
    return as_array(value)


def _of_extents(operation: Operation, arrays: list[Any]) -> Any:
    """The result of an operation on extents with symbols, of which numpy does not know
    that they are integers.
    """
    evaluation = _OF_EXTENTS.get(operation.name) or EVALUATIONS[operation.name]
    made = as_array(evaluation(*arrays, **operation.settings))
    has_symbols = any(isinstance(item, Extent) for item in made.flat)
    is_done = has_symbols or made.dtype.kind == "b"
    return simple(made if is_done else made.astype(np.int64))


# Extents are positive: rounding down is truncation, and none is less than 1.
_OF_EXTENTS = {"div": np.floor_divide, "max": np.maximum, "min": np.minimum}


def _stand_ins(scratch: Emitter, arrays: Any) -> Any:
    """A tensor for each array."""
    if isinstance(arrays, tuple):
        return [_stand_ins(scratch, array) for array in arrays]
    return scratch.tensor(dtype_of(arrays), arrays.shape, "known")


def _has_scalars(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_scalars, value))
    return dtype_of(value) == "scalar"


def _result(value: Any, is_whole: bool) -> Any:
    if isinstance(value, tuple):
        return [_result(item, is_whole) for item in value]
    array: Array = as_array(value)
    if is_whole and array.dtype.kind == "f":
        array = np.trunc(array).astype(np.int64)
    return simple(array)
