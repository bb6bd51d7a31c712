"""Extents with symbols, such as the B of a batch of any size.

An extent is an integer, or a polynomial of symbols with integer coefficients. A symbol
stands for any integer from 1 on. What holds of an extent here holds for all of them:

- Two extents are equal if they are the same polynomial. `B == 1` is false: an axis of
  extent B is not dropped, summed in one step or broadcast, and where B is 1 after all,
  what is done to it is right too.
- They are compared, and divided, where the answer is the same for all numbers.
- Where it is not, or where a number is needed, `OpenExtentError` is raised.

So a graph that was made for an extent computes the same as the one for any of its numbers,
and what asks for shapes needs not know of symbols.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from math import inf, prod
from numbers import Integral, Real
from typing import Any, NoReturn, Union

from nnef_grad.base.errors import InvalidGraphError
from nnef_grad.base.frozen import FrozenDict, frozen
from nnef_grad.base.source import Span

# The symbols of a product, sorted; one that is there twice is a square. A number has none.
Symbols = tuple[str, ...]


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


@frozen()
class Extent:
    """A polynomial of symbols that is no number: see the module."""

    # The coefficient of each product of symbols, none of which is zero.
    terms: FrozenDict[Symbols, int]

    # Numbers of numpy leave the arithmetic to this class.
    __array_ufunc__ = None

    def at(self, numbers: Mapping[str, int]) -> Dimension:
        """The extent with numbers in the place of some of its symbols."""
        return _sum(
            (
                tuple(name for name in symbols if name not in numbers),
                factor * prod(numbers[name] for name in symbols if name in numbers),
            )
            for symbols, factor in self.terms.items()
        )

    # ---- Arithmetic ----

    @_of_numbers
    def __add__(self, other: Any) -> Any:
        return _sum([*self.terms.items(), *_terms(other).items()])

    def __neg__(self) -> Any:
        return _sum((symbols, -factor) for symbols, factor in self.terms.items())

    @_of_numbers
    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __rsub__(self, other: object) -> Any:
        return -self + other

    @_of_numbers
    def __mul__(self, other: Any) -> Any:
        return _sum(
            (tuple(sorted(mine + theirs)), factor * times)
            for mine, factor in self.terms.items()
            for theirs, times in _terms(other).items()
        )

    __radd__, __rmul__ = __add__, __mul__

    @_of_numbers
    def __divmod__(self, other: Any) -> Any:
        return _divided(self, other)

    @_of_numbers
    def __rdivmod__(self, other: Any) -> Any:
        return _divided(other, self)

    def __floordiv__(self, other: object) -> Any:
        return divmod(self, other)[0]

    def __rfloordiv__(self, other: object) -> Any:
        return divmod(other, self)[0]

    def __mod__(self, other: object) -> Any:
        return divmod(self, other)[1]

    def __rmod__(self, other: object) -> Any:
        return divmod(other, self)[1]

    # ---- Comparisons ----

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extent) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

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

    def __bool__(self) -> bool:
        least, most = _bounds(self)
        if least > 0 or most < 0:
            return True
        raise OpenExtentError(f"whether {self} is zero is not known")

    # ---- Numbers ----

    def _number(self, *_: object) -> NoReturn:
        raise OpenExtentError(f"the extent {self} has no number")

    __index__ = __int__ = __float__ = __trunc__ = _number
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = _number

    # ---- Text ----

    def __str__(self) -> str:
        """As in a document of tract's dialect: 2*S + 1."""
        first, *others = _sorted_terms(self)
        return _term(*first) + "".join(
            f" {'+' if factor > 0 else '-'} {_term(symbols, abs(factor))}"
            for symbols, factor in others
        )

    __repr__ = __str__


Dimension = Union[int, Extent]


def symbol(name: str) -> Extent:
    """The extent that is a symbol."""
    return Extent(FrozenDict({(name,): 1}))


def has_symbols(value: object) -> bool:
    """Whether an extent has symbols, or one in a tuple."""
    if isinstance(value, tuple):
        return any(map(has_symbols, value))
    return isinstance(value, Extent)


