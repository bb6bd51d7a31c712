"""Matrix products in which nothing is transposed, and no batch is broadcast; a product
that is one number is a sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.targets.conditions import inner_product, several_batches
from nnef_grad.targets.registry import lowering


@lowering("matmul")
def matmul_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """First the operands are transposed, then those with fewer batches are repeated."""
    x, y = op.inputs
    flags = op.attributes["transposeA"], op.attributes["transposeB"]
    if inner_product(op):
        return [_sum(emit, _turned(emit, x, not flags[0]), _turned(emit, y, flags[1]))]
    if any(flags) and several_batches(op):
        return [emit("matmul", _turned(emit, x, flags[0]), _turned(emit, y, flags[1]))]
    batch = op.outputs[0].shape[:-2]
    repeated = (_repeated(emit, x, batch) for x in op.inputs)
    return [emit("matmul", *repeated, **op.settings)]


def _sum(emit: Emitter, x: Tensor, y: Tensor) -> Tensor:
    """The sum of the products of two columns."""
    products = emit("mul", x, y, hint="products")
    return emit("sum_reduce", products, axes=[x.rank - 2])


def _turned(emit: Emitter, x: Tensor, flag: bool) -> Tensor:
    *batch, row, column = range(x.rank)
    order = [*batch, column, row]
    return emit("transpose", x, axes=order, hint="transposed") if flag else x


def _repeated(emit: Emitter, x: Tensor, batch: Shape) -> Tensor:
    """A matrix for each of the batch."""
    pairs = zip(batch, x.shape[:-2], strict=True)
    repeats = [count // extent for count, extent in pairs]
    if set(repeats) <= {1}:
        return x
    return emit("tile", x, repeats=[*repeats, 1, 1], hint="repeated")
