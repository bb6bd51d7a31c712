"""Reductions along axes in order, and to a position along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operand, Operation, Tensor
from nnef_grad.ops.shape import reshaped
from nnef_grad.targets.registry import lowering


@lowering("sum_reduce", "mean_reduce", "max_reduce", "min_reduce")
def reduce_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Along the axes in ascending order; along none, nothing is to be done."""
    (x,), axes = op.operands, sorted(op.attributes["axes"])
    is_mean = op.attributes.get("normalize", False)
    return [emit("mean_reduce" if is_mean else op.name, x, axes=axes) if axes else x]


@lowering("argmax_reduce", "argmin_reduce")
def position_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Along one axis, which several axes are joined to, in row-major order."""
    (x,), shape = op.operands, op.outputs[0].shape
    axes = sorted(op.attributes["axes"])
    if not axes or not isinstance(x, Tensor):
        return [emit("constant", shape=shape, value=[0], dtype="integer")]
    joined, axis = _joined(emit, x, axes)
    position = emit(op.name, joined, axes=[axis], hint="position")
    return [reshaped(emit, position, shape)]


def _joined(emit: Emitter, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, int]:
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
