"""Operations of the standard on known values, computed by the interpreter while a document
is read: exporters compute extents with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.emit.arguments import bind
from nnef_grad.emit.emitter import Emitter
from nnef_grad.frontends.values import converted, dtype_of, is_open, simple
from nnef_grad.graph.extents import Extent
from nnef_grad.graph.ir import Operation, Tensor
from nnef_grad.graph.learning import are_equal
from nnef_grad.graph.quotients import maximum, minimum
from nnef_grad.interpreter import EVALUATIONS
from nnef_grad.interpreter.execution import execute
from nnef_grad.language.syntax import Fragment
from nnef_grad.language.types import GENERIC, ArrayType, TensorType, Type
from nnef_grad.ops.costs import multiply_adds
from nnef_grad.ops.ranges import EXACT_IN_DOUBLE
from nnef_grad.ops.registry import OpSet

# The results of these are integers where their operands are; some of them are truncated.
FRACTIONS = frozenset({"div", "mean_reduce"})
WHOLE = FRACTIONS | {
    "add", "sub", "mul", "neg", "abs", "sign", "min", "max", "clamp", "relu", "pad",
    "sqr", "sum_reduce", "min_reduce", "max_reduce", "floor", "ceil", "round",
}  # fmt: skip

# What extents become where they are scalars, too.
EXACT_OF_EXTENTS = frozenset({"add", "sub", "mul", "min", "max"})


def as_int(value: Any) -> Any:
    """A known value as integers, if it is whole; as it is otherwise."""
    if is_open(value) or dtype_of(value) != "scalar":
        return value
    integers = np.trunc(np.clip(value, -EXACT_IN_DOUBLE, EXACT_IN_DOUBLE)).astype(
        np.int64
    )
    return integers if np.array_equal(integers, value) else value


def fold(
    fragment: Fragment,
    values: Mapping[str, Any],
    dtype: str | None,
    spend: Callable[[int], None],
) -> tuple[Any, ...]:
    """The results of an operation of the standard whose operands are known; of the data
    type of the invocation, or the one that its operands have in common. `spend` is told
    before how many elements are computed.
    """
    scratch = Emitter(OpSet())
    given = {**fragment.defaults, **values}
    operands = [given[p.name] for p in fragment.operands]
    is_of_extents = is_open(operands)
    arrays = [
        # Beside extents with symbols integers become no scalars.
        _each(np.asarray, value) if is_of_extents else _arrays(p.type, value, dtype)
        for p, value in zip(fragment.operands, operands, strict=True)
    ]

    def stand_in(array: Array) -> Tensor:
        return scratch.tensor(dtype_of(array), array.shape, "known")

    for p, own in zip(fragment.operands, arrays, strict=True):
        given[p.name] = _each(stand_in, own)
    scratch.emit_op(bind(fragment, given, None if fragment.deduces_dtype else dtype))
    spend(_work(scratch.operations[-1]))
    if is_of_extents:
        return (_of_extents(scratch.operations[-1], arrays),)
    results = execute(scratch.operations[-1], arrays)
    is_whole = fragment.name in WHOLE and not any(map(_has_scalars, operands))
    return tuple(_result(value, is_whole) for value in results)


def _work(operation: Operation) -> int:
    """The elements that an operation reads, pads, looks at and makes."""
    given, settings = operation.inputs[0].shape, operation.settings
    elements = sum(prod(x.shape) for x in (*operation.inputs, *operation.outputs))
    pads = [(0, 0)] * len(given) + list(settings.get("padding") or ())
    padded = prod(n + sum(p) for n, p in zip(given[::-1], pads[::-1], strict=False))
    windows: int = prod(settings.get("size") or ())
    return int((elements + max(padded, 0)) * windows + multiply_adds(operation))


def _arrays(type_: Type, value: Any, dtype: str | None) -> Any:
    """A known operand as an array, or a tuple of them; `dtype` is the generic data type."""
    if isinstance(type_, ArrayType):
        return tuple(_arrays(type_.item, item, dtype) for item in value)
    assert isinstance(type_, TensorType)
    wanted = dtype if type_.dtype == GENERIC else type_.dtype
    return converted(value, wanted or dtype_of(value))


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    """The result of a function for a value, or a tuple for those of an array."""
    if isinstance(value, (list, tuple)):
        return tuple(_each(function, item) for item in value)
    return function(value)


def _of_extents(operation: Operation, arrays: list[Any]) -> Any:
    """The result of an operation on extents with symbols, no integers of numpy."""
    evaluation = _OF_EXTENTS.get(operation.name) or EVALUATIONS[operation.name]
    result = np.asarray(evaluation(*arrays, **operation.settings))
    has_symbols = any(isinstance(item, Extent) for item in result.flat)
    if has_symbols or result.dtype.kind == "b":
        return simple(result)
    is_logical = all(isinstance(item, bool) for item in result.flat)
    return simple(result.astype(np.bool_ if is_logical else np.int64))


# Extents are positive: rounding down is truncation, and none is less than 1.
_OF_EXTENTS: dict[str, Any] = {
    "div": np.floor_divide,
    "max": np.frompyfunc(maximum, 2, 1),
    "min": np.frompyfunc(minimum, 2, 1),
    "eq": np.frompyfunc(are_equal, 2, 1),
    "ne": np.frompyfunc(lambda x, y: not are_equal(x, y), 2, 1),
    # They are whole.
    **dict.fromkeys(("ceil", "floor", "round"), np.asarray),
}


def _has_scalars(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_scalars, value))
    return dtype_of(value) == "scalar"


def _result(value: Any, is_whole: bool) -> Any:
    if isinstance(value, tuple):
        return [_result(item, is_whole) for item in value]
    array: Array = np.asarray(value)
    if is_whole and array.dtype.kind == "f":
        # What is no number becomes some integer.
        with np.errstate(invalid="ignore"):
            array = np.trunc(array).astype(np.int64)
    return simple(array)
