"""Matrix products in which nothing is transposed, and no batch is broadcast; what is one
number each is a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.targets.conditions import inner_product, transposed_batches
from nnef_grad.targets.registry import lowering


@lowering("matmul")
def matmul_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """First the operands are transposed, then those with fewer batches are repeated."""
    if inner_product(op):
        return [_sum(emit, op)]
    if transposed_batches(op):
        flags = (op.settings[f"transpose{name}"] for name in "AB")
        return [
            emit(
                "matmul",
                *(_turned(emit, *pair) for pair in zip(op.inputs, flags, strict=True)),
            )
        ]
    batch = op.outputs[0].shape[:-2]
    repeated = (_repeated(emit, x, batch) for x in op.inputs)
    return [emit("matmul", *repeated, **op.attributes)]


def _sum(emit: Emitter, op: Operation) -> Any:
    """Of the products along an axis, which both operands have as the last but one."""
    x, y = op.inputs
    is_column = op.attributes["transposeA"]
    columns = (
        _turned(emit, x, not is_column),
        _turned(emit, y, op.attributes["transposeB"]),
    )
    products = emit("mul", *columns, hint="products")
    return emit("sum_reduce", products, axes=[x.rank - 2])


def _turned(emit: Emitter, x: Tensor, flag: bool) -> Any:
    *batch, row, column = range(x.rank)
    order = [*batch, column, row]
    return emit("transpose", x, axes=order, hint="transposed") if flag else x


def _repeated(emit: Emitter, x: Tensor, batch: Shape) -> Any:
    """A matrix for each of the batch."""
    repeats = [
        count // extent for count, extent in zip(batch, x.shape[:-2], strict=True)
    ]
    if set(repeats) <= {1}:
        return x
    return emit("tile", x, repeats=[*repeats, 1, 1], hint="repeated")
