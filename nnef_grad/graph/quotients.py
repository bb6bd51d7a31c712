"""Quotients of extents, and the least and greatest of several, in their one form: what is
whole stands outside of a quotient, a quotient of a quotient is one, and of several extents
those that are never the least, or the greatest, are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, reduce
from itertools import chain
from math import gcd
from operator import and_, mul
from typing import Any

from nnef_grad.base.errors import InvalidGraphError
from nnef_grad.graph.atoms import (
    Atom,
    Extreme,
    Product,
    Quotient,
    Symbol,
    in_order,
    meaning_of,
    parts_of,
)
from nnef_grad.graph.extents import (
    Dimension,
    Extent,
    OpenExtentError,
    atoms_in,
    bounds,
    extent_of,
    has_symbols,
    lone,
    lone_atom,
    sorted_terms,
    sum_of,
    symbols_in,
    terms_of,
)


def minimum(*parts: Dimension) -> Any:
    """The least one of some extents, an expression where that is not always the same."""
    return _extreme("min", parts) if has_symbols(parts) else min(parts)


def maximum(*parts: Dimension) -> Any:
    """The greatest one of some extents, an expression where that is not always the same."""
    return _extreme("max", parts) if has_symbols(parts) else max(parts)


def exact_quotient(whole: Dimension, by: Dimension) -> Any:
    """A quotient that has no rest: times the divisor it is the whole."""
    if isinstance(whole, Extent) or isinstance(by, Extent):
        return quotient(whole, by, is_exact=True)
    if whole % by:
        raise InvalidGraphError(f"{whole} must be a multiple of {by}")
    return whole // by


# ---- Other atoms ----


def replaced(
    extent: Dimension, replacement: Callable[[Atom], Dimension | None]
) -> Dimension:
    """The extent with others in the place of atoms; with None an atom stays, of parts that
    are replaced.
    """
    if not isinstance(extent, Extent):
        return extent

    def made(atom: Atom) -> Any:
        found = replacement(atom)
        if found is not None:
            return found
        if isinstance(atom, Symbol):
            return lone(atom)
        parts = tuple(replaced(part, replacement) for part in parts_of(atom))
        if isinstance(atom, Extreme):
            return _extreme(atom.name, parts)
        whole, by = parts
        return exact_quotient(whole, by) if atom.is_exact else whole // by

    terms = extent.terms.items()
    return sum(reduce(mul, map(made, atoms), factor) for atoms, factor in terms)


def with_atom(extent: Dimension, atom: Atom, other: Dimension) -> Dimension:
    """An extent with another one in the place of an atom."""
    return replaced(extent, lambda own: other if own == atom else None)


def extent_at(extent: Extent, numbers: Mapping[str, int]) -> Dimension:
    """An extent with numbers in the place of some of its symbols."""
    return replaced(extent, lambda atom: number_at(atom, numbers))


def numbers_as(symbol: Symbol, other: Symbol) -> Any:
    """The numbers of another atom of a symbol for those of the symbol that it stands for."""
    return exact_quotient(extent_of(symbol) - other.rest, other.step)


def number_at(atom: Atom, numbers: Mapping[str, int]) -> Dimension | None:
    """The number of an atom, if it is one of these symbols."""
    if not isinstance(atom, Symbol) or atom.name not in numbers:
        return None
    number, rest = divmod(numbers[atom.name] - atom.rest, atom.step)
    first, last = atom.range
    if rest or not first <= number <= last:
        what = f"'{atom.name}' cannot be {numbers[atom.name]}"
        raise InvalidGraphError(f"{what}: the network needs {meaning_of(atom)}")
    return number


# ---- Quotients ----


@lru_cache(maxsize=4096)
def quotient(whole: Any, by: Any, is_exact: bool = False) -> Any:
    """The quotient, rounded down."""
    if isinstance(by, Extent):
        return _quotient_by_extent(whole, by, is_exact)
    if by < 0:
        return quotient(-whole, -by, is_exact)
    if not isinstance(whole, Extent):
        return int(whole) // by
    # Rounded up is rounded down with the other sign.
    if sorted_terms(whole)[0][1] < 0:
        return -quotient(-whole + (0 if is_exact else by - 1), by, is_exact)
    pairs = {atoms: divmod(f, by) for atoms, f in whole.terms.items()}
    inside = sum_of((atoms, n) for atoms, (n, _) in pairs.items())
    rest = sum_of((atoms, n) for atoms, (_, n) in pairs.items())
    common = gcd(by, *(n for atoms, n in terms_of(rest).items() if atoms))
    rest = sum_of((atoms, n // common) for atoms, n in terms_of(rest).items())
    return inside + _proper(rest, by // common, is_exact)


def _proper(rest: Dimension, by: int, is_exact: bool) -> Any:
    """A quotient whose divisor is no factor of what it divides."""
    least, most = bounds(rest)
    if by == 1:
        return rest
    if least // by == most // by:
        return least // by
    atoms, factor = sorted_terms(rest)[0]
    inner = atoms[0]
    if len(atoms) == factor == 1 and isinstance(inner, Quotient) and not inner.is_exact:
        added = rest - lone(inner)
        if not isinstance(added, Extent) and not isinstance(inner.by, Extent):
            return quotient(inner.whole + added * inner.by, inner.by * by, is_exact)
    found = next(_quotients_of_parts(rest, by), None)
    return _as_known(Quotient(rest, by, is_exact)) if found is None else found


def _quotients_of_parts(rest: Dimension, by: int) -> Iterator[Dimension]:
    """The quotient of a sum with the least or greatest of several extents, if that of one of
    them is always the least or greatest quotient.
    """
    for atoms, factor in terms_of(rest).items():
        found = [*atoms_in(rest)].count(atoms[0]) if atoms else 0
        for extreme in atoms if len(atoms) == found == 1 else ():
            if not isinstance(extreme, Extreme):
                continue
            name = (
                extreme.name
                if factor > 0
                else {"min": "max", "max": "min"}[extreme.name]
            )
            one = _extreme(
                name, (quotient(with_atom(rest, extreme, p), by) for p in extreme.parts)
            )
            if not any(map(_is_extreme, atoms_in(one))):
                yield one


def _quotient_by_extent(whole: Any, by: Extent, is_exact: bool) -> Any:
    whole, divisor = _without_shared(whole, by)
    if not isinstance(divisor, Extent):
        return quotient(whole, divisor, is_exact)
    for atom in lone_atom(divisor):
        if isinstance(atom, Quotient) and atom.is_exact and bounds(atom.by)[0] > 0:
            return quotient(whole * atom.by, atom.whole, is_exact)
    by, rest = divisor, whole
    inside: Dimension = 0
    leading, *_ = sorted_terms(by)
    while True:
        found = (_over(term, leading) for term in sorted_terms(rest))
        part = next((x for x in found if x is not None), None)
        if part is None:
            break
        inside, rest = inside + part, rest - part * by
    if rest == 0 or (bounds(rest)[0] >= 0 and bounds(rest - by)[1] < 0):
        return inside
    if bounds(by)[0] < 1:
        raise OpenExtentError(f"the quotient of {whole} by {by} is not known")
    # What is not less than the divisor with the other sign is -1, rounded down.
    if bounds(rest)[1] < 0 and bounds(rest + by)[0] >= 0:
        return inside - 1
    return inside + _as_known(Quotient(rest, by, is_exact))


def _without_shared(*extents: Dimension) -> tuple[Any, ...]:
    """Extents without the atoms that all of their terms share, none of which is ever zero."""
    terms = [terms_of(extent) for extent in extents]
    shared = reduce(and_, map(Counter, chain.from_iterable(terms)))
    common = Counter({a: n for a, n in shared.items() if bounds(lone(a))[0] > 0})
    if not common:
        return extents
    return tuple(
        sum_of((in_order((Counter(a) - common).elements()), n) for a, n in own.items())
        for own in terms
    )


def _over(term: tuple[Product, int], divisor: tuple[Product, int]) -> Dimension | None:
    """The quotient of a term by another one; None if it is no term."""
    (atoms, factor), (others, by) = term, divisor
    left = Counter(atoms)
    left.subtract(others)
    if min(left.values(), default=0) < 0 or (atoms and factor % by) or not factor // by:
        return None
    return sum_of([(in_order(left.elements()), factor // by)])


def _as_known(atom: Quotient | Extreme) -> Any:
    """The extent that is an atom, or what it is known to be."""
    for symbol in symbols_in(parts_of(atom)):
        known = symbol.known
        if atom.text in known.values:
            return known.values[atom.text]
        if isinstance(atom, Quotient) and atom.text in known.exact:
            return lone(Quotient(atom.whole, atom.by, is_exact=True))
    return lone(atom)


# ---- One of several ----


def _extreme(name: str, parts: Iterable[Dimension]) -> Any:
    """The least or the greatest extent, without those that never are."""
    nested = list(chain.from_iterable(_choices(name, part) for part in parts))
    sign = 1 if name == "min" else -1
    kept: list[Any] = []
    for part in nested:
        # Compared by differences, which may be found where ranges overlap.
        if any(bounds(sign * (part - other))[0] >= 0 for other in kept):
            continue
        kept = [k for k in kept if bounds(sign * (k - part))[0] < 0]
        kept.append(part)
    if len(kept) > 2:
        # One of three may never be the least, though it is less than each for some numbers.
        for part in [k for k in kept if any(_is_extreme(a) for a in atoms_in(k))]:
            others = [k for k in kept if k is not part]
            if bounds(sign * (part - _extreme(name, others)))[0] >= 0:
                return _extreme(name, others)
    if len(kept) == 1:
        return kept[0]
    kept.sort(key=str)
    constant = next(terms_of(k).get((), 0) for k in kept if isinstance(k, Extent))
    return _as_known(Extreme(name, tuple(k - constant for k in kept))) + constant


def _is_extreme(atom: Atom) -> bool:
    return isinstance(atom, Extreme)


def _choices(name: str, part: Dimension) -> list[Dimension]:
    """The parts of an extent that is itself one of several, and a number more."""
    constant = terms_of(part).get((), 0)
    for atom in lone_atom(part - constant):
        if isinstance(atom, Extreme) and atom.name == name:
            return [inner + constant for inner in atom.parts]
    return [part]


# ---- Differences that should be zero ----


def without_quotients(extent: Dimension) -> Dimension:
    """An extent without exact quotients of which it has as many as their divisors are."""
    for atom in {*atoms_in(extent)}:
        if isinstance(atom, Quotient) and atom.is_exact and isinstance(extent, Extent):
            terms = extent.terms.items()
            whole = sum_of((a, n) for a, n in terms if atom not in a)
            times = sum_of(
                ((*a[: (i := a.index(atom))], *a[i + 1 :]), n)
                for a, n in terms
                if atom in a
            )
            count = times // atom.by if atom not in atoms_in(times) else times
            if count * atom.by == times:
                extent = whole + count * atom.whole
    return extent


def without_common(extent: Dimension) -> Dimension:
    """An extent without the factors of all of its terms, none of which is ever zero."""
    (left,) = _without_shared(extent)
    if not isinstance(left, Extent):
        return left  # type: ignore[no-any-return]
    simplest: Dimension = exact_quotient(left, gcd(*left.terms.values()))
    return simplest
