"""Operations of tract's registry, and of the standard, in place of what it takes longer for.

    rows = gather(table, indices);   ->   rows = tract_core_gather(table, indices, axis = 0);

What is emitted here is read again by the reader of tract's dialect, as what was there
before, or as something that computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnef_grad.emit.arguments import dtype_of
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import Decompose, DefUse, where
from nnef_grad.graph.ir import Operand, Operation, tensors
from nnef_grad.ops.windows import windows_of
from nnef_grad.targets.maxima import desample_maxima, finds_small_maxima
from nnef_grad.targets.own_operations import found_by, tract_core
from nnef_grad.targets.windows import moving_axes

TYPES = {"scalar": "f32", "integer": "i64", "logical": "bool"}


@found_by("tract", "cast")
@where()
def _cast(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """By the name that the type has there. Integers stay what they are."""
    (x,) = op.operands
    if dtype_of(x) == op.dtype or op.dtype is None:
        return [x]
    return [tract_core(emit, "cast", x, dtype=op.dtype, to=TYPES[op.dtype])]


@found_by("tract", "gather")
@where(lambda op, near: tensors(op.operands[1:]))
def _gather(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Rows are copied; the standard form for tract is a product with ones and zeros."""
    axis, dtype = op.attributes["axis"], op.outputs[0].dtype
    return [tract_core(emit, "gather", *op.operands, dtype=dtype, axis=axis)]


@found_by("tract", "select", "lt", "gt", "eq")
@where(lambda op, near: op.outputs[0].rank and float in map(type, op.operands))
def _with_tensors(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Tensors for numbers: tract goes through them four times as fast."""
    shape = op.outputs[0].shape
    operands = [
        tract_core(emit, "broadcast", x, shape=shape, hint="filled")
        if type(x) is float
        else x
        for x in op.operands
    ]
    return emit.emit_again(op, operands)


@found_by("tract", "pow")
@where(lambda op, near: op.operands[1] == 3.0)
def _cubed(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """By products: tract takes a logarithm for other powers than the second."""
    x = op.operands[0]
    return [emit("mul", emit("mul", x, x, hint="squared"), x)]


@found_by("tract", "sigmoid")
@where()
def _exact_sigmoid(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """tract's own is near to 1e-9, and what is smaller, with its slope, is all error."""
    rest = emit("exp", emit("neg", op.operands[0], hint="opposite"), hint="rest")
    return [emit("div", 1.0, emit("add", rest, 1.0, hint="whole"))]


@found_by("tract", "desample")
def _desampled_in_lines(op: Operation, near: DefUse) -> Decompose | None:
    """tract takes elements that are a stride apart one by one, and runs as a whole."""
    source, windows = near.producer(op.operands[1]), windows_of(op)
    if source is None or not finds_small_maxima(source, windows):
        return None
    axes = moving_axes(windows)
    return lambda emit, op: [desample_maxima(emit, op.inputs[0], source, axes)]
