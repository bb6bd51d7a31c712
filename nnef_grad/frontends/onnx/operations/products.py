"""Matrix products."""

from __future__ import annotations

from typing import Any

from nnef_grad.frontends.expansions.einsum import contract
from nnef_grad.frontends.expansions.products import matmul
from nnef_grad.frontends.onnx.reading import Node, onnx_op
from nnef_grad.frontends.values import shape_of

onnx_op("MatMul")(matmul)


@onnx_op("Gemm")
def _gemm(node: Node, a: Any, b: Any, c: Any = None) -> Any:
    """alpha * a * b + beta * c, in the shortest form in NNEF."""
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    flips: dict[str, Any] = {
        f"transpose{side}": bool(node.get(f"trans{side}", 0)) for side in "AB"
    }
    is_plain = alpha == 1.0 and beta == 1.0
    if is_plain and c is not None and list(flips.values()) == [False, True]:
        bias = node.of_rank(c, 2) if shape_of(c) else c
        if shape_of(bias)[:1] in ((), (1,)):
            return node("linear", a, b, bias)
    product = node("matmul", a, b, hint=None if c is None else "product", **flips)
    made = product if alpha == 1.0 else node("mul", product, float(alpha))
    if c is None or beta == 0.0:
        return made
    added = c if beta == 1.0 else node("mul", c, float(beta), hint="added")
    return node("add", *node.aligned(made, added))


@onnx_op("Einsum")
def _einsum(node: Node, *operands: Any) -> Any:
    return contract(node, operands, node.get("equation", ""))
