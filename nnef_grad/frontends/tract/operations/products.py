"""Products of matrices and einsum, as matmul of the standard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from string import ascii_letters
from typing import Any, NamedTuple

from nnef_grad.frontends.step import Step, expansion
from nnef_grad.frontends.values import shape_of


@expansion("linear")
def linear(step: Step, x: Any, weight: Any, bias: Any) -> Any:
    """A linear layer, for operands of more than two axes on one matrix of rows."""
    shape = shape_of(x)
    if len(shape) <= 2 or len(shape_of(weight)) < 2:
        return step("linear", x, weight, bias)
    *batch, out, inner = shape_of(weight)
    bias_shape = shape_of(bias)
    is_row = not bias_shape or bias_shape == (*(1,) * (len(shape) - 1), out)
    is_one = {*batch} <= {1} and is_row and len(shape) == len(batch) + 2
    if not is_one:
        made = step("matmul", x, weight, transposeB=True)
        return step("add", made, bias)
    rows = step.reshaped(x, [prod(shape[:-1]), inner], "rows")
    matrix = step("squeeze", weight, hint="matrix", axes=list(range(len(batch))))
    row = step.reshaped(bias, [1, out], "bias") if bias_shape else bias
    flat = step("linear", rows, matrix, row, hint="flat")
    return step.reshaped(flat, [*shape[:-1], out])


# ---- Einsum ----


class Term(NamedTuple):
    """A tensor, with a letter for each axis."""

    tensor: Any
    letters: str

    def extents(self, letters: Iterable[str]) -> list[int]:
        """The extents of axes."""
        extents = dict(zip(self.letters, shape_of(self.tensor), strict=True))
        return [extents[letter] for letter in letters]


@expansion("tract_core_einsum")
def einsum(
    step: Step, operands: Sequence[Any], expr: str, acc: str, output: str
) -> Any:
    """Operands are multiplied from left to right, as batches of matrices."""
    return contract(step, operands, expr)


def contract(step: Step, operands: Sequence[Any], expr: str) -> Any:
    """The einsum of some operands."""
    letters, result = _letters(step, operands, expr)
    pairs = zip(operands, letters, strict=True)
    terms = [_without_repeats(step, Term(*pair)) for pair in pairs]
    made = terms[0]
    for place, term in enumerate(terms[1:], 1):
        later = (other.letters for other in terms[place + 1 :])
        made = _product(step, made, term, {*result}.union(*later))
    final = _summed(step, made, set(result))
    missing = [c for c in result if c not in final.letters]
    step.require(not missing, f"'{''.join(missing)}' is in the result alone")
    return _arranged(step, final, result)


def _letters(step: Step, operands: Sequence[Any], expr: str) -> tuple[list[str], str]:
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
    step.require(is_one_each, f"'{expr}' is not for {len(operands)} operands")
    unused = "".join(c for c in ascii_letters if c not in expr)
    ranks = [len(shape_of(x)) for x in operands]
    more = [n - len(t.replace("...", "")) for n, t in zip(ranks, terms, strict=True)]
    shared = unused[: max([0, *more])]
    wide = [
        term.replace("...", shared[len(shared) - max(count, 0) :])
        for term, count in zip(terms, more, strict=True)
    ]
    for term, rank in zip(wide, ranks, strict=True):
        step.require(
            len(term) == rank, f"'{term}' is not for an operand of rank {rank}"
        )
    return wide, result.replace("...", shared)


def _without_repeats(step: Step, term: Term) -> Term:
    """The diagonal where a letter is repeated."""
    x, letters = term
    for letter in sorted({c for c in letters if letters.count(c) > 1}):
        while letters.count(letter) > 1:
            shape = shape_of(x)
            first, second = [i for i, c in enumerate(letters) if c == letter][:2]
            rest = [i for i in range(len(shape)) if i not in (first, second)]
            extent, others = shape[first], [shape[i] for i in rest]
            moved = step.transposed(x, [*rest, first, second])
            flat = step.reshaped(moved, [*others, extent * extent])
            window: dict[str, Any] = {
                "begin": [0],
                "end": [extent * extent],
                "stride": [extent + 1],
            }
            x = step("slice", flat, hint="diagonal", axes=[len(rest)], **window)
            letters = "".join(letters[i] for i in rest) + letter
    return Term(x, letters)


def _summed(step: Step, term: Term, kept: set[str]) -> Term:
    """A term, summed over the axes that nothing else has."""
    axes = [i for i, letter in enumerate(term.letters) if letter not in kept]
    if not axes:
        return term
    sums = step("sum_reduce", term.tensor, hint="sums", axes=axes)
    made = step("squeeze", sums, hint="sum", axes=axes)
    return Term(made, "".join(c for c in term.letters if c in kept))


def _arranged(step: Step, term: Term, letters: str) -> Any:
    """The tensor of a term with its axes in the order of letters."""
    order = [term.letters.index(c) for c in letters]
    return step.transposed(term.tensor, order)


def _product(step: Step, x: Term, y: Term, kept: set[str]) -> Term:
    """The product of two terms, summed over the axes that are not kept."""
    x = _summed(step, x, kept | set(y.letters))
    y = _summed(step, y, kept | set(x.letters))
    both = [c for c in x.letters if c in y.letters]
    for c in both:
        extents = x.extents(c) + y.extents(c)
        step.require(len({*extents}) == 1, f"'{c}' is {extents[0]} and {extents[1]}")
    batch = [c for c in both if c in kept]
    inner = [c for c in both if c not in kept]
    rows = [c for c in x.letters if c not in y.letters]
    columns = [c for c in y.letters if c not in x.letters]
    left = _matrices(step, x, batch, rows, inner)
    right = _matrices(step, y, batch, inner, columns)
    made = step("matmul", left, right, hint="product")
    shape = [*x.extents(batch + rows), *y.extents(columns)]
    return Term(step.reshaped(made, shape), "".join(batch + rows + columns))


def _matrices(step: Step, term: Term, *groups: list[str]) -> Any:
    """A term as a batch of matrices: a group of axes becomes one."""
    letters = "".join(c for group in groups for c in group)
    batch, *rest = (prod(term.extents(group)) for group in groups)
    leading = [batch] if groups[0] else []
    arranged = _arranged(step, term, letters)
    return step.reshaped(arranged, [*leading, *rest], "matrices")
