"""Matrix products in which nothing is transposed, and no batch is broadcast; a product
that is one number is a sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operation, Tensor
from nnef_grad.targets.conditions import inner_product
from nnef_grad.targets.registry import lowering
from nnef_grad.targets.shape import fill


@lowering("matmul")
def matmul_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """First the operands are transposed, then those with fewer batches are repeated."""
    x, y = op.inputs
    flags = op.attributes["transposeA"], op.attributes["transposeB"]
    if inner_product(op):
        x, y = _turned(emit, x, not flags[0]), _turned(emit, y, flags[1])
        products = emit("mul", x, y, hint="products")
        return [emit("sum_reduce", products, axes=[x.rank - 2])]
    if any(flags) and x.rank > 2:
        return [emit("matmul", _turned(emit, x, flags[0]), _turned(emit, y, flags[1]))]
    batch = op.outputs[0].shape[:-2]
    filled = (fill(emit, x, (*batch, *x.shape[-2:]), "repeated") for x in op.inputs)
    return [emit("matmul", *filled, **op.settings)]


def _turned(emit: Emitter, x: Tensor, flag: bool) -> Tensor:
    *batch, row, column = range(x.rank)
    order = [*batch, column, row]
    return emit("transpose", x, axes=order, hint="transposed") if flag else x
