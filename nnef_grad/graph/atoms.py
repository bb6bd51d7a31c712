"""The atoms of extents with symbols (extents.py): symbols, quotients, and the least or
greatest of several extents. Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from functools import cached_property
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Union

from nnef_grad.base.frozen import NOTHING as NONE
from nnef_grad.base.frozen import frozen
from nnef_grad.language.identifiers import spelled

if TYPE_CHECKING:
    from nnef_grad.graph.extents import Dimension, Extent

# No axis is longer: what slices "to the end" writes a number from here on.
LONGEST_AXIS = 10**9


class Interned:
    """Values that are compared often, and are parts of keys: the hash and the text are kept."""

    @cached_property
    def _fields(self) -> tuple[Any, ...]:
        data: Any = self
        return tuple(getattr(self, x.name) for x in fields(data))

    @cached_property
    def _hash(self) -> int:
        return hash(self._fields)

    @cached_property
    def text(self) -> str:
        """The text, as in a document of tract's dialect: 2*S + 1, (S + 1)/2, min(S, 5)."""
        raise NotImplementedError

    def __eq__(self, other: Any) -> bool:
        if self is other:
            return True
        is_like = type(self) is type(other) and self._hash == other._hash
        return is_like and self._fields == other._fields

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self.text


_serials = count()


@frozen(slots=False, eq=False)
class Known:
    """Facts about the expressions of a network, beside the ranges of its symbols.

    Attributes:
        values: what quotients and extremes are otherwise, by their texts.
        exact: the texts of quotients that have no rest.
        not_negative: extents that are none of them negative.
        zeros: differences that are zero, of symbols of which nothing besides is known.
    """

    values: Mapping[str, Dimension]
    exact: Mapping[str, None]
    not_negative: Mapping[Extent, None]
    zeros: Mapping[Extent, None]
    serial: int = field(init=False)

    def __post_init__(self) -> None:
        draft: Any = self
        draft.serial = next(_serials)

    def __reduce__(self) -> Any:
        """What is known refers to symbols, which refer to it."""
        if self is NOTHING:
            return "NOTHING"
        empty = (NONE,) * 4
        return (
            Known,
            empty,
            tuple(getattr(self, x.name) for x in fields(self) if x.init),
        )

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for x, value in zip([x for x in fields(self) if x.init], state, strict=True):
            object.__setattr__(self, x.name, value)


NOTHING = Known(NONE, NONE, NONE, NONE)


@frozen(slots=False, eq=False)
class Symbol(Interned):
    """The numbers n with step * n + rest = the symbol, which is between least and most."""

    name: str
    least: int = 1
    most: int = LONGEST_AXIS - 1
    step: int = 1
    rest: int = 0
    # What is known besides, of expressions with the symbol; by identity.
    known: Known = NOTHING

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest of the numbers."""
        first = -((self.rest - self.least) // self.step)
        return first, (self.most - self.rest) // self.step

    @cached_property
    def mark(self) -> str:
        """Another text for each range, and for what is known; empty for any number."""
        plain = (self.name, 1, LONGEST_AXIS - 1, 1, 0, NOTHING)
        is_any = self._fields == plain
        return (
            ""
            if is_any
            else "#".join(map(str, (*self._fields[1:-1], self.known.serial)))
        )

    @cached_property
    def text(self) -> str:
        """The symbol, or of a part of its numbers what counts them: H/2, (H - 1)/2."""
        name = spelled(self.name)
        if self.step == 1:
            return name
        shifted = f"{name} - {self.rest}"
        return f"{f'({shifted})' if self.rest else name}/{self.step}"


@frozen(slots=False, eq=False)
class Quotient(Interned):
    """A quotient, rounded down; or one that has no rest, as the network depends on that."""

    whole: Dimension
    by: Dimension
    is_exact: bool = False

    @cached_property
    def text(self) -> str:
        """As it is divided in a document: integers, rounded down."""
        whole, by = (enclosed(part, " ") for part in (self.whole, self.by))
        return f"{whole}/{enclosed(enclosed(by, '*'), '/')}"


@frozen(slots=False, eq=False)
class Extreme(Interned):
    """The least or the greatest one of several extents: `name` is min or max."""

    name: str
    parts: tuple[Dimension, ...]

    @cached_property
    def text(self) -> str:
        """A function of all of them."""
        return f"{self.name}({', '.join(map(str, self.parts))})"


Atom = Union[Symbol, Quotient, Extreme]
# The atoms of a product, sorted; one that is there twice is a square. A number has none.
Product = tuple[Atom, ...]


# ---- Parts and texts ----


def parts_of(atom: Atom) -> tuple[Dimension, ...]:
    """The extents that an atom is made of."""
    if isinstance(atom, Quotient):
        return atom.whole, atom.by
    return atom.parts if isinstance(atom, Extreme) else ()


def meaning_of(symbol: Symbol) -> str:
    """The numbers that a symbol stands for, in words."""
    words = []
    if symbol.step > 1:
        plus = f" and {symbol.rest}" if symbol.rest else ""
        words.append(f"a multiple of {symbol.step}{plus}")
    first, last = symbol.range
    if symbol.least > 1:
        words.append(f"at least {first * symbol.step + symbol.rest}")
    if symbol.most < LONGEST_AXIS - 1:
        words.append(f"at most {last * symbol.step + symbol.rest}")
    return ", ".join(words) or "1 or more"


text_of = attrgetter("text")


def in_order(atoms: Iterable[Atom]) -> Product:
    """A product of atoms, sorted by their texts."""
    return tuple(sorted(atoms, key=text_of))


def enclosed(part: object, mark: str) -> str:
    """A text, in parentheses if it has an operator that must not stand alone."""
    text = str(part)
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == mark and not depth:
            return f"({text})"
    return text
