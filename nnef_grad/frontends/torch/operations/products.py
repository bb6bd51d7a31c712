"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnef_grad.frontends.expansions.einsum import contract
from nnef_grad.frontends.expansions.products import linear, matmul
from nnef_grad.frontends.torch.call import Call, aten

aten("linear")(linear)
aten("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner.vector")(matmul)


@aten("addmm", "addmv", "baddbmm", "addbmm")
def added(call: Call, x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta x + alpha a b; of `addbmm` the products of all batches are added."""
    made = matmul(call, a, b)
    if call.packet == "addbmm":
        made = call("squeeze", call("sum_reduce", made, axes=[0]), axes=[0])
    made = made if alpha == 1 else call("mul", made, float(alpha))
    if beta == 0:
        return made
    x = x if beta == 1 else call("mul", x, float(beta))
    return call("add", *call.aligned(x, made))


@aten("einsum")
def _einsum(call: Call, equation: str, operands: Sequence[Any]) -> Any:
    return contract(call, operands, equation)


@aten("bilinear")
def _bilinear(call: Call, x: Any, y: Any, weight: Any, bias: Any) -> Any:
    made = contract(call, [x, weight, y], "...i,oij,...j->...o")
    return made if bias is None else call("add", *call.aligned(made, bias))
