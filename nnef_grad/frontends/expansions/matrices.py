"""Functions of small matrices, by formulas without choices: determinants and inverses by
minors (Laplace), Cholesky's decomposition column by column, the exponential by squaring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.frontends.expansions.products import matmul
from nnef_grad.frontends.values import described, shape_of
from nnef_grad.frontends.view import View
from nnef_grad.graph.extents import Dimension, as_number

# The most rows that there are formulas for.
MOST = 4


def rows_of(view: View, x: Any) -> int:
    """The number of rows of square matrices, for which there are formulas."""
    extents = shape_of(x)[-2:]
    is_small = all(isinstance(n, int) and n <= MOST for n in extents)
    what = f"the matrices are {' x '.join(map(described, extents))}, and there are"
    advice = "compute it outside, and make it an input"
    view.require(is_small, f"{what} formulas up to {MOST} x {MOST}: {advice}")
    view.require(len({*extents}) == 1, f"{what} formulas for square ones: {advice}")
    return int(extents[0])


def transposed(view: View, x: Any) -> Any:
    """The matrices with rows in place of columns."""
    rank = len(shape_of(x))
    return view.transposed(x, [*range(rank - 2), rank - 1, rank - 2])


def _part(view: View, x: Any, begin: Sequence[int], end: Sequence[Dimension]) -> Any:
    """Rows and columns of matrices."""
    rank = len(shape_of(x))
    window: dict[str, Any] = {
        "axes": [rank - 2, rank - 1],
        "begin": [*begin],
        "end": [*end],
    }
    return view("slice", x, hint="part", **window)


# ---- Minors ----


def _cofactors(view: View, x: Any, rows: int) -> Any:
    """The cofactors of the elements of so many first rows of matrices."""
    n, rank = shape_of(x)[-1], len(shape_of(x))
    if n == 1:
        return view("add", view("mul", x, 0.0), 1.0, hint="ones")
    repeats = [1] * (rank - 2) + [2, 2]
    around = view("tile", x, hint="around", repeats=repeats)

    def element(row: int, column: int) -> Any:
        """For each element, the one so many rows below, and columns to the right of it."""
        return _part(view, around, (row, column), (row + rows, column + n))

    minors = _minor(view, element, range(1, n), range(1, n))
    if n % 2:
        # The rows and columns that come first again are in an even order.
        return minors
    signs = (-1.0) ** np.add.outer(np.arange(as_number(rows)), np.arange(as_number(n)))
    return view("mul", minors, _of_matrices(signs, rank), hint="cofactors")


def _minor(
    view: View,
    element: Callable[[int, int], Any],
    rows: Sequence[int],
    columns: Sequence[int],
) -> Any:
    """The determinants of the elements in some rows and columns."""
    row, *others = rows
    if not others:
        return element(row, columns[0])
    total: Any = None
    for i, column in enumerate(columns):
        rest = _minor(view, element, others, [*columns[:i], *columns[i + 1 :]])
        term = view("mul", element(row, column), rest, hint="term")
        name = "sub" if i % 2 else "add"
        total = view(name, total, term, hint="minor") if i else term
    return total


def _of_matrices(array: Array, rank: int) -> Array:
    return array.reshape(*(1,) * (rank - 2), *array.shape)


def _expanded(view: View, x: Any, cofactors: Any) -> Any:
    """The determinants, as matrices of one element, by the first row."""
    n, rank = shape_of(x)[-1], len(shape_of(x))
    rows = [_part(view, y, (0, 0), (1, n)) for y in (x, cofactors)]
    terms = view("mul", *rows, hint="terms")
    return view("sum_reduce", terms, hint="determinant", axes=[rank - 1])


def determinant(view: View, x: Any) -> Any:
    """The determinants of matrices."""
    rows_of(view, x)
    rank = len(shape_of(x))
    whole = _expanded(view, x, _cofactors(view, x, 1))
    return view("squeeze", whole, axes=[rank - 2, rank - 1])


def inverse(view: View, x: Any) -> Any:
    """The inverses of matrices: those of cofactors, transposed, by the determinant."""
    cofactors = _cofactors(view, x, rows_of(view, x))
    adjoint = transposed(view, cofactors)
    return view("div", adjoint, _expanded(view, x, cofactors), hint="inverse")


def solution(view: View, x: Any, y: Any, *, is_left: bool = True) -> Any:
    """What gives y if it is multiplied by matrices x on the left, or on the right."""
    pair = (inverse(view, x), y)
    return matmul(view, *(pair if is_left else pair[::-1]))


# ---- Cholesky ----


def cholesky(view: View, x: Any) -> Any:
    """The lower triangles whose products with their transposes are symmetric matrices, of
    which the lower triangle is read.
    """
    n, rank = rows_of(view, x), len(shape_of(x))
    still = [(0, 0)] * (rank - 2)
    columns: list[Any] = []
    for i in range(n):
        rest = n - i
        pivot = view("sqrt", _part(view, x, (0, 0), (1, 1)), hint="pivot")
        column = view("div", _part(view, x, (0, 0), (rest, 1)), pivot, hint="column")
        padding = [*still, (i, 0), (0, 0)]
        columns.append(view("pad", column, padding=padding) if i else column)
        if rest > 1:
            below = _part(view, column, (1, 0), (rest, 1))
            outer = view("matmul", below, below, hint="outer", transposeB=True)
            inner = _part(view, x, (1, 1), (rest, rest))
            x = view("sub", inner, outer, hint="rest")
    return view.joined(columns, rank - 1)


# ---- The exponential ----

# A series of so many powers is exact for matrices whose norm is at most one half, which others
# are when they are halved so often; the result is squared as often.
_POWERS, _HALVINGS = 8, 10


def exponential(view: View, x: Any) -> Any:
    """The exponentials of matrices whose columns have sums of sizes of at most 512."""
    n, rank = rows_of(view, x), len(shape_of(x))
    halvings = _halvings(view, x)
    small = view("mul", x, view("pow", 0.5, halvings, hint="factor"), hint="small")
    one = _of_matrices(np.eye(n), rank)
    y: Any = one
    for power in range(_POWERS, 0, -1):
        term = view("div", small if y is one else matmul(view, small, y), float(power))
        y = view("add", term, one, hint="series")
    for step in range(_HALVINGS):
        is_due = view("gt", halvings, float(step), hint="is_due")
        y = view("select", is_due, view("matmul", y, y, hint="square"), y)
    return y


def _halvings(view: View, x: Any) -> Any:
    """How often matrices are halved until their norms are at most one half."""
    rank = len(shape_of(x))
    sums = view("sum_reduce", view("abs", x), hint="sums", axes=[rank - 2])
    norm = view("max_reduce", sums, hint="norm", axes=[rank - 1])
    twice = view("max", view("mul", norm, 2.0), 1.0, hint="twice")
    halvings = view("ceil", view("log2", twice), hint="halvings")
    return view("min", halvings, float(_HALVINGS))
