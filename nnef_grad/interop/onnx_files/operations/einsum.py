"""Einsum: products of tensors, summed over the axes that the result does not have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from string import ascii_letters
from typing import NamedTuple

from nnef_grad.interop.onnx_files.node import Node, Tensor, conversion


class Term(NamedTuple):
    """A tensor, with a letter for each axis."""

    tensor: Tensor
    letters: str

    def extents(self, letters: Iterable[str]) -> list[int]:
        """The extents of axes."""
        shape = dict(zip(self.letters, self.tensor.shape, strict=True))
        return [shape[letter] for letter in letters]


@conversion("Einsum")
def einsum(node: Node, *operands: Tensor) -> None:
    """Operands are multiplied from left to right, as batches of matrices."""
    letters, result = _letters(node, operands)
    terms = [
        _without_repeats(node, Term(*pair))
        for pair in zip(operands, letters, strict=True)
    ]
    made = terms[0]
    for place, term in enumerate(terms[1:], 1):
        kept = {*result}.union(*(later.letters for later in terms[place + 1 :]))
        made = _product(node, made, term, kept)
    final = _arranged(node, _summed(node, made, set(result)), result)
    node.emit("copy", final)


def _letters(node: Node, operands: Sequence[Tensor]) -> tuple[list[str], str]:
    """The letters of the axes of operands and of the result. An ellipsis becomes as
    many letters, which are not used otherwise, as the operand with it has more axes.
    """
    equation = node.get("equation", b"")
    text = equation.decode() if isinstance(equation, bytes) else equation
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    unused = "".join(c for c in ascii_letters if c not in text)
    counts = [
        operand.rank - len(term.replace("...", ""))
        for operand, term in zip(operands, terms, strict=True)
    ]
    shared = unused[
        : max(n for n, t in zip(counts, terms, strict=True) if "..." in t or not n)
    ]
    wide = [
        term.replace("...", shared[len(shared) - count :])
        for term, count in zip(terms, counts, strict=True)
    ]
    if not arrow:
        once = sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1)
        right = ("..." if "..." in left else "") + "".join(once)
    return wide, right.replace("...", shared)


def _without_repeats(node: Node, term: Term) -> Term:
    """The diagonal where a letter is repeated."""
    x, letters = term
    for letter in sorted({c for c in letters if letters.count(c) > 1}):
        while letters.count(letter) > 1:
            first, second = (i for i, c in enumerate(letters) if c == letter)
            rest = [i for i in range(x.rank) if i not in (first, second)]
            extent, shape = x.shape[first], [x.shape[i] for i in rest]
            flat = node.reshaped(
                node.transposed(x, [*rest, first, second]), [*shape, extent * extent]
            )
            x = node.step(
                "slice",
                flat,
                to=[*shape, extent],
                axes=[len(rest)],
                begin=[0],
                end=[extent * extent],
                stride=[extent + 1],
            )
            letters = "".join(letters[i] for i in rest) + letter
    return Term(x, letters)


def _summed(node: Node, term: Term, kept: set[str]) -> Term:
    """A term, summed over the axes that nothing else has."""
    axes = [i for i, letter in enumerate(term.letters) if letter not in kept]
    if not axes:
        return term
    x = term.tensor
    shape = [1 if i in axes else n for i, n in enumerate(x.shape)]
    sums = node.step("sum_reduce", x, to=shape, axes=axes)
    rest = [letter for letter in term.letters if letter in kept]
    made = node.step("squeeze", sums, to=term.extents(rest), axes=axes)
    return Term(made, "".join(rest))


def _arranged(node: Node, term: Term, letters: str) -> Tensor:
    """The tensor of a term with its axes in the order of letters."""
    return node.transposed(term.tensor, [term.letters.index(c) for c in letters])


def _product(node: Node, x: Term, y: Term, kept: set[str]) -> Term:
    """The product of two terms, summed over the axes that are not kept."""
    x = _summed(node, x, kept | set(y.letters))
    y = _summed(node, y, kept | set(x.letters))
    both = [c for c in x.letters if c in y.letters]
    batch = [c for c in both if c in kept]
    inner = [c for c in both if c not in kept]
    rows = [c for c in x.letters if c not in y.letters]
    columns = [c for c in y.letters if c not in x.letters]
    same = x.extents(both) == y.extents(both)
    node.require(same, "axes of one letter must have one extent")
    sizes = [
        prod(t.extents(c)) for t, c in ((x, batch), (x, rows), (x, inner), (y, columns))
    ]
    sides = (
        node.reshaped(_arranged(node, x, "".join(batch + rows + inner)), sizes[:3]),
        node.reshaped(
            _arranged(node, y, "".join(batch + inner + columns)),
            [sizes[0], sizes[2], sizes[3]],
        ),
    )
    made = node.step("matmul", *sides, to=[sizes[0], sizes[1], sizes[3]])
    shape = [*x.extents(batch + rows), *y.extents(columns)]
    return Term(node.reshaped(made, shape), "".join(batch + rows + columns))
