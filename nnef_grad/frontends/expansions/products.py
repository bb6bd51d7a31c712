"""Products of matrices, as frameworks define them: linear layers, einsum, attention."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from string import ascii_letters
from typing import Any, NamedTuple

from nnef_grad.frontends.values import dtype_of, shape_of
from nnef_grad.frontends.view import View
from nnef_grad.graph.extents import Dimension
from nnef_grad.language.types import LARGEST


def linear(view: View, x: Any, weight: Any, bias: Any) -> Any:
    """x weight^T + bias. A weight without rows is a column."""
    is_layer = len(shape_of(x)) == len(shape_of(weight)) == 2
    if bias is not None and is_layer and shape_of(bias) == shape_of(weight)[:1]:
        return view("linear", x, weight, view.of_rank(bias, 2))
    product = matmul(view, x, weight, transposed=len(shape_of(weight)) == 2)
    return product if bias is None else view("add", *view.aligned(product, bias))


def matmul(view: View, x: Any, y: Any, *, transposed: bool = False) -> Any:
    """x y, of batches that are broadcast; a vector is a row on the left, and a column on
    the right.
    """
    is_row, is_column = len(shape_of(x)) == 1, len(shape_of(y)) == 1
    x = view("unsqueeze", x, axes=[0]) if is_row else x
    if is_column:
        # As a row that enters transposed.
        y, transposed = view("unsqueeze", y, axes=[0]), not transposed
    x, y = view.aligned(x, y)
    hint = "product" if is_row or is_column else None
    product = view("matmul", x, y, transposeB=transposed, hint=hint)
    rank = len(shape_of(product))
    gone = [rank - 2] * is_row + [rank - 1] * is_column
    return view("squeeze", product, axes=gone) if gone else product


# ---- Einsum ----


class _Term(NamedTuple):
    """A tensor, with a letter for each axis."""

    tensor: Any
    letters: str

    @property
    def extents(self) -> dict[str, Dimension]:
        """The extents of axes, by letter."""
        return dict(zip(self.letters, shape_of(self.tensor), strict=True))


def contract(view: View, operands: Sequence[Any], expr: str) -> Any:
    """The einsum of some operands."""
    letters, result = _letters(view, operands, expr)
    pairs = zip(operands, letters, strict=True)
    diagonals = [_without_repeats(view, _Term(*pair)) for pair in pairs]
    terms = [_without_ones(view, term, diagonals) for term in diagonals]
    total = terms[0]
    for place, term in enumerate(terms[1:], 1):
        later = (other.letters for other in terms[place + 1 :])
        total = _product(view, total, term, {*result}.union(*later))
    final = _summed(view, total, set(result))
    missing = [c for c in result if c not in final.letters]
    view.require(not missing, f"'{''.join(missing)}' is in the result alone")
    return _arranged(view, final, result)


def _letters(view: View, operands: Sequence[Any], expr: str) -> tuple[list[str], str]:
    """The letters of the axes of the operands, and of the result. An ellipsis becomes as
    many letters as an operand has more axes. Without an arrow the result has the letters
    that are there once, in the order of the alphabet.
    """
    left, arrow, result = expr.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        single = sorted(c for c in {*left} if c.isalpha() and left.count(c) == 1)
        result = "".join(["..." * ("..." in left), *single])
    is_one_each = len(terms) == len(operands)
    view.require(is_one_each, f"'{expr}' is not for {len(operands)} operands")
    ranks = [len(shape_of(x)) for x in operands]
    pairs = list(zip(ranks, terms, strict=True))
    more = [max(0, n - len(t.replace("...", ""))) for n, t in pairs]
    unused = "".join(c for c in ascii_letters if c not in expr)
    shared = unused[: max(more, default=0)]
    ends = [shared[len(shared) - count :] for count in more]
    wide = [t.replace("...", end) for t, end in zip(terms, ends, strict=True)]
    for own, rank in zip(wide, ranks, strict=True):
        message = f"'{own}' is not for an operand of rank {rank}"
        view.require(len(own) == rank, message)
    return wide, result.replace("...", shared)


def _without_repeats(view: View, term: _Term) -> _Term:
    """The diagonal where a letter is repeated."""
    x, letters = term
    while repeated := sorted(c for c in letters if letters.count(c) > 1):
        letter, shape = repeated[0], shape_of(x)
        first, second = [i for i, c in enumerate(letters) if c == letter][:2]
        rest = [i for i in range(len(shape)) if i not in (first, second)]
        extent, axis = shape[first], len(rest)
        moved = view.transposed(x, [*rest, first, second])
        flat = view.reshaped(moved, [*(shape[i] for i in rest), extent * extent])
        end = extent * extent
        x = view.piece(flat, axis, 0, end, "diagonal", stride=extent + 1)
        letters = "".join(letters[i] for i in rest) + letter
    return _Term(x, letters)


def _without_ones(view: View, term: _Term, terms: Sequence[_Term]) -> _Term:
    """A term without axes of extent 1 along which it is repeated for another one."""
    wide = {c for other in terms for c, n in other.extents.items() if n != 1}
    pairs = enumerate(term.extents.items())
    gone = [i for i, (letter, n) in pairs if n == 1 and letter in wide]
    if not gone:
        return term
    letters = "".join(c for i, c in enumerate(term.letters) if i not in gone)
    return _Term(view("squeeze", term.tensor, hint="row", axes=gone), letters)


def _summed(view: View, term: _Term, kept: set[str]) -> _Term:
    axes = [i for i, letter in enumerate(term.letters) if letter not in kept]
    if not axes:
        return term
    sums = view("sum_reduce", term.tensor, hint="sums", axes=axes)
    sum_ = view("squeeze", sums, hint="sum", axes=axes)
    return _Term(sum_, "".join(c for c in term.letters if c in kept))


def _arranged(view: View, term: _Term, letters: str) -> Any:
    order = [term.letters.index(c) for c in letters]
    return view.transposed(term.tensor, order)


def _product(view: View, x: _Term, y: _Term, kept: set[str]) -> _Term:
    """The product of two terms, summed over the axes that are not kept."""
    x = _summed(view, x, kept | set(y.letters))
    y = _summed(view, y, kept | set(x.letters))
    both = [c for c in x.letters if c in y.letters]
    for c in both:
        one, other = x.extents[c], y.extents[c]
        view.require(one == other, f"'{c}' is {one} and {other}")
    batch = [c for c in both if c in kept]
    inner = [c for c in both if c not in kept]
    rows = [c for c in x.letters if c not in y.letters]
    columns = [c for c in y.letters if c not in x.letters]
    if not inner:
        letters = [*batch, *rows, *columns]
        wide = [_spread(view, term, letters) for term in (x, y)]
        return _Term(view("mul", *wide, hint="product"), "".join(letters))
    left, turns_left = _matrices(view, x, batch, rows, inner)
    right, turns_right = _matrices(view, y, batch, inner, columns)
    turns: dict[str, Any] = {"transposeA": turns_left, "transposeB": turns_right}
    product = view("matmul", left, right, hint="product", **turns)
    shape = [*(x.extents[c] for c in batch + rows), *(y.extents[c] for c in columns)]
    return _Term(view.reshaped(product, shape), "".join(batch + rows + columns))


def _spread(view: View, term: _Term, letters: list[str]) -> Any:
    """A term with an axis for each letter, of extent 1 where it has none."""
    own = [c for c in letters if c in term.letters]
    missing = [i for i, c in enumerate(letters) if c not in own]
    arranged = _arranged(view, term, "".join(own))
    return view("unsqueeze", arranged, axes=missing) if missing and own else arranged


def _matrices(
    view: View, term: _Term, batch: list[str], rows: list[str], columns: list[str]
) -> tuple[Any, bool]:
    """A term as a batch of matrices, where a group of axes becomes one; and whether they
    are transposed, which they are where the columns come first in the term.
    """
    first = [min(map(term.letters.index, g), default=0) for g in (rows, columns)]
    is_turned = bool(rows and columns) and first[1] < first[0]
    groups = [columns, rows] if is_turned else [rows, columns]
    arranged = _arranged(view, term, "".join([*batch, *groups[0], *groups[1]]))
    sizes = [prod(term.extents[c] for c in group) for group in groups]
    shape = [*(term.extents[c] for c in batch), *sizes]
    return view.reshaped(arranged, shape, "matrices"), is_turned


# ---- Attention ----


def weights(view: View, q: Any, k: Any, mask: Any, factor: float) -> Any:
    """softmax(q k^T factor + mask); the mask is False if there is none."""
    products = view("matmul", q, k, hint="products", transposeB=True)
    scores = view("mul", products, factor, hint="scores")
    if mask is not False:
        scores = masked(view, scores, mask)
    return view("softmax", scores, hint="weights", axes=[len(shape_of(scores)) - 1])


def causal(view: View, rows: Dimension, columns: Dimension, rank: int) -> Any:
    """The mask of what each row sees: as many columns as rows before it, and one."""
    places = (rows, rank - 2), (columns, rank - 1)
    return view("ge", *(view.positions(*p, rank) for p in places), hint="mask")


def shared(view: View, x: Any, heads: Dimension) -> Any:
    """Each head of k or v as often as there are heads of q for it."""
    *batch, own, rows, columns = shape_of(x)
    if own in (1, heads):
        return x
    times, rest = divmod(heads, own)
    view.require(rest == 0, f"{heads} heads cannot share {own}")
    axis = len(batch) + 1
    wide = view("unsqueeze", x, hint="heads", axes=[axis])
    repeats = [times if a == axis else 1 for a in range(axis + 3)]
    tiled = view("tile", wide, hint="shared", repeats=repeats)
    return view.reshaped(tiled, [*batch, heads, rows, columns])


def masked(view: View, scores: Any, mask: Any) -> Any:
    """Scores with a mask: truth values say what is seen, numbers are added."""
    mask = view.of_rank(mask, len(shape_of(scores)))
    if dtype_of(mask) == "logical":
        return view("select", mask, scores, -LARGEST, hint="masked")
    return view("add", scores, mask, hint="masked")
