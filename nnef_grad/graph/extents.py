"""Extents with symbols, such as the B of a batch of any size.

    Extent ::= a sum of products of atoms, with integer factors
    Atom   ::= symbol | floor(Extent / Extent) | min(Extent, ...) | max(Extent, ...)

An extent without atoms is an integer of Python. A symbol stands for every number in its
range, and what holds of an extent here holds for all of them:

- Extents that are equal as they are written are equal: they have one form, in which what is
  whole of a quotient stands outside of it, and a quotient of a quotient is one. `B == 1` is
  false: an axis of extent B is not dropped, summed in one step or broadcast, and where B is
  1 after all, what is done to it is right too.
- They are compared where the answer is the same for all numbers. Where it is not, or where a
  number is needed, `OpenExtentError` is raised. A comparison that a network depends on can be
  learned instead: facts.py.

So a graph that was made for an extent computes the same as the one for any of its numbers,
and what asks for shapes needs not know of symbols.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from numbers import Integral, Real
from typing import Any, NoReturn, Union

from nnef_grad.base.errors import InvalidGraphError
from nnef_grad.base.frozen import FrozenDict, frozen
from nnef_grad.base.source import Span
from nnef_grad.graph.atoms import (
    Atom,
    Extreme,
    Interned,
    Product,
    Quotient,
    Symbol,
    enclosed,
    in_order,
    parts_of,
    text_of,
)


class OpenExtentError(InvalidGraphError):
    """The number of an extent with symbols is needed."""

    # Whether the message names the operation that needs it, in the document.
    is_named = False

    def __init__(self, need: str, span: Span | None = None) -> None:
        super().__init__(need, span, remedy="symbol")

    def of(self, operation: str, span: Span | None) -> OpenExtentError:
        """The error of an operation that needs the number, at its place."""
        if self.is_named:
            return self
        named = OpenExtentError(f"{operation}: {self.message}", span)
        named.is_named = span is not None
        return named


def _of_numbers(method: Callable[[Extent, Any], Any]) -> Callable[[Extent, Any], Any]:
    """Arithmetic with extents and integers; with a fraction it needs the number."""

    def checked(self: Extent, other: object) -> Any:
        if isinstance(other, (Integral, Extent)):
            return method(self, other)
        return self._number() if isinstance(other, Real) else NotImplemented

    return checked


@frozen(slots=False, eq=False)
class Extent(Interned):
    """A sum of products of atoms that is no number: see the module."""

    # The factor of each product of atoms, none of which is zero.
    terms: FrozenDict[Product, int]

    # Numbers of numpy leave the arithmetic to this class.
    __array_ufunc__ = None

    @cached_property
    def _hash(self) -> int:
        return hash(frozenset(self.terms.items()))

    def at(self, numbers: Mapping[str, int]) -> Dimension:
        """The extent with numbers in the place of some of its symbols."""
        from nnef_grad.graph.quotients import extent_at

        return extent_at(self, numbers)

    # ---- Arithmetic ----

    @_of_numbers
    def __add__(self, other: Any) -> Any:
        return sum_of([*self.terms.items(), *terms_of(other).items()])

    def __neg__(self) -> Any:
        return sum_of((atoms, -factor) for atoms, factor in self.terms.items())

    @_of_numbers
    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __rsub__(self, other: object) -> Any:
        return -self + other

    @_of_numbers
    def __mul__(self, other: Any) -> Any:
        return sum_of(
            chain.from_iterable(
                product_of(mine + theirs, factor * times)
                for mine, factor in self.terms.items()
                for theirs, times in terms_of(other).items()
            )
        )

    __radd__, __rmul__ = __add__, __mul__

    @_of_numbers
    def __floordiv__(self, other: Any) -> Any:
        return _quotient(self, _plain(other))

    @_of_numbers
    def __rfloordiv__(self, other: Any) -> Any:
        return _quotient(_plain(other), self)

    def __mod__(self, other: Any) -> Any:
        return self - self // other * other

    def __rmod__(self, other: Any) -> Any:
        return other - other // self * self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    # ---- Comparisons ----

    @_of_numbers
    def __lt__(self, other: Any) -> Any:
        return _is_less(self, other, f"{self} is less than {other}")

    @_of_numbers
    def __gt__(self, other: Any) -> Any:
        return _is_less(other, self, f"{self} is greater than {other}")

    def __ge__(self, other: object) -> Any:
        return not self < other

    def __le__(self, other: object) -> Any:
        return not self > other

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest number that it can be, as far as is found."""
        from nnef_grad.graph.bounds import bounds_of

        return bounds_of(self)

    def __bool__(self) -> bool:
        least, most = self.bounds
        if least > 0 or most < 0 or least == most == 0:
            return least != 0
        raise OpenExtentError(f"whether {self} is zero is not known")

    # ---- Numbers ----

    def _number(self, *_: object) -> NoReturn:
        raise OpenExtentError(f"the extent {self} has no number")

    __index__ = __int__ = __float__ = __trunc__ = _number
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = _number

    # ---- Text ----

    @cached_property
    def text(self) -> str:
        """As in a document of tract's dialect: 2*S + 1, (S + 1)/2, min(S, 5)."""
        # What is subtracted comes after something.
        first, *others = sorted(sorted_terms(_in_symbols(self)), key=lambda t: t[1] < 0)
        return _term(*first) + "".join(
            f" {'+' if factor > 0 else '-'} {_term(atoms, abs(factor))}"
            for atoms, factor in others
        )

    @cached_property
    def _told(self) -> str:
        # A mark for each symbol, so that it is clear whose it is.
        marks = {s.name: s.mark for s in symbols_in(self)}
        quotients = [a for a in atoms_in(self) if isinstance(a, Quotient)]
        texts = sorted({a.text for a in quotients})
        exact = sorted({texts.index(a.text) for a in quotients if a.is_exact})
        told = [*(marks[name] for name in sorted(marks)), "#".join(map(str, exact))]
        words = "".join(f"{{{mark or '#'}}}" for mark in told)
        return self.text + (words if any(told) else "")

    def __repr__(self) -> str:
        """The text, with what is known of its symbols: other symbols of the same name give
        another text.
        """
        return self._told


