"""Operations with their decisions held as they are at one point.

An operation that makes a decision has kinks: which operand is the larger one, which
element of a window is the maximum, on which side of zero x lies. With the decision held,
the function is smooth. It is the same function at the point, and around it up to the
next kink; so it has the same derivative there, and a step of any size crosses no kink.

A tie has no such neighbourhood. There the decision is the one of docs/conventions.md. A
rounding is held as described there too: as a constant where it is alone, as an offset
inside a quantization.

Nothing here depends on the rules of differentiation, nor they on it: the rules are
checked by it.

    step(operation, tensors, operations=hold(operation, tensors)) == step(operation, tensors)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnef_grad.graph.ir import Operation, Tensor
from nnef_grad.interpreter.elementwise import aligned
from nnef_grad.interpreter.execution import Operations, operands_of, step
from nnef_grad.interpreter.pool import argmax_pool, sample
from nnef_grad.interpreter.quantize import (
    logarithmic_quantize,
    min_max_linear_quantize,
    zero_point_linear_quantize,
)
from nnef_grad.interpreter.reduce import Axes, max_reduce, min_reduce
from nnef_grad.interpreter.registry import EVALUATIONS, Array, Evaluation, Function
from nnef_grad.interpreter.roi import held_maxima, held_resampling
from nnef_grad.ops.traits import STEPS

# A table entry is called like an evaluation, at the point; it returns the function of
# the operands with the decisions made there.
Hold = Callable[..., Evaluation]
HELD: dict[str, Hold] = {}

# The tolerated difference between the results of two forms of a function.
ROUNDING = 1e-9


def hold(operation: Operation, tensors: Mapping[str, Array]) -> Operations:
    """The evaluation of an operation with its decisions held, by its name; empty for
    one that makes no decision.

    Args:
        operation: an operation of a flat graph.
        tensors: its operands and results at the point, by name.
    """
    entry = HELD.get(operation.name)
    if entry is None:
        return {}
    operands = operands_of(operation, tensors)
    with np.errstate(all="ignore"):
        function = entry(*operands, **operation.attributes)
    held = {operation.name: lambda *moved, **_: function(*moved)}
    for name, found in step(operation, tensors, operations=held).items():
        message = f"'{operation.name}' is another function with its decisions held"
        assert _is_same(found, tensors[name], operands), message
    return held


def _is_same(found: Array, result: Array, operands: Sequence[Any]) -> bool:
    """Whether results agree, up to the rounding of their operands."""
    size = max(map(_largest, [result, *operands]))
    with np.errstate(all="ignore"):
        errors = np.abs(found - result)[np.isfinite(result)]
    return bool(np.all(errors <= ROUNDING * size))


def _largest(x: Array) -> float:
    """The size of the largest finite element."""
    return float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))


def can_move(operation: Operation, result: Tensor) -> bool:
    """Whether a result changes at all with the operands: a step function does not, nor
    do results that are not scalars, which are decisions.
    """
    return result.dtype == "scalar" and operation.name not in STEPS


def _held(*names: str) -> Callable[[Function], Function]:
    """Registers the function that holds the decisions of the named operations."""

    def enter(function: Function) -> Function:
        HELD.update(dict.fromkeys(names, function))
        return function

    return enter


_gt, _lt = EVALUATIONS["gt"], EVALUATIONS["lt"]
_mul, _select = EVALUATIONS["mul"], EVALUATIONS["select"]


# ---- Element by element ----


@_held("abs")
def _abs(x: Array) -> Evaluation:
    sign = np.sign(x)
    return lambda x: sign * x


@_held("relu")
def _relu(x: Array) -> Evaluation:
    is_positive = x > 0.0
    return lambda x: np.where(is_positive, x, 0.0)


@_held("prelu")
def _prelu(x: Array, alpha: Array) -> Evaluation:
    is_negative = x < 0.0
    return lambda x, alpha: _select(is_negative, _mul(alpha, x), x)


@_held("leaky_relu")
def _leaky_relu(x: Array, alpha: float) -> Evaluation:
    is_negative = x < 0.0
    return lambda x: np.where(is_negative, alpha * x, x)


@_held("elu")
def _elu(x: Array, alpha: float) -> Evaluation:
    is_negative = x < 0.0
    return lambda x: np.where(is_negative, alpha * np.expm1(x), x)


@_held("selu")
def _selu(x: Array, alpha: float, **attributes: float) -> Evaluation:
    elu, scale = _elu(x, alpha), attributes["lambda"]
    return lambda x: scale * elu(x)


@_held("max")
def _max(x: Array, y: Array) -> Evaluation:
    is_x = _gt(x, y)
    return lambda x, y: _select(is_x, x, y)


@_held("min")
def _min(x: Array, y: Array) -> Evaluation:
    is_x = _lt(x, y)
    return lambda x, y: _select(is_x, x, y)


@_held("clamp")
def _clamp(x: Array, a: Array, b: Array) -> Evaluation:
    capped = _min(x, b)
    raised = _max(capped(x, b), a)
    return lambda x, a, b: raised(capped(x, b), a)


# ---- The extremum of several elements ----


def _shared(extremum: Callable[[Array, Axes], Array]) -> Hold:
    """The mean of the elements equal to the extremum."""

    def hold_ties(input: Array, axes: Axes) -> Evaluation:
        ties = input == extremum(input, axes)
        count = ties.sum(axis=axes, keepdims=True)
        return lambda x: np.where(ties, x, 0.0).sum(axis=axes, keepdims=True) / count

    return hold_ties


HELD.update(max_reduce=_shared(max_reduce), min_reduce=_shared(min_reduce))


@_held("max_pool")
def _max_pool(input: Array, **attributes: Any) -> Evaluation:
    index = argmax_pool(input, **attributes)
    return lambda x: sample(x, index, **attributes)


@_held("max_pool_with_index")
def _max_pool_with_index(input: Array, **attributes: Any) -> Evaluation:
    index = argmax_pool(input, **attributes)
    return lambda x: [sample(x, index, **attributes), index]


# ---- Regions ----


@_held("avg_roi_pool")
def _avg_roi_pool(
    input: Array, rois: Array, batch_index: Array, **attributes: Any
) -> Evaluation:
    """`avg_roi_pool` with fixed regions: their corners are rounded."""
    pool = EVALUATIONS["avg_roi_pool"]
    return lambda x, *_: pool(x, rois, batch_index, **attributes)


HELD.update(max_roi_pool=held_maxima, roi_resample=held_resampling)


# ---- Quantizations ----
#
# The derivative passes straight through the rounding. The function that has this
# derivative is the same quantization with two decisions held: the offset by the
# rounding, and which elements are inside the range.


@_held("min_max_linear_quantize")
def _min_max(x: Array, min: Array, max: Array, **attributes: Any) -> Evaluation:
    result = min_max_linear_quantize(x, min, max, **attributes)
    x, low, high = aligned(x, min, max)
    clamped = _clamp(x, low, high)
    offset = (result - clamped(x, low, high)) / (high - low)

    def held(*moved: Array) -> Array:
        x, low, high = aligned(*moved)
        shifted: Array = clamped(x, low, high) + offset * (high - low)
        return shifted

    return held


@_held("zero_point_linear_quantize")
def _zero_point(
    x: Array, zero_point: Array, scale: Array, **attributes: Any
) -> Evaluation:
    result = zero_point_linear_quantize(x, zero_point, scale, **attributes)
    x, scale = aligned(x, scale, result)[:2]
    code, exact = result / scale, x / scale
    is_inside = np.abs(code - exact) <= 0.5

    def held(x: Array, zero_point: Array, scale: Array) -> Array:
        x, scale = aligned(x, scale, result)[:2]
        inside = x + (code - exact) * scale
        return np.where(is_inside, inside, code * scale)

    return held


@_held("logarithmic_quantize")
def _logarithmic(x: Array, max: Array, bits: int) -> Evaluation:
    result = logarithmic_quantize(x, max, bits)
    x, bound = aligned(x, max)
    highest, level = np.ceil(np.log2(bound)), np.log2(np.abs(x))
    is_inside = (level > highest - (2**bits - 1)) & (level < highest)
    ratio = np.where(is_inside, result / x, 0.0)

    def held(x: Array, max: Array) -> Array:
        x, _ = aligned(x, max)
        return np.where(is_inside, ratio * x, result)

    return held
