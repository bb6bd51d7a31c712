"""How an extent becomes zero, or large enough: the numbers of a symbol for which it is, and
the quotients that must have no rest. What is found so becomes a fact (facts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from nnef_grad.graph.atoms import Quotient, Symbol, parts_of
from nnef_grad.graph.extents import (
    Dimension,
    Extent,
    atoms_in,
    bounds,
    has_symbols,
    symbols_in,
)
from nnef_grad.graph.quotients import (
    exact_quotient,
    numbers_as,
    replaced,
    with_atom,
    without_quotients,
)

# Ranges are looked for up to here.
_FARTHEST = 2**24


def are_exact(difference: Extent, quotients: Sequence[Quotient]) -> bool:
    """Whether a difference is zero if, and only if, some quotients have no rest. A product
    of several that are rounded down is what it would be without only if none has one; and
    a part of another quotient may have one where that quotient has none.
    """
    parts = atoms_in(
        tuple(
            part for a in chain.from_iterable(difference.terms) for part in parts_of(a)
        )
    )
    if not {*quotients}.isdisjoint(parts):
        return False
    if len(quotients) > 1:
        products = [{*a}.intersection(quotients) for a in difference.terms]
        is_product = all(len(found) in (0, len(quotients)) for found in products)
        if not is_product or any(bounds(q.whole)[0] < 1 for q in quotients):
            return False
    exact = {q: exact_quotient(q.whole, q.by) for q in quotients}

    def instead(atom: Any) -> Dimension | None:
        return exact.get(atom)

    return without_quotients(replaced(difference, instead)) == 0


def roots_of(extent: Extent) -> list[int] | None:
    """The numbers for which an extent of one symbol is zero; None if that is not known."""
    constant = extent.terms.get((), 0)
    (term, *others) = [(atoms, f) for atoms, f in extent.terms.items() if atoms]
    if others or len(term[0]) > 1 or not isinstance(term[0][0], Symbol):
        return None
    number, rest = divmod(-constant, term[1])
    first, last = term[0][0].range
    return [number] if not rest and first <= number <= last else []


def long_enough(excess: Extent, atom: Symbol) -> Symbol | None:
    """A symbol that is at least so long that an extent is not negative."""

    (first, _), kept = atom.range, partial(at_least_so_long, atom)
    found = first_number(lambda n: _is_enough(excess, atom, kept(first + n)))
    return None if found is None else kept(first + found)


def at_least_so_long(atom: Symbol, number: int) -> Symbol:
    """A symbol that has a number at least, of those that count it."""
    return replace(atom, least=number * atom.step + atom.rest)


def short_enough(excess: Extent, atom: Symbol) -> Symbol | None:
    """A symbol that is at most so long that an extent is not negative."""

    def kept(number: int) -> Symbol:
        return replace(atom, most=number * atom.step + atom.rest)

    first, _ = atom.range
    found = first_number(lambda n: not _is_enough(excess, atom, kept(first + n)))
    return kept(first + found - 1) if found else None


def _is_enough(excess: Extent, atom: Symbol, kept: Symbol) -> bool:
    return bounds(with_atom(excess, atom, numbers_as(kept, atom)))[0] >= 0


def first_number(holds: Callable[[int], bool]) -> int | None:
    """The first number from 0 on for which something holds that holds for all after it."""
    last = 1
    while not holds(last):
        last *= 2
        if last > _FARTHEST:
            return None
    before = -1
    while last - before > 1:
        middle = (before + last) // 2
        before, last = (before, middle) if holds(middle) else (middle, last)
    return last


def as_comparison(extent: Extent) -> str:
    """That an extent is not negative, in words."""
    constant = extent.terms.get((), 0)
    return f"{extent - constant} is at least {-constant}"


# ---- Where one of two extents is 1 ----

# Smaller numbers of a symbol are tried one by one.
TRIED = 256


def may_differ_as_1(one: Dimension, other: Dimension) -> bool:
    """Whether one of two extents may be 1 where the other is not."""
    if bounds(one)[0] > 1 and bounds(other)[0] > 1:
        return False
    if not has_symbols((one, other)):
        return 1 in (one, other)
    (atom, *others) = {*symbols_in((one, other))}
    first, last = atom.range
    if others:
        return True
    for number in range(first, min(first + TRIED, last + 1)):
        left, right = (with_atom(extent, atom, number) for extent in (one, other))
        if left != right and 1 in (left, right):
            return True
    rest = numbers_as(at_least_so_long(atom, first + TRIED), atom)
    return any(bounds(with_atom(extent, atom, rest))[0] <= 1 for extent in (one, other))