Dimension = Union[int, Extent]


def as_number(extent: Dimension) -> int:
    """An extent that is known; with a symbol it raises `OpenExtentError`."""
    return operator.index(extent)


def as_numbers(extents: Iterable[Dimension]) -> tuple[int, ...]:
    """Extents that are all known; with a symbol they raise `OpenExtentError`."""
    return tuple(map(operator.index, extents))


# These need what computes with extents.


def _quotient(whole: Dimension, by: Dimension) -> Any:
    from nnef_grad.graph.quotients import quotient

    return quotient(whole, by)


def _is_less(one: Dimension, other: Dimension, words: str) -> bool:
    from nnef_grad.graph.bounds import is_less

    return is_less(one, other, words)


def symbol(name: str, least: int = 1) -> Any:
    """The extent that is a symbol."""
    return extent_of(Symbol(name, least))


def extent_of(symbol: Symbol) -> Any:
    """The extent that is a symbol, of its numbers."""
    return symbol.step * lone(symbol) + symbol.rest


# ---- Parts ----


def has_symbols(value: object) -> bool:
    """Whether an extent has symbols, or one in a tuple."""
    if isinstance(value, tuple):
        return any(map(has_symbols, value))
    return isinstance(value, Extent)


def symbols_of(value: object) -> list[str]:
    """The names of the symbols in an extent, or in extents in tuples, sorted."""
    return sorted({symbol.name for symbol in symbols_in(value)})


def symbols_in(value: object) -> Iterator[Symbol]:
    """The symbols in an extent, or in extents in tuples."""
    if isinstance(value, tuple):
        for item in value:
            yield from symbols_in(item)
    elif isinstance(value, Extent):
        for atom in chain.from_iterable(value.terms):
            if isinstance(atom, Symbol):
                yield atom
            else:
                yield from symbols_in(parts_of(atom))


def atoms_in(value: object) -> Iterator[Atom]:
    """The atoms in an extent, those in others first."""
    if isinstance(value, tuple):
        for item in value:
            yield from atoms_in(item)
    elif isinstance(value, Extent):
        for atom in chain.from_iterable(value.terms):
            yield from atoms_in(parts_of(atom))
            yield atom


def lone(atom: Atom) -> Any:
    """The extent that is an atom alone."""
    return Extent(FrozenDict({(atom,): 1}))


def lone_atom(extent: Dimension) -> Iterator[Atom]:
    """The atom that an extent is alone, if it is one."""
    terms = extent.terms if isinstance(extent, Extent) else {}
    if [*terms.values()] == [1]:
        (atoms,) = terms
        if len(atoms) == 1:
            yield atoms[0]


def multiple(extent: Dimension) -> Iterator[tuple[Symbol, int, int]]:
    """The symbol of which an extent is a multiple and a number more, if it is: this symbol,
    the factor of what counts its numbers, and the number more.
    """
    terms = extent.terms if isinstance(extent, Extent) else {}
    (atoms, factor), *others = sorted(terms.items(), key=lambda t: -len(t[0])) or [
        ((), 0)
    ]
    rest = [f for names, f in others if not names]
    if len(atoms) == 1 and isinstance(atoms[0], Symbol) and len(others) == len(rest):
        yield atoms[0], factor, sum(rest)


def renamed(extent: Dimension, symbols: Mapping[str, Symbol]) -> Any:
    """The extent of other symbols of the same names, as it is written."""
    if not isinstance(extent, Extent):
        return extent

    def other(atom: Atom) -> Atom:
        if isinstance(atom, Symbol):
            return symbols[atom.name]
        parts = tuple(renamed(part, symbols) for part in parts_of(atom))
        if isinstance(atom, Extreme):
            return Extreme(atom.name, parts)
        whole, by = parts
        return Quotient(whole, by, atom.is_exact)

    terms = extent.terms.items()
    return Extent(FrozenDict({tuple(map(other, atoms)): n for atoms, n in terms}))


