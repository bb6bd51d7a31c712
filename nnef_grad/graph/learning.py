"""Facts while a network is read: the reading that learns them, and what operations ask.

A graph is made again with what was learned (facts.py), until there is nothing new: what was
made of an extent before a fact about it was known is made of the right one. Shape functions
ask by `equal` and `reaches`; where no network is read, these answer from what is known, or
raise `OpenExtentError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from nnef_grad.base.errors import NnefGradError
from nnef_grad.graph.atoms import LONGEST_AXIS, Symbol
from nnef_grad.graph.extents import (
    Dimension,
    Extent,
    OpenExtentError,
    bounds,
    extent_of,
    has_symbols,
)
from nnef_grad.graph.facts import Facts
from nnef_grad.graph.quotients import without_quotients
from nnef_grad.graph.solving import may_differ_as_1

Result = TypeVar("Result")

# Each reading learns one fact at least, or is the last.
MOST_READINGS = 100
_CURRENT: ContextVar[Facts | None] = ContextVar("facts", default=None)


def current_facts() -> Facts | None:
    """The facts of the network that is read, if one with symbols is."""
    facts = _CURRENT.get()
    return facts if facts is not None and facts.has_symbols else None


def symbol_of(name: str, least: int = 1, most: int = LONGEST_AXIS - 1) -> Any:
    """A symbol of the network that is read, as far as it is known."""
    facts = _CURRENT.get()
    if facts is None:
        return extent_of(Symbol(name, least, most))
    return facts.symbol(name, least, most)


def facts_learned() -> tuple[str, ...]:
    """The facts of the network that is read about its symbols, a sentence each."""
    facts = _CURRENT.get()
    return () if facts is None else facts.texts()


def decided_sizes() -> str:
    """The reason for the sizes of the network that is read, as a part of a message."""
    facts = current_facts()
    told = "; ".join(facts.decisions()) if facts is not None else ""
    return f" ({told})" if told else ""


@contextmanager
def learning(facts: Facts | None) -> Iterator[None]:
    """Learns what is needed inside."""
    token = _CURRENT.set(facts)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def with_facts(read: Callable[[Facts], Result]) -> Result:
    """What is read with all that it says of its symbols."""
    facts = Facts()
    try:
        return _read_with(facts, read)
    except NnefGradError as error:
        if (other := facts.other_choice()) is not None:
            with suppress(NnefGradError):
                return _read_with(other, read)
        error.sizes = facts.examples()
        raise


def _read_with(facts: Facts, read: Callable[[Facts], Result]) -> Result:
    for _ in range(MOST_READINGS):
        known = facts.count
        facts.begin()
        try:
            with learning(facts):
                result = read(facts)
        except NnefGradError:
            if facts.count == known:
                raise
            continue
        if facts.count == known:
            return result
    raise AssertionError("facts are learned without end")


# ---- What operations need ----


def equal(one: Dimension, other: Dimension) -> bool:
    """Whether two extents are equal: as they are, as is known, or as is learned here."""
    if one == other:
        return True
    if not isinstance(one, Extent) and not isinstance(other, Extent):
        return False
    if (facts := current_facts()) is not None:
        return facts.make_equal(one, other)
    least, most = bounds(without_quotients(one - other))
    if least == most or least > 0 or most < 0:
        return least == most == 0
    raise OpenExtentError(f"whether {one} is {other} is not known")


def agree_if_broadcast(one: Dimension, other: Dimension) -> bool:
    """Whether two extents, neither of which is 1 as it is written, are broadcast together. One
    that may be 1 for some numbers is 1 or the other one.
    """
    difference = one - other
    if not isinstance(difference, Extent) and difference == 0:
        return True
    if not may_differ_as_1(one, other):
        return equal(one, other)
    if (facts := current_facts()) is not None and isinstance(difference, Extent):
        if not all(facts.make_at_least(extent, 1) for extent in (one, other)):
            return False
        facts.note_broadcast(one, other)
    return has_symbols((one, other))


def all_equal(one: Sequence[Dimension], other: Sequence[Dimension]) -> bool:
    """Whether two shapes are equal."""
    return len(one) == len(other) and all(map(equal, one, other))


def are_equal(one: Dimension, other: Dimension) -> bool:
    """Whether two extents are equal, where a network asks for it: they need not be. One that
    is compared with 1 is taken not to be 1, or, if the network cannot be read so, to be 1.
    """
    difference = one - other
    if not isinstance(difference, Extent):
        return difference == 0
    least, most = bounds(difference)
    if least == most or least > 0 or most < 0:
        return least == most == 0
    facts = current_facts()
    if facts is None or 1 not in (one, other):
        raise OpenExtentError(f"whether {one} is {other} is not known")
    return facts.choose(one if other == 1 else other)


def reaches(extent: Dimension, bound: Dimension) -> bool:
    """Whether an extent is at least a bound: as is known, or as is learned here."""
    facts = current_facts()
    if facts is None or not isinstance(extent - bound, Extent):
        return bool(extent >= bound)
    return facts.make_at_least(extent, bound)
