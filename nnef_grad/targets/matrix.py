"""Matrix products in which nothing is transposed, and no batch is broadcast; a product
that is one number is a sum, and a sum of products may be one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operation, Tensor
from nnef_grad.ops.shape import reshaped, transposed
from nnef_grad.targets.conditions import Condition, inner_product, set_to
from nnef_grad.targets.forms import form
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


@Condition
def _over_batches(op: Operation) -> bool:
    """All axes but those of the matrices are summed over."""
    return list(op.attributes["axes"]) == list(range(op.inputs[0].rank - 2))


@form("sum_reduce", _over_batches & set_to(normalize=False), source="matmul")
def product_of_all_batches(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """The sum over a batch of products is the product of rows that go through the whole
    batch.
    """
    source = emit.producer(op.inputs[0])
    assert source is not None
    flags = source.attributes["transposeA"], source.attributes["transposeB"]
    left, right = source.inputs
    joined = (
        _joined_rows(emit, left, inner_first=flags[0]),
        _joined_rows(emit, right, inner_first=not flags[1]),
    )
    found = emit(
        "matmul", *joined, transposeA=flags[0], transposeB=flags[1], hint="product"
    )
    return [reshaped(emit, found, op.outputs[0].shape)]


def _joined_rows(emit: Emitter, x: Tensor, *, inner_first: bool) -> Tensor:
    """[batch..., inner, rows] to [batch * inner, rows], or [batch..., rows, inner] to
    [rows, batch * inner].
    """
    *batch, first, last = x.shape
    if inner_first:
        return reshaped(emit, x, (prod(batch) * first, last), "lines")
    axes = [len(batch), *range(len(batch)), len(batch) + 1]
    moved = transposed(emit, x, axes, "moved")
    return reshaped(emit, moved, (first, prod(batch) * last), "lines")
