"""Matrix products."""

from __future__ import annotations

from typing import Any

from nnef_grad.interop.onnx_files.node import Node, Tensor, conversion


@conversion("MatMul")
def matmul(node: Node, a: Tensor, b: Tensor) -> None:
    """A matrix product; a vector is a row on the left, and a column on the right."""
    rank = max(2, a.rank, b.rank)
    is_row, is_column = a.rank == 1, b.rank == 1
    row = node.unsqueeze(a, [0] * is_row)
    column = node.unsqueeze(b, [1] * is_column)
    squeezed = [rank - 2] * is_row + [rank - 1] * is_column
    operands = (node.of_rank(operand, rank) for operand in (row, column))
    node.emit("matmul", *operands, squeezed=squeezed)


@conversion("Gemm")
def gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> None:
    """alpha * a * b + beta * c, in the shortest form in NNEF."""
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    flips: dict[str, Any] = {
        f"transpose{side}": bool(node.get(f"trans{side}", 0)) for side in "AB"
    }
    if alpha != 1.0 or (c is not None and beta != 1.0):
        bias = node.literal(0.0) if c is None else node.of_rank(c, 2)
        node.emit("gemm", a, b, bias, alpha=float(alpha), beta=float(beta), **flips)
    elif c is None:
        node.emit("matmul", a, b, **flips)
    elif c.rank == 1 and list(flips.values()) == [False, True]:
        node.emit("linear", a, b, node.row(c))
    else:
        node.emit("matmul_add", a, b, node.of_rank(c, 2), **flips)