def symbols_of(value: object) -> list[str]:
    """The names of the symbols in an extent, or in extents in tuples, sorted."""
    parts: Iterable[Iterable[str]] = ()
    if isinstance(value, Extent):
        parts = value.terms
    elif isinstance(value, tuple):
        parts = map(symbols_of, value)
    return sorted({*chain.from_iterable(parts)})


def may_exceed(extent: Dimension, bound: Dimension) -> bool:
    """Whether an extent is greater than a bound for some numbers, as far as is known."""
    _, most = _bounds(extent - bound)
    return most > 0


def at_least(extent: Dimension, bound: Dimension) -> Any:
    """The larger one of two, if it is the same one for all numbers, unlike `max`."""
    least, most = _bounds(extent - bound)
    if least >= 0 or most <= 0:
        return extent if least >= 0 else bound
    raise OpenExtentError(f"whether {extent} is less than {bound} is not known")


# A usual extent of a batch, where numbers must only be compared.
_NOMINAL = 8


def nominal(extent: Dimension) -> int:
    """A number for an extent whose cost is estimated: no result may depend on it."""
    if not isinstance(extent, Extent):
        return extent
    number = extent.at(dict.fromkeys(symbols_of(extent), _NOMINAL))
    assert isinstance(number, int)
    return number


def _terms(value: Any) -> Mapping[Symbols, int]:
    return value.terms if isinstance(value, Extent) else {(): int(value)}


def _sum(terms: Iterable[tuple[Symbols, int]]) -> Dimension:
    """An extent, or the number that is left where symbols cancel."""
    total = Counter[Symbols]()
    for symbols, factor in terms:
        total[symbols] += factor
    left = {symbols: factor for symbols, factor in total.items() if factor}
    return left.get((), 0) if left.keys() <= {()} else Extent(FrozenDict(left))


def _divided(whole: Any, by: Any) -> tuple[Dimension, Dimension]:
    """The quotient, rounded down, and the rest, if they are polynomials."""
    quotient: Dimension = 0
    rest = whole
    leading, *_ = _sorted_terms(by)
    while parts := [part for t in _sorted_terms(rest) if (part := _over(t, leading))]:
        (part, *_) = parts
        quotient, rest = quotient + part, rest - part * by
    if rest == 0 or (_bounds(rest)[0] >= 0 and _bounds(rest - by)[1] < 0):
        return quotient, rest
    raise OpenExtentError(f"the quotient of {whole} by {by} is not known")


def _over(term: tuple[Symbols, int], divisor: tuple[Symbols, int]) -> Dimension:
    """The quotient of a term by another one; 0 if it is none."""
    (symbols, factor), (others, by) = term, divisor
    left = Counter(symbols)
    left.subtract(others)
    if min(left.values(), default=0) < 0 or (symbols and factor % by):
        return 0
    return _sum([(tuple(sorted(left.elements())), factor // by)])


def _is_less(one: Any, other: Any, words: str) -> bool:
    least, most = _bounds(one - other)
    if least >= 0 or most < 0:
        return most < 0
    raise OpenExtentError(f"whether {words} is not known")


def _bounds(extent: Dimension) -> tuple[float, float]:
    """The least and the greatest number that an extent can be, as far as is found."""
    # Of a polynomial of what symbols are above 1, each of which may be zero.
    above = _terms(
        sum(f * prod(symbol(n) + 1 for n in s) for s, f in _terms(extent).items())
    )
    constant = above.get((), 0)
    factors = [factor for symbols, factor in above.items() if symbols]
    least = constant if all(factor > 0 for factor in factors) else -inf
    most = constant if all(factor < 0 for factor in factors) else inf
    return least, most


def _sorted_terms(extent: Dimension) -> list[tuple[Symbols, int]]:
    """The terms from the highest degree to the number."""
    return sorted(_terms(extent).items(), key=lambda term: (-len(term[0]), term[0]))


def _term(symbols: Symbols, factor: int) -> str:
    words = [*([] if factor in (1, -1) and symbols else [str(abs(factor))]), *symbols]
    return ("-" if factor < 0 else "") + "*".join(words)
