"""Operations along axes in order, and reductions to a position along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Operand, Operation, Tensor
from nnef_grad.ops.shape import reshaped
from nnef_grad.targets.registry import lowering


@lowering(
    "sum_reduce", "mean_reduce", "max_reduce", "min_reduce", "squeeze", "unsqueeze"
)
def axes_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Along the axes in ascending order; along none, nothing is to be done."""
    (x,), axes = op.operands, sorted(op.attributes["axes"])
    is_mean = op.attributes.get("normalize", False)
    return [emit("mean_reduce" if is_mean else op.name, x, axes=axes) if axes else x]


@lowering("argmax_reduce", "argmin_reduce")
def position_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Along one axis, which several axes are joined to, in row-major order: those that do
    not stand side by side go to the end.
    """
    (x,), shape = op.operands, op.outputs[0].shape
    axes = sorted(op.attributes["axes"])
    if not axes or not isinstance(x, Tensor):
        return [emit("constant", shape=shape, value=[0], dtype="integer")]
    first, end = axes[0], axes[-1] + 1
    if len(axes) < end - first:
        kept = [axis for axis in range(x.rank) if axis not in axes]
        x = emit("transpose", x, axes=[*kept, *axes], hint="in_order")
        first, end = len(kept), x.rank
    joined = (*x.shape[:first], prod(x.shape[first:end]), *x.shape[end:])
    x = reshaped(emit, x, joined, hint="joined")
    position = emit(op.name, x, axes=[first], hint="position")
    return [reshaped(emit, position, shape)]
