"""Operations of tract's registry, and of the standard, in place of what it takes longer for.

    rows = gather(table, indices);   ->   rows = tract_core_gather(table, indices, axis = 0);

What is emitted here is read again by the reader of tract's dialect, as what was there
before, or as something that computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnef_grad.emit.arguments import dtype_of
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.inline import Decompose
from nnef_grad.graph.ir import Operand, Operation, Tensor
from nnef_grad.ops.windows import windows_of
from nnef_grad.targets.conditions import Condition
from nnef_grad.targets.maxima import are_small, desample_maxima, finds_maxima
from nnef_grad.targets.own_operations import found_by, own, tract_core
from nnef_grad.targets.registry import Relations
from nnef_grad.targets.windows import moving_axes

_TYPES = {"scalar": "f32", "integer": "i64", "logical": "bool"}


@own("cast")
def own_cast(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """By the name that the type has there. Integers stay what they are."""
    (x,) = op.operands
    if dtype_of(x) == op.dtype or op.dtype is None:
        return [x]
    return [tract_core(emit, "cast", x, dtype=op.dtype, to=_TYPES[op.dtype])]


@own("gather", applies=Condition(lambda op: isinstance(op.operands[1], Tensor)))
def own_gather(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Rows are copied; the standard form for tract is a product with ones and zeros."""
    axis, dtype = op.attributes["axis"], op.outputs[0].dtype
    return [tract_core(emit, "gather", *op.operands, dtype=dtype, axis=axis)]


@Condition
def _is_broadcast_number(op: Operation) -> bool:
    return op.outputs[0].rank > 0 and float in map(type, op.operands)


@own("select", "lt", "gt", "eq", applies=_is_broadcast_number)
def with_tensors(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """A tensor for each number: tract makes it once, and goes through tensors of the same
    shape four times as fast.
    """
    shape = op.outputs[0].shape
    operands = [
        tract_core(emit, "broadcast", x, shape=shape, hint="filled")
        if type(x) is float
        else x
        for x in op.operands
    ]
    return emit.emit_again(op, operands)


_CUBED = Condition(lambda op: op.operands[1] == 3.0)


@own("pow", applies=_CUBED)
def cubed(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """By products: tract takes a logarithm for other powers than the second."""
    x = op.operands[0]
    return [emit("mul", emit("mul", x, x, hint="squared"), x)]


@found_by("tract", name="desample")
def _desampled_in_lines(op: Operation, near: Relations) -> Decompose | None:
    """tract takes elements that are a stride apart one by one, and runs as a whole."""
    source, windows = near.producer(op.operands[1]), windows_of(op)
    if source is None or not (finds_maxima(source, windows) and are_small(source)):
        return None
    axes = moving_axes(windows)
    return lambda emit, op: [desample_maxima(emit, op.inputs[0], source, axes)]
