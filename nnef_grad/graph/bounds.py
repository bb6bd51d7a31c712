"""The numbers that an extent can be: bounds, and examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import chain, product
from math import lcm, prod
from typing import Any

from nnef_grad.base.errors import InvalidGraphError
from nnef_grad.graph.atoms import (
    Atom,
    Extreme,
    Known,
    Product,
    Quotient,
    Symbol,
    parts_of,
)
from nnef_grad.graph.extents import (
    Dimension,
    Extent,
    OpenExtentError,
    atoms_in,
    bounds,
    lone,
    symbols_in,
    symbols_of,
)
from nnef_grad.graph.quotients import number_at, replaced, with_atom


def is_not_negative(extent: Dimension, further: Iterable[Extent] = ()) -> bool:
    """Whether an extent is known to be zero or more, from its symbols and further ones that
    are not negative.
    """
    if bounds(extent)[0] >= 0:
        return True
    known = {x for s in symbols_in(extent) for x in s.known.not_negative}
    return any(bounds(extent - x)[0] >= 0 for x in chain(known, further))


def is_less(one: Any, other: Any, words: str) -> bool:
    """Whether an extent is less than another one; `words` say so in an error."""
    difference = one - other
    least, most = bounds(difference)
    if least >= 0 or most < 0:
        return most < 0
    if is_not_negative(difference):
        return False
    raise OpenExtentError(f"whether {words} is not known")


# ---- Bounds ----


# How many cases are told apart to compare extents.
_MOST_CASES = 1024


@lru_cache(maxsize=4096)
def bounds_of(extent: Extent) -> tuple[int, int]:
    """The least and the greatest number that an extent can be, as far as is found."""
    least, most = _interval(extent)
    if least >= 0 or most < 0:
        return least, most
    for own in _of_sums(extent):
        inner = bounds(own)
        least, most = max(least, inner[0]), min(most, inner[1])
    if least >= 0 or most < 0:
        return least, most
    for cases in (_bounds_of_parts, _bounds_of_rests):
        # In a case a divisor may be zero, which nothing is known of then.
        with suppress(OpenExtentError):
            found = [*cases(extent)] or [(least, most)]
            least = max(least, min(a for a, _ in found))
            most = min(most, max(b for _, b in found))
        if least > 0 or most < 0 or least == most:
            break
    return least, most


def _of_sums(extent: Extent) -> Iterator[Dimension]:
    """An extent of a sum of symbols that is known to be at least a number, in its place."""
    known = {x for s in symbols_in(extent) for x in s.known.not_negative}
    for excess in known:
        constant = excess.terms.get((), 0)
        total = excess - constant
        first = next((a[0] for a, n in excess.terms.items() if len(a) == n == 1), None)
        if isinstance(first, Symbol):
            whole = lone(Symbol("", least=-constant))
            others = total - lone(first)
            own = with_atom(extent, first, whole - others)
            if len({*symbols_in(own)}) < len({*symbols_in(extent)}):
                yield own


def _interval(extent: Extent) -> tuple[int, int]:
    """Bounds of an extent whose atoms are taken for independent of each other."""
    least = most = 0
    # A polynomial of what atoms are above their least.
    above = Counter[Product]()
    ranges = {atom: range_of(atom) for atom in chain.from_iterable(extent.terms)}
    for atoms, factor in extent.terms.items():
        for chosen in product((False, True), repeat=len(atoms)):
            pairs = list(zip(atoms, chosen, strict=True))
            rest = prod(ranges[atom][0] for atom, is_above in pairs if not is_above)
            above[tuple(a for a, is_above in pairs if is_above)] += factor * rest
    for atoms, factor in above.items():
        widest = prod(ranges[atom][1] - ranges[atom][0] for atom in atoms)
        least += factor * (widest if factor < 0 and atoms else not atoms)
        most += factor * (widest if factor > 0 and atoms else not atoms)
    return least, most


def range_of(atom: Atom) -> tuple[int, int]:
    """The least and the greatest number that an atom can be."""
    if isinstance(atom, Symbol):
        return atom.range
    if isinstance(atom, Extreme):
        function = min if atom.name == "min" else max
        ranges = [bounds(part) for part in atom.parts]
        return function(least for least, _ in ranges), function(m for _, m in ranges)
    (least, most), (smallest, largest) = bounds(atom.whole), bounds(atom.by)
    smallest = max(smallest, 1)
    first = least // (largest if least > 0 else smallest)
    # What makes a positive number, times a positive one, is positive.
    first = max(first, 1) if atom.is_exact and least > 0 else first
    return first, most // (smallest if most > 0 else largest)


def _bounds_of_parts(extent: Extent) -> Iterator[tuple[int, int]]:
    """Bounds in the cases of which one of several is the least, or the greatest."""
    extreme = next((a for a in atoms_in(extent) if isinstance(a, Extreme)), None)
    for part in extreme.parts if extreme is not None else ():
        yield _bounds_where(extent, extreme, part)  # type: ignore[arg-type]


def _bounds_of_rests(extent: Extent) -> Iterator[tuple[int, int]]:
    """Bounds in the cases of all rests of symbols whose quotients there are."""
    splits = divisors(extent)
    names = {s.name for s in splits}
    zeros = [
        z for s in splits for z in s.known.zeros if names.issuperset(symbols_of(z))
    ]
    needed = [{s.name: n for s, n in divisors(z).items()} for z in zeros]
    splits = {
        s: lcm(n, *(more.get(s.name, 1) for more in needed)) for s, n in splits.items()
    }
    if not splits or prod(splits.values()) > _MOST_CASES:
        return
    for case in product(*([*residues(s, n)] for s, n in splits.items())):
        classes = {s.name: number for s, number in zip(splits, case, strict=True)}
        own, *others = (_in_class(x, classes) for x in (extent, *zeros))
        if all(least <= 0 <= most for least, most in others):
            yield own


def _in_class(extent: Dimension, classes: Mapping[str, Any]) -> tuple[int, int]:
    """Bounds of an extent for numbers of symbols that leave a rest."""

    def number(atom: Atom) -> Dimension | None:
        return classes.get(atom.name) if isinstance(atom, Symbol) else None

    own = replaced(extent, number)
    return _interval(own) if isinstance(own, Extent) else (int(own), int(own))


def _bounds_where(extent: Extent, extreme: Extreme, part: Dimension) -> tuple[int, int]:
    """Bounds where a part is the least or greatest: what it differs by is not negative."""
    own = with_atom(extent, extreme, part)
    least, most = bounds(own)
    sign = 1 if extreme.name == "min" else -1
    for other in extreme.parts:
        if other != part:
            excess = sign * (other - part)
            least = max(least, bounds(own - excess)[0])
            most = min(most, bounds(own + excess)[1])
    return least, most


def divisors(extent: Dimension) -> dict[Symbol, int]:
    """The symbols in quotients by numbers, and for each a number by whose multiples all of
    these can be divided.
    """
    found: dict[Symbol, int] = {}
    if isinstance(extent, Extent):
        for atom in chain.from_iterable(extent.terms):
            own = {s: n for part in parts_of(atom) for s, n in divisors(part).items()}
            if isinstance(atom, Quotient) and not isinstance(atom.by, Extent):
                inner = dict.fromkeys(symbols_in(atom.whole), 1) | own
                own = {s: n * atom.by for s, n in inner.items()}
            for s, n in own.items():
                found[s] = lcm(found.get(s, 1), n)
    return found


def residues(symbol: Symbol, divisor: int) -> Iterator[Any]:
    """The numbers of a symbol that leave the same rest, for each rest."""
    step = symbol.step * divisor
    for rest in range(divisor):
        own = replace(symbol, step=step, rest=symbol.step * rest + symbol.rest)
        yield divisor * lone(own) + rest


# ---- Examples ----


# A usual batch, where costs are compared.
_BATCH = 8
# An extent to begin with: of a batch, and of anything else.
_SINGLE, _SMALL = 1, 64
# Numbers that are tried for a symbol, one by one, and for several together.
_TRIED, _TOGETHER = 256, 4096


def nominal(extent: Dimension) -> int:
    """A number for an extent whose cost is estimated: no result may depend on it. Quotients
    of several symbols may have a rest at their numbers.
    """
    if not isinstance(extent, Extent):
        return extent
    wanted = {s: _BATCH if _says_batch(s) else _SMALL for s in symbols_in(extent)}
    numbers = {s.name: near(s, n) for s, n in wanted.items()}

    def number(atom: Atom) -> Dimension | None:
        if isinstance(atom, Quotient) and atom.is_exact:
            return nominal(atom.whole) // nominal(atom.by)
        return number_at(atom, numbers)

    found = replaced(extent, number)
    assert isinstance(found, int)
    return found


def examples(
    extents: Iterable[object], batches: Collection[str] = ()
) -> dict[str, int]:
    """A number for each symbol in some extents, by name; some are those of a batch."""

    def wanted(s: Symbol) -> int:
        return _SINGLE if s.name in batches or _says_batch(s) else _SMALL

    return all_near([s for x in extents for s in symbols_in(x)], wanted, {})


def all_near(
    symbols: Iterable[Symbol],
    wanted: Callable[[Symbol], int],
    given: Mapping[str, int],
) -> dict[str, int]:
    """Numbers of symbols beside those that are given, none of them less than what is wanted,
    if there are such.
    """
    own = [*dict.fromkeys(symbols)]
    numbers = _in_order(own, wanted, given)
    if not any(unmet(s.known, numbers) for s in own):
        return numbers
    together = {name for s in own for z in s.known.zeros for name in symbols_of(z)}
    bound = [s for s in own if s.name in together - {*given}]
    if not bound:
        return numbers
    names, count = [s.name for s in bound], int(_TOGETHER ** (1 / len(bound)))
    rows = product(*(_multiples(s, wanted(s), count) for s in bound))
    # Images of as many rows as columns, for example, if there are such.
    near = sorted(rows, key=lambda row: max(row) - min(row))
    tried = (numbers | dict(zip(names, row, strict=True)) for row in near)
    met = (x for x in tried if not any(unmet(s.known, x) for s in own))
    return next(met, numbers)


def _multiples(symbol: Symbol, wanted: int, count: int) -> list[int]:
    """Numbers of a symbol, from a wanted one on and before it, by what it is divided by."""
    first, last = symbol.range
    found = [
        n
        for zero in symbol.known.zeros
        for own, n in divisors(zero).items()
        if own.name == symbol.name
    ]
    step = lcm(*found)
    least = -(-first // step) * step
    begin = max(-((symbol.rest - wanted) // symbol.step) // step * step, least)
    numbers = chain(
        range(begin, last + 1, step)[:count], range(begin, least - 1, -step)[1:count]
    )
    return [n * symbol.step + symbol.rest for n in numbers]


def _in_order(
    symbols: Iterable[Symbol],
    wanted: Callable[[Symbol], int],
    given: Mapping[str, int],
) -> dict[str, int]:
    """A number for each symbol, which those before it allow."""
    numbers = {**given}
    for s in symbols:
        if s.name not in given:
            numbers[s.name] = _near(s, wanted(s), numbers)
    return numbers


def _says_batch(symbol: Symbol) -> bool:
    return symbol.name.lower().split("_")[0] in ("batch", "n", "b")


@lru_cache(maxsize=1024)
def near(symbol: Symbol, wanted: int) -> int:
    """The number of a symbol that is not less than another one, if there is one."""
    return _near(symbol, wanted, {})


def _near(symbol: Symbol, wanted: int, others: Mapping[str, int]) -> int:
    """The same, beside the numbers of other symbols."""
    tried = _numbers(symbol, wanted)
    fitting = (n for n in tried if not unmet(symbol.known, {**others, symbol.name: n}))
    return next(fitting, next(_numbers(symbol, wanted)))


def _numbers(symbol: Symbol, wanted: int) -> Iterator[int]:
    """Those of a symbol from a wanted one on, and those before it."""
    first, last = symbol.range
    number = min(max(first, -((symbol.rest - wanted) // symbol.step)), last)
    tried = chain(range(number, number + _TRIED), range(first, number))
    return (n * symbol.step + symbol.rest for n in tried)


def unmet(known: Known, numbers: Mapping[str, int]) -> str:
    """What a network needs and numbers of its symbols do not give, in words; empty if that is
    nothing, as far as they are all the symbols in it.
    """
    try:
        for zero in known.zeros:
            value = zero.at(numbers)
            if not isinstance(value, Extent) and value != 0:
                return f"{zero} must be 0, and is {value}"
        for extent in known.not_negative:
            value = extent.at(numbers)
            if not isinstance(value, Extent) and value < 0:
                return f"{extent} must not be negative, and is {value}"
    except InvalidGraphError as error:
        return str(error)
    return ""
