"""The facts of a network about its symbols, learned while its graph is made.

An operation that is only defined if two extents are equal makes them equal from there on,
and one that is only defined if an extent is large enough gives a symbol a range:

    matmul of [N, D] and [266, 8]                   D is 266
    concat of [A, 8] and [B, 8] along the second    B is A
    a window of 5 along H                           H is at least 5
    H and 2 * (H / 2), joined after two strides     H is a multiple of 2

What they are learned by is learning.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations
from math import prod
from typing import Any

from nnef_grad.base.frozen import FrozenDict, OpenDict
from nnef_grad.graph.atoms import (
    LONGEST_AXIS,
    NOTHING,
    Atom,
    Extreme,
    Known,
    Quotient,
    Symbol,
    meaning_of,
)
from nnef_grad.graph.bounds import divisors, examples, is_not_negative, residues
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
    renamed,
    symbols_in,
)
from nnef_grad.graph.quotients import (
    exact_quotient,
    numbers_as,
    replaced,
    with_atom,
    without_common,
    without_quotients,
)
from nnef_grad.graph.solving import (
    TRIED,
    are_exact,
    as_comparison,
    at_least_so_long,
    first_number,
    long_enough,
    roots_of,
    short_enough,
)

# So many facts are part of a message.
_TOLD = 3
# So many factors of a product are found to have no rest.
_MOST_FACTORS = 3


class Facts:
    """The knowledge about the symbols of a network.

    Attributes:
        place: what is read at present.
        operation: the operation that is made of it.
        count: how much was learned.
    """

    def __init__(self) -> None:
        self.place = self.operation = ""
        self._new = Symbol("")
        # Extents, by their texts, that are taken to be 1, and not to be 1.
        self._ones: set[str] = set()
        self._longer: list[str] = []
        self.count = 0
        # What is broadcast or not, as numbers are; of the last reading.
        self._broadcast: dict[str, str] = {}
        # Each symbol, as it is known; in the order in which they entered.
        self._symbols: dict[str, Any] = {}
        self._causes: dict[str, list[str]] = {}
        # Quotients that have no rest, and extents that are not negative, with their causes.
        self._exact: dict[tuple[Dimension, Dimension], str] = {}
        self._not_negative: dict[Extent, str] = {}
        # Quotients and extremes, as they are known otherwise.
        self._atoms: dict[Atom, tuple[Dimension, str]] = {}

    @property
    def cause(self) -> str:
        """What needs what is learned now."""
        return self.place or f"'{self.operation}'"

    @property
    def has_symbols(self) -> bool:
        """Whether there are any symbols."""
        return bool(self._symbols)

    def symbol(self, name: str, least: int = 1, most: int = LONGEST_AXIS - 1) -> Any:
        """A symbol, as far as it is known."""
        own = replace(self._new, name=name, least=least, most=most)
        return self._symbols.setdefault(name, extent_of(own))

    def apply(self, value: Any) -> Any:
        """An extent, or nested tuples of them, with what is known of its symbols."""
        if isinstance(value, tuple):
            return tuple([self.apply(item) for item in value])
        if not self.count or not isinstance(value, Extent):
            return value
        return replaced(value, self._known)

    def apply_again(self, extent: Dimension) -> Dimension:
        """An extent with what is known of what it is known to be, too."""
        for _ in self._atoms:
            extent = self.apply(extent)
        return extent

    def apply_to_settings(self, settings: Any) -> Any:
        """The attributes of an operation, with what is known of the symbols in them."""
        if not any(map(has_symbols, settings.values())):
            return settings
        return FrozenDict({name: self.apply(x) for name, x in settings.items()})

    def _known(self, atom: Atom) -> Dimension | None:
        if isinstance(atom, Symbol):
            own = self._symbols.get(atom.name)
            if own is None or (atom,) in getattr(own, "terms", ()):
                return None
            number: Dimension = exact_quotient(own - atom.rest, atom.step)
            return number
        if atom in self._atoms:
            return self._atoms[atom][0]
        if isinstance(atom, Quotient) and self._exact and not atom.is_exact:
            whole, by = self.apply(atom.whole), self.apply(atom.by)
            return exact_quotient(whole, by) if (whole, by) in self._exact else None
        return None

    def begin(self) -> None:
        """Begins another reading, with symbols that have with them what is known."""
        self._broadcast = {}
        is_any = not (self._exact or self._not_negative or self._atoms)
        drafts: list[OpenDict[Any, Any]] = [OpenDict() for _ in range(4)]
        known = NOTHING if is_any else Known(*drafts)
        atoms = [*symbols_in(tuple(self._symbols.values()))]
        symbols = {atom.name: replace(atom, known=known) for atom in atoms}
        self._new = Symbol("", known=known)

        def new(extent: Dimension) -> Any:
            return renamed(extent, symbols)

        self._symbols = {name: new(own) for name, own in self._symbols.items()}
        self._exact = {(new(w), new(b)): c for (w, b), c in self._exact.items()}
        self._not_negative = {new(x): cause for x, cause in self._not_negative.items()}
        # What one fact makes of a quotient may be known otherwise by another.
        last = {a: (self.apply_again(x), c) for a, (x, c) in self._atoms.items()}
        known_as = [(new(lone(a)), new(x), c) for a, (x, c) in last.items()]
        self._atoms = {a: (x, c) for own, x, c in known_as for a in lone_atom(own)}
        if not is_any:
            plain = {
                name: replace(atom, known=NOTHING) for name, atom in symbols.items()
            }
            zeros = (
                renamed(lone(atom), plain) - renamed(x, plain)
                for atom, (x, _) in self._atoms.items()
            )
            values, exact, not_negative, differences = drafts
            values.update((atom.text, x) for atom, (x, _) in self._atoms.items())
            exact.update((Quotient(*parts).text, None) for parts in self._exact)
            not_negative.update(dict.fromkeys(self._not_negative))
            differences.update(dict.fromkeys(zeros))
        # Only now they have what refers to them.
        for draft in drafts:
            draft.frozen()

    def note_broadcast(self, one: Dimension, other: Dimension) -> None:
        """Notes that two extents are equal, or that one is 1."""
        self._broadcast.setdefault(
            f"{one} and {other} are equal, or one is 1", self.cause
        )

    # ---- Text ----

    def texts(self) -> tuple[str, ...]:
        """A sentence for each fact, with what needs it."""
        return (
            *(
                f"{name} is {self._words(name, own)}, for {' and '.join(causes[:2])}"
                for name, own in self._symbols.items()
                if (causes := self._causes.get(name))
            ),
            *(
                f"{whole} is a multiple of {by}, for {cause}"
                for (whole, by), cause in self._exact.items()
            ),
            *(
                f"{as_comparison(extent)}, for {cause}"
                for extent, cause in self._not_negative.items()
                if cause
            ),
            *(
                f"{atom} is {value}, for {cause}"
                for atom, (value, cause) in self._atoms.items()
            ),
            *(f"{text}, for {cause}" for text, cause in self._broadcast.items()),
        )

    def decisions(self) -> list[str]:
        """The facts that give a symbol a number, or another symbol's."""
        return [
            f"{name} is {own}, for {causes[0]}"
            for name, own in self._symbols.items()
            if str(own) != name and (causes := self._causes.get(name))
        ][:_TOLD]

    @staticmethod
    def _words(name: str, own: Any) -> str:
        if str(own) != name:
            return str(own)
        return meaning_of(next(symbols_in(own)))

    def examples(self) -> dict[str, int]:
        """A number for each symbol, to begin with."""
        return examples(self._symbols.values())

    # ---- Equal extents ----

    def make_equal(self, one: Dimension, other: Dimension) -> bool:
        """Whether two extents are equal, from now on; False if they never are."""
        difference = without_common(without_quotients(self.apply(one - other)))
        least, most = bounds(difference)
        if least > 0 or most < 0:
            return False
        if not isinstance(difference, Extent) or least == most == 0:
            return True
        ways = (
            self._solve,
            self._keep_rests,
            self._keep_long,
            self._choose,
            self._make_exact,
            self._replace_atom,
            self._divide_product,
        )
        for way in ways:
            found = None
            with suppress(OpenExtentError):
                found = way(difference)
            if found is not None:
                return found
        raise OpenExtentError(f"whether {one} is {other} is not known")

    def _solve(self, difference: Extent) -> bool | None:
        """Puts the others in the place of a symbol, the one that entered last."""
        single = {
            atoms[0]: f for atoms, f in difference.terms.items() if len(atoms) == 1
        }
        for own in reversed(self._symbols.values()):
            for atom in symbols_in(own):
                factor = single.get(atom, 0)
                others = difference - factor * lone(atom)
                if abs(factor) == 1 and atom not in symbols_in(others):
                    return self._put(atom, -factor * others)
        return None

    def _put(self, atom: Symbol, number: Dimension) -> bool:
        """Puts a number, or an extent, in the place of an atom."""
        first, last = atom.range
        if not isinstance(number, Extent) and not first <= number <= last:
            return False
        self._set(atom.name, number * atom.step + atom.rest)
        return self.make_at_least(number, first)

    def _keep_rests(self, difference: Extent) -> bool | None:
        """Keeps those numbers of a symbol for which a difference is zero."""
        (atom, *others) = {*symbols_in(difference)}
        if others:
            return None
        divisor = divisors(difference).get(atom, 1)
        rests, points = [], []
        for rest, case in enumerate(residues(atom, divisor)):
            own = with_atom(difference, atom, case)
            if own == 0:
                rests.append(rest)
            elif isinstance(own, Extent) and bounds(own)[0] <= 0 <= bounds(own)[1]:
                root = roots_of(own)
                if root is None:
                    return None
                points += [divisor * n + rest for n in root]
        if not rests and not points:
            return False
        if not rests and len(points) == 1:
            return self._put(atom, points[0])
        first, *_ = rests or [0]
        step = (rests[1] - first) if len(rests) > 1 else divisor
        if not rests and sorted(points) == [*range(min(points), max(points) + 1)]:
            least, most = (
                n * atom.step + atom.rest for n in (min(points), max(points))
            )
            kept = replace(atom, least=least, most=most)
            self._set(atom.name, extent_of(kept))
            return True
        # The numbers kept go on from one multiple of the divisor to the next.
        is_even = divisor % step == 0 and first < step
        if points or not is_even or rests != [*range(first, divisor, step)]:
            return None
        kept = replace(atom, step=atom.step * step, rest=atom.step * first + atom.rest)
        self._set(atom.name, extent_of(kept))
        return True

    def _keep_long(self, difference: Extent) -> bool | None:
        """Keeps the numbers of a symbol from one on, if a difference is zero for these alone."""
        (atom, *others) = {*symbols_in(difference)}
        if others:
            return None
        (first, _), kept = atom.range, partial(at_least_so_long, atom)
        found = first_number(
            lambda n: (
                with_atom(difference, atom, numbers_as(kept(first + n), atom)) == 0
            )
        )
        if found is None or found > TRIED:
            return None
        if any(with_atom(difference, atom, first + n) == 0 for n in range(found)):
            return None
        self._set(atom.name, extent_of(kept(first + found)))
        return True

    def _choose(self, difference: Extent) -> bool | None:
        """Learns which one of several extents is the least or greatest."""
        for atom in atoms_in(difference):
            for part in atom.parts if isinstance(atom, Extreme) else ():
                if with_atom(difference, atom, part) == 0:
                    sign = 1 if atom.name == "min" else -1  # type: ignore[union-attr]
                    others = [p for p in atom.parts if p != part]  # type: ignore[union-attr]
                    return all(
                        self.make_at_least(sign * (other - part), 0) for other in others
                    )
        return None

    def _make_exact(self, difference: Extent) -> bool | None:
        """Learns that a quotient has no rest, or several factors of a product have none."""
        atoms = [
            atom
            for atom in dict.fromkeys(atoms_in(difference))
            if isinstance(atom, Quotient) and not atom.is_exact
        ]
        for count in range(1, _MOST_FACTORS + 1):
            for chosen in combinations(atoms, count):
                if are_exact(difference, chosen):
                    pairs = ((atom.whole, atom.by) for atom in chosen)
                    self._exact |= dict.fromkeys(pairs, self.cause)
                    self._note(())
                    return True
        return None

    def _replace_atom(self, difference: Extent) -> bool | None:
        """Puts the others in the place of a quotient, or of one of several extents."""
        for atoms, factor in difference.terms.items():
            if len(atoms) != 1 or abs(factor) != 1:
                continue
            others = difference - factor * lone(atoms[0])
            if atoms[0] not in atoms_in(others):
                self._atoms[atoms[0]] = -factor * others, self.cause
                self._note(())
                return True
        return None

    def _divide_product(self, difference: Extent) -> bool | None:
        """Puts what a product is, divided by its other factors, in the place of a quotient."""
        for atoms, sign in difference.terms.items():
            number = -sign * (difference - sign * prod(map(lone, atoms)))
            if len(atoms) < 2 or abs(sign) != 1 or has_symbols(number):
                continue
            own, by = atoms[0], prod(map(lone, atoms[1:]))
            if isinstance(own, Quotient) and own not in atoms_in(by):
                factor = exact_quotient(number, by)
                self._exact[number, by] = self.cause
                self._atoms[own] = factor, self.cause
                # How far its whole goes, which the quotient itself said.
                rest = own.whole - own.by * factor
                self._not_negative |= {rest: "", own.by - 1 - rest: ""}
                self._note(())
                return True
        return None

    # ---- Extents that are large enough ----

    def make_at_least(self, extent: Dimension, bound: Dimension) -> bool:
        """Whether an extent reaches a bound, from now on; False if it never does."""
        excess = self.apply(extent - bound)
        least, most = bounds(excess)
        if least >= 0 or most < 0:
            return least >= 0
        if is_not_negative(excess, self._not_negative):
            return True
        (atom, *others) = {*symbols_in(excess)}
        if others:
            self._not_negative[excess] = self.cause
            self._note(())
            return True
        kept = long_enough(excess, atom) or short_enough(excess, atom)
        if kept is None:
            raise OpenExtentError(f"whether {extent} is less than {bound} is not known")
        self._set(atom.name, extent_of(kept))
        return True

    # ---- What a network does otherwise where an extent is 1 ----

    def choose(self, extent: Dimension) -> bool:
        """Whether an extent is taken to be 1."""
        if str(extent) in self._ones:
            return self.make_equal(extent, 1)
        self._longer.append(str(extent))
        return not self.make_at_least(extent, 2)

    def other_choice(self) -> Facts | None:
        """Facts for another reading, in which the last extent that was taken not to be 1 is
        1; None if there was none, or this is such a reading.
        """
        if self._ones or not self._longer:
            return None
        facts = Facts()
        facts._ones = {self._longer[-1]}
        return facts

    # ---- Learning ----

    def _set(self, name: str, extent: Dimension) -> None:
        self._symbols[name] = extent
        self._note((name,))
        self._symbols = {n: self.apply(own) for n, own in self._symbols.items()}
        exact, known = self._exact, self._not_negative
        self._exact = {}
        self._exact = {(self.apply(w), self.apply(b)): c for (w, b), c in exact.items()}
        atoms, self._atoms = self._atoms, {}
        for atom, (value, cause) in atoms.items():
            for own in lone_atom(self.apply(lone(atom))):
                self._atoms[own] = self.apply(value), cause
        left = {self.apply(own): cause for own, cause in known.items()}
        self._not_negative = {x: cause for x, cause in left.items() if bounds(x)[0] < 0}

    def _note(self, names: Iterable[str]) -> None:
        self.count += 1
        for name in names:
            causes = self._causes.setdefault(name, [])
            if self.cause not in causes:
                causes.append(self.cause)
