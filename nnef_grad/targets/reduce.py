"""Reductions along axes in order, of numbers, and to a position along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operation, Tensor
from nnef_grad.ops.shape import reshaped
from nnef_grad.targets.conditions import unsorted
from nnef_grad.targets.registry import lowering


@lowering("sum_reduce", "mean_reduce", "max_reduce", "min_reduce")
def reduce_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """Along the axes in ascending order; nothing is to be done along none."""
    (x,), axes = op.operands, sorted(op.attributes["axes"])
    is_mean = op.attributes.get("normalize", False)
    return [emit("mean_reduce" if is_mean else op.name, x, axes=axes) if axes else x]


# The extremum that tells, of ones and zeros, whether any or all are true.
_EXTREMA = {"any_reduce": "max_reduce", "all_reduce": "min_reduce"}


@lowering("any_reduce", "all_reduce")
def logical_reduce_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """By the maximum or the minimum of ones and zeros."""
    (x,), axes = op.operands, sorted(op.attributes["axes"])
    if not axes:
        return [x]
    if unsorted(op):
        return [emit(op.name, x, axes=axes)]
    numbers = emit("select", x, 1.0, 0.0, hint="numbers")
    extremum = emit(_EXTREMA[op.name], numbers, axes=axes, hint="extremum")
    return [emit("gt", extremum, 0.5)]


@lowering("argmax_reduce", "argmin_reduce")
def position_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """Along one axis, which several axes are joined to, in row-major order."""
    (x,), result = op.operands, op.outputs[0].shape
    axes = sorted(op.attributes["axes"])
    assert isinstance(x, Tensor)
    if not axes:
        return [emit("constant", shape=result, value=[0], dtype="integer")]
    joined, axis = _joined(emit, x, axes)
    position = emit(op.name, joined, axes=[axis], hint="position")
    return [reshaped(emit, position, result)]


def _joined(emit: Emitter, x: Tensor, axes: Sequence[int]) -> tuple[Any, int]:
    """The tensor with some axes as one, and where that is: axes that do not stand side
    by side go to the end.
    """
    first, end = axes[0], axes[0] + len(axes)
    order = list(range(x.rank))
    if axes != order[first:end]:
        kept = [axis for axis in order if axis not in axes]
        x = emit("transpose", x, axes=[*kept, *axes], hint="in_order")
        first, end = len(kept), x.rank
    shape = (*x.shape[:first], prod(x.shape[first:end]), *x.shape[end:])
    return reshaped(emit, x, shape, hint="joined"), first