# ---- What is known ----


def bounds(extent: Dimension) -> tuple[int, int]:
    """The least and the greatest number that an extent can be, as far as is found."""
    return extent.bounds if isinstance(extent, Extent) else (int(extent), int(extent))


def may_exceed(extent: Dimension, bound: Dimension) -> bool:
    """Whether an extent is greater than a bound for some numbers, as far as is known."""
    _, most = bounds(extent - bound)
    return most > 0


# ---- Sums and products ----


def _plain(number: Any) -> Dimension:
    return number if isinstance(number, Extent) else int(number)


def terms_of(value: Any) -> Mapping[Product, int]:
    """The factor of each product, also of a number."""
    return value.terms if isinstance(value, Extent) else {(): int(value)}


def sum_of(terms: Iterable[tuple[Product, int]]) -> Dimension:
    """An extent, or the number that is left where atoms cancel."""
    total = Counter[Product]()
    for atoms, factor in terms:
        total[atoms] += factor
    for twins in [a for a in total if total[a] and _are_greatest_of_two(a)]:
        atom: Any = twins[0]
        others = (Extreme("min", atom.parts),)
        if total[twins] == total.get(others):
            # The least and the greatest of two are the two.
            factor = total.pop(twins)
            del total[others]
            both = [item for part in atom.parts for item in terms_of(part).items()]
            return sum_of([*total.items(), *((a, factor * n) for a, n in both)])
    left = {atoms: factor for atoms, factor in total.items() if factor}
    if left.keys() <= {()}:
        return left.get((), 0)
    joined = next(_joined_halves(left), None)
    return Extent(FrozenDict(left)) if joined is None else joined


# The divisors of quotients that are joined in pairs.
_EVEN = range(2, 65, 2)


def _joined_halves(terms: Mapping[Product, int]) -> Iterator[Any]:
    """The sum with x/2 in the place of x/4 + (x + 2)/4, or with x in that of x/2 + (x + 1)/2,
    if it has both.
    """
    for atoms, factor in terms.items():
        for index, atom in enumerate(atoms):
            if not isinstance(atom, Quotient) or atom.is_exact or atom.by not in _EVEN:
                continue
            half = atom.by // 2
            others = atoms[:index] + atoms[index + 1 :]
            partner = in_order((*others, Quotient(atom.whole + half, atom.by)))
            times = terms.get(partner, 0)
            if times * factor > 0:
                both = min(factor, times, key=abs)
                rest = {**terms, atoms: factor - both, partner: times - both}
                whole = _quotient(atom.whole, half)
                yield sum_of(rest.items()) + sum_of([(others, both)]) * whole


def _are_greatest_of_two(atoms: Product) -> bool:
    atom = atoms[0] if len(atoms) == 1 else None
    return isinstance(atom, Extreme) and atom.name == "max" and len(atom.parts) == 2


def product_of(atoms: Product, factor: int) -> Iterable[tuple[Product, int]]:
    """The terms of a product: an exact quotient goes where its divisor is a factor."""
    for index, atom in enumerate(atoms):
        if isinstance(atom, Quotient) and atom.is_exact:
            (divisor, by), *more = terms_of(atom.by).items()
            if more:
                continue
            others = Counter(atoms[:index] + atoms[index + 1 :])
            if factor % by == 0 and Counter(divisor) <= others:
                others.subtract(divisor)
                rest = sum_of([(in_order(others.elements()), factor // by)])
                return terms_of(rest * atom.whole).items()
    return [(in_order(atoms), factor)]


def sorted_terms(extent: Dimension) -> list[tuple[Product, int]]:
    """The terms from the highest degree to the number."""
    terms = terms_of(extent).items()
    return sorted(terms, key=lambda term: (-len(term[0]), [*map(text_of, term[0])]))


# ---- Text ----


_MARK = re.compile(r"\{[\d#]+\}")


def unmarked(message: str) -> str:
    """A message, without what tells symbols of one name apart."""
    return _MARK.sub("", message)


def _in_symbols(extent: Extent) -> Dimension:
    """The extent in the symbols themselves, where it has whole multiples of these."""
    for atoms, factor in extent.terms.items():
        for atom in atoms if len(atoms) == 1 else ():
            if isinstance(atom, Symbol) and atom.step > 1 and factor % atom.step == 0:
                whole = lone(Symbol(atom.name)) - atom.rest
                changed = extent - factor * lone(atom) + factor // atom.step * whole
                return _in_symbols(changed) if isinstance(changed, Extent) else changed
    return extent


def _term(atoms: Product, factor: int) -> str:
    number = [] if factor in (1, -1) and atoms else [str(abs(factor))]
    words = [*map(str, atoms)]
    if number or len(words) > 1 or factor < 0:
        words = [enclosed(enclosed(word, " "), "/") for word in words]
    return ("-" if factor < 0 else "") + "*".join([*number, *words])
