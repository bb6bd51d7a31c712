"""Functions of matrices, by formulas without choices: determinants, inverses and solutions
by minors (Laplace) or, of larger ones, by the reflections of Householder; decompositions
column by column; the exponential by squaring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.frontends.expansions.products import matmul
from nnef_grad.frontends.values import described, is_known, shape_of
from nnef_grad.frontends.view import View
from nnef_grad.graph.extents import Dimension, as_number

# The most rows or columns that are taken one by one; and of those that minors are made of.
MOST, _MOST_OF_MINORS = 64, 4
_ADVICE = "compute it outside, and make it an input"


def _small(view: View, x: Any) -> tuple[int, int]:
    """The numbers of rows and columns, of which the smaller one is not too large."""
    extents = shape_of(x)[-2:]
    is_known = all(isinstance(n, int) for n in extents)
    what = f"the matrices are {' x '.join(map(described, extents))}, and there are"
    is_small = is_known and min(map(as_number, extents)) <= MOST
    view.require(is_small, f"{what} formulas up to {MOST} x {MOST}: {_ADVICE}")
    rows, columns = map(as_number, extents)
    return rows, columns


def rows_of(view: View, x: Any) -> int:
    """The number of rows of square matrices, for which there are formulas."""
    rows, columns = _small(view, x)
    what = f"the matrices are {rows} x {columns}, and there are"
    view.require(rows == columns, f"{what} formulas for square ones: {_ADVICE}")
    return rows


def transposed(view: View, x: Any) -> Any:
    """The matrices with rows in place of columns."""
    rank = len(shape_of(x))
    return view.transposed(x, [*range(rank - 2), rank - 1, rank - 2])


def _part(view: View, x: Any, begin: Sequence[int], end: Sequence[Dimension]) -> Any:
    """Rows and columns of matrices."""
    if (*begin, *end) == (0, 0, *shape_of(x)[-2:]):
        return x
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
    n, rank = rows_of(view, x), len(shape_of(x))
    if n > _MOST_OF_MINORS:
        return _determinant_of_triangle(view, x)
    whole = _expanded(view, x, _cofactors(view, x, 1))
    return view("squeeze", whole, axes=[rank - 2, rank - 1])


def inverse(view: View, x: Any) -> Any:
    """The inverses of matrices: those of cofactors, transposed, by the determinant."""
    n, rank = rows_of(view, x), len(shape_of(x))
    if n > _MOST_OF_MINORS:
        return solution(view, x, _of_matrices(np.eye(n), rank))
    cofactors = _cofactors(view, x, n)
    adjoint = transposed(view, cofactors)
    return view("div", adjoint, _expanded(view, x, cofactors), hint="inverse")


def solution(view: View, x: Any, y: Any, *, is_left: bool = True) -> Any:
    """The solution of a product with matrices x, on the left or on the right, that gives y."""
    if not is_left:
        pair = transposed(view, x), transposed(view, y)
        return transposed(view, solution(view, *pair))
    if rows_of(view, x) <= _MOST_OF_MINORS:
        return matmul(view, inverse(view, x), y)
    q, r = orthogonal_and_triangular(view, x)
    return substituted(view, r, matmul(view, transposed(view, q), y), is_upper=True)


def substituted(view: View, x: Any, y: Any, *, is_upper: bool) -> Any:
    """The solution of a product with triangles x on the left that gives y, row by row."""
    n = rows_of(view, x)
    x, y = view.aligned(x, y)
    rank, columns = len(shape_of(y)), shape_of(y)[-1]
    found: list[Any] = []
    for i in range(n - 1, -1, -1) if is_upper else range(n):
        row = _part(view, y, (i, 0), (i + 1, columns))
        if found:
            begin, end = (i + 1, n) if is_upper else (0, i)
            others = _part(view, x, (i, begin), (i + 1, end))
            known = matmul(view, others, view.joined(found, rank - 2))
            row = view("sub", *view.aligned(row, known), hint="rest")
        pivot = _part(view, x, (i, i), (i + 1, i + 1))
        row = view("div", *view.aligned(row, pivot), hint="row")
        found.insert(0 if is_upper else i, row)
    return view.joined(found, rank - 2)


# ---- Cholesky ----


def cholesky(view: View, x: Any) -> Any:
    """The lower triangles whose products with their transposes are symmetric matrices, of
    which the lower triangle is read.
    """
    n, rank = rows_of(view, x), len(shape_of(x))
    columns: list[Any] = []
    for i in range(n):
        rest = n - i
        pivot = view("sqrt", _part(view, x, (0, 0), (1, 1)), hint="pivot")
        column = view("div", _part(view, x, (0, 0), (rest, 1)), pivot, hint="column")
        columns.append(_padded(view, column, (i, 0), (0, 0)))
        if rest > 1:
            below = _part(view, column, (1, 0), (rest, 1))
            outer = view("matmul", below, below, hint="outer", transposeB=True)
            inner = _part(view, x, (1, 1), (rest, rest))
            x = view("sub", inner, outer, hint="rest")
    return view.joined(columns, rank - 1)


# ---- Orthogonal and triangular ----


class _Reflection(NamedTuple):
    """What reflects the first columns of matrices onto their first rows: the matrix that is the
    identity, less the product of a vector with itself by a factor. What was there already is
    reflected, too, and changes its sign again.
    """

    vector: Any
    factor: Any
    sign: Any


def orthogonal_and_triangular(
    view: View, x: Any, *, is_complete: bool = False
) -> tuple[Any, Any]:
    """Matrices q with orthonormal columns, and upper triangles r, whose product is x, with the
    signs of LAPACK. Complete ones are square.
    """
    rows, columns = _small(view, x)
    rank, batch = len(shape_of(x)), shape_of(x)[:-2]
    reflections, triangle = _taken_apart(view, x)
    count = len(triangle)
    q: Any = None
    if is_complete and rows > count:
        q = _of_matrices(np.eye(rows - count), rank)
        zeros = np.zeros((rows - count, columns))
        triangle.append(view.broadcast(zeros, (*batch, *zeros.shape)))
    for i in reversed(range(count)):
        q = _reflected(view, reflections[i], _with_corner(view, q, rows - i, rank))
    signs: list[Any] = [*(x.sign for x in reflections if x is not None)]
    if signs:
        width = shape_of(q)[-1] - len(signs)
        if width:
            signs.append(view.broadcast(np.ones((1, width)), (*batch, 1, width)))
        q = view("mul", q, view.joined(signs, rank - 1), hint="q")
    return q, view.joined(triangle, rank - 2)


def _taken_apart(view: View, x: Any) -> tuple[list[_Reflection | None], list[Any]]:
    """The reflections that make triangles of matrices one after the other, None for what is
    one, and the rows of these.
    """
    count = min(_small(view, x))
    reflections: list[_Reflection | None] = []
    rows: list[Any] = []
    for i in range(count):
        reflection = _reflection(view, x) if shape_of(x)[-2] > 1 else None
        x = _reflected(view, reflection, x)
        height, width = shape_of(x)[-2:]
        row = _part(view, x, (0, 0), (1, width))
        if reflection is not None:
            row = view("mul", row, reflection.sign, hint="row")
        rows.append(_padded(view, row, (0, 0), (i, 0)))
        reflections.append(reflection)
        if i < count - 1:
            x = _part(view, x, (1, 1), (height, width))
    return reflections, rows


def _determinant_of_triangle(view: View, x: Any) -> Any:
    """The determinants of matrices: a reflection changes their sign."""
    reflections, rows = _taken_apart(view, x)
    signs = [x.sign for x in reflections if x is not None]
    pivots = [_part(view, row, (0, i), (1, i + 1)) for i, row in enumerate(rows)]
    rank = len(shape_of(x))
    y = _product_of(view, [*pivots, *signs])
    if len(signs) % 2:
        y = view("neg", y, hint="determinant")
    return view("squeeze", y, axes=[rank - 2, rank - 1])


def _product_of(view: View, factors: Sequence[Any]) -> Any:
    return reduce(lambda x, y: view("mul", x, y, hint="product"), factors)


def _reflection(view: View, x: Any) -> _Reflection:
    rank, height = len(shape_of(x)), shape_of(x)[-2]
    first, below = _part(view, x, (0, 0), (1, 1)), _part(view, x, (1, 0), (height, 1))
    squares = view("sqr", below, hint="squares")
    tail = view("sum_reduce", squares, axes=[rank - 2], hint="tail")
    norm = view("sqrt", view("add", view("sqr", first), tail), hint="norm")
    is_negative = view("lt", first, 0.0, hint="is_negative")
    away = view("select", is_negative, view("neg", norm), norm, hint="away")
    vector = view.joined([view("add", first, away, hint="top"), below], rank - 2)
    # Twice the square of the norm of the vector, by its first element; of zeros, anything.
    half = view("mul", away, view("add", first, away), hint="half")
    is_zero = view("eq", half, 0.0, hint="is_zero")
    size = view("select", is_zero, 1.0, half, hint="size")
    was_there = view(
        "and", view("eq", tail, 0.0), view("not", is_zero), hint="was_there"
    )
    sign = view("select", was_there, -1.0, 1.0, hint="sign")
    return _Reflection(vector, view("rcp", size, hint="factor"), sign)


def _reflected(view: View, reflection: _Reflection | None, x: Any) -> Any:
    if reflection is None:
        return x
    row, width = transposed(view, reflection.vector), shape_of(x)[-1]
    if is_known(x) and np.array_equal(
        x, np.broadcast_to(np.eye(*x.shape[-2:]), x.shape)
    ):
        along = _part(view, row, (0, 0), (1, width))
    else:
        along = matmul(view, row, x)
    scaled = view("mul", reflection.vector, reflection.factor, hint="scaled")
    change = matmul(view, scaled, along)
    return view("sub", *view.aligned(x, change), hint="reflected")


def _with_corner(view: View, q: Any, rows: int, rank: int) -> Any:
    """Matrices with a row and a column more before the others, and 1 where these meet."""
    if q is None:
        return _of_matrices(np.eye(rows, 1), rank)
    corner = np.zeros((rows, as_number(shape_of(q)[-1]) + 1))
    corner[0, 0] = 1.0
    wide = _padded(view, q, (1, 0), (1, 0))
    return view("add", wide, _of_matrices(corner, rank), hint="wide")


def _padded(view: View, x: Any, rows: tuple[int, int], columns: tuple[int, int]) -> Any:
    """Matrices with so many rows and columns of zeros before and after them."""
    if not any((*rows, *columns)):
        return x
    still = [(0, 0)] * (len(shape_of(x)) - 2)
    return view("pad", x, padding=[*still, rows, columns], hint="padded")


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
