"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnef_grad.frontends.products import linear, matmul
from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.tract.operations.products import contract

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
def einsum(call: Call, equation: str, operands: Sequence[Any]) -> Any:
    """The sum of products of the elements that have the same letters."""
    return contract(call, operands, equation)


@aten("bilinear")
def bilinear(call: Call, x: Any, y: Any, weight: Any, bias: Any) -> Any:
    """x weight y + bias, for each matrix of the weight."""
    made = contract(call, [x, weight, y], "...i,oij,...j->...o")
    return made if bias is None else call("add", *call.aligned(made, bias))


_REFUSED = (
    "inverse", "linalg_inv", "det", "linalg_det", "logdet", "slogdet",
    "linalg_slogdet", "svd", "linalg_svd", "qr", "linalg_qr", "cholesky",
    "linalg_cholesky", "linalg_cholesky_ex", "linalg_solve", "linalg_solve_ex",
    "linalg_eigh", "linalg_eig", "pinverse", "linalg_pinv", "triangular_solve",
    "linalg_solve_triangular", "matrix_exp", "linalg_matrix_exp", "linalg_lstsq",
    "_linalg_svd", "_linalg_det", "_linalg_slogdet", "_linalg_eigh", "_linalg_eigvals",
    "_linalg_solve_ex", "linalg_eigvals", "linalg_eigvalsh", "linalg_svdvals",
    "linalg_lu", "linalg_lu_factor", "linalg_lu_factor_ex", "_lu_with_info",
    "linalg_matrix_rank", "linalg_cond", "cholesky_inverse", "cholesky_solve",
    "linalg_inv_ex", "linalg_ldl_factor", "linalg_ldl_factor_ex", "lu_solve",
    "linalg_lu_solve", "geqrf", "linalg_householder_product", "ormqr",
)  # fmt: skip


@aten(*_REFUSED)
def refused(call: Call, *_: Any) -> Any:
    """NNEF has products of matrices, and nothing that solves for them."""
    call.refuse("NNEF does not have it: compute it outside, and make it an input")
