"""Determinants, inverses and solutions, decompositions, exponentials."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.base.errors import Problem
from nnef_grad.frontends.expansions import matrices
from nnef_grad.frontends.expansions.selection import triangle
from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.values import shape_of


@aten("inverse", "linalg_inv", "linalg_inv_ex")
def inverse(call: Call, x: Any, *_: Any) -> Any:
    """The inverses of matrices; what says whether there are any is not known."""
    return _first(call, matrices.inverse(call, x))


def _first(call: Call, y: Any) -> Any:
    """The result of an operation that may have further ones."""
    return call.alone(y) if isinstance(call.fake, (list, tuple)) else y


@aten("det", "linalg_det", "_linalg_det")
def _determinant(call: Call, x: Any) -> Any:
    return _first(call, matrices.determinant(call, x))


@aten("slogdet", "linalg_slogdet", "_linalg_slogdet")
def _sign_and_logarithm(call: Call, x: Any) -> Any:
    y = matrices.determinant(call, x)
    size = call("log", call("abs", y, hint="size"))
    return call.alone(call("sign", y, hint="sign"), size)


@aten("logdet")
def _logarithm(call: Call, x: Any) -> Any:
    return call("log", matrices.determinant(call, x))


# ---- Solutions ----


@aten("linalg_solve", "linalg_solve_ex", "_linalg_solve_ex")
def _solution(call: Call, x: Any, y: Any, *_: Any) -> Any:
    shape, rank = shape_of(x), len(shape_of(y))
    is_vector = rank == 1 or (rank == len(shape) - 1 and shape_of(y) == shape[:-1])
    y = call("unsqueeze", y, axes=[rank], hint="column") if is_vector else y
    z = matrices.solution(call, x, y, is_left=call.args["left"])
    return _first(
        call, call("squeeze", z, axes=[len(shape_of(z)) - 1]) if is_vector else z
    )


@aten("linalg_solve_triangular")
def _solution_of_triangle(call: Call, x: Any, y: Any, *_: Any) -> Any:
    upper, is_unit = call.args["upper"], call.args["unitriangular"]
    if not call.args["left"]:
        x, y = (matrices.transposed(call, part) for part in (x, y))
        upper = not upper
    if is_unit:
        x = triangle(call, x, 1 if upper else -1, upper)
        unit = np.eye(matrices.rows_of(call, x))
        x = call("add", *call.aligned(x, unit), hint="unit")
    z = matrices.substituted(call, x, y, is_upper=upper)
    return z if call.args["left"] else matrices.transposed(call, z)


@aten("cholesky_solve")
def _solution_by_triangle(call: Call, y: Any, x: Any, upper: bool = False) -> Any:
    return matrices.solution(call, _product(call, x, upper), y)


@aten("cholesky_inverse")
def _inverse_by_triangle(call: Call, x: Any, upper: bool = False) -> Any:
    return matrices.inverse(call, _product(call, x, upper))


def _product(call: Call, x: Any, upper: bool) -> Any:
    """The symmetric matrices that are products of a triangle and its transpose. PyTorch gives
    the zeros outside of it gradients.
    """
    outside = call("sub", triangle(call, x, 0, upper), x, hint="outside")
    x = call("add", x, call.stopped(outside), hint="triangle")
    return call("matmul", x, x, transposeA=upper, transposeB=not upper, hint="product")


# ---- Decompositions, exponentials ----


@aten("cholesky", "linalg_cholesky", "linalg_cholesky_ex")
def _cholesky(call: Call, x: Any, *_: Any) -> Any:
    """The gradient is that of symmetric matrices, though one triangle is read."""
    upper = call.args["upper"]
    x = matrices.transposed(call, x) if upper else x
    both = call("add", x, matrices.transposed(call, x), hint="both")
    mean = call("mul", both, 0.5, hint="mean")
    rest = call.stopped(call("sub", x, mean, hint="rest"))
    y = matrices.cholesky(call, call("add", mean, rest, hint="symmetric"))
    return _first(call, matrices.transposed(call, y) if upper else y)


@aten("qr", "linalg_qr")
def _orthogonal_and_triangular(call: Call, x: Any, *_: Any) -> Any:
    mode = call.args.get("mode", "reduced" if call.args.get("some") else "complete")
    q, r = matrices.orthogonal_and_triangular(call, x, is_complete=mode == "complete")
    return (None, r) if mode == "r" else (q, r)


# What PyTorch compares singular values with by itself, in an older function.
_LEAST_OF_ALL = 1e-15
_OF_BOUNDS = "singular values have no bounds: leave out atol, rtol, rcond and hermitian"


@aten("pinverse", "linalg_pinv")
def _pseudoinverse(call: Call, x: Any, *_: Any) -> Any:
    """By an orthogonal and a triangular matrix: that of matrices of full rank."""
    settings = [*call.args.values()][1:]
    has_none = all(value in (None, False, _LEAST_OF_ALL) for value in settings)
    call.require(has_none, _OF_BOUNDS)
    what = "the pseudoinverse is that of a matrix of full rank"
    call.reading.warnings.append(Problem(what, call.span))
    rows, columns = shape_of(x)[-2:]
    call.require_known(rows, columns)
    is_wide = rows < columns
    tall = matrices.transposed(call, x) if is_wide else x
    q, r = matrices.orthogonal_and_triangular(call, tall)
    transposed = matrices.transposed(call, q)
    y = matrices.substituted(call, r, transposed, is_upper=True)
    return matrices.transposed(call, y) if is_wide else y


@aten("matrix_exp", "linalg_matrix_exp")
def _exponential(call: Call, x: Any) -> Any:
    return matrices.exponential(call, x)
