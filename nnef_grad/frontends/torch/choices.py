"""What Python decides by values that depend on inputs: each way through the module is traced,
with other answers, and the graph chooses among their results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar, Union

import torch

from nnef_grad.base.errors import UnsupportedError
from nnef_grad.frontends.torch.counts import Bounds
from nnef_grad.frontends.torch.internals import is_transformed

Way = TypeVar("Way")
# How many ways are traced at most, and how often Python may ask on one of them.
MOST_WAYS, MOST_ASKED = 32, 12


@dataclass
class Answers:
    """What Python is told where it asks whether something is true that depends on inputs.

    Attributes:
        given: the first answers; those after them are yes.
        conditions: what was asked for.
        lines: where.
        most: how often Python may ask.
    """

    given: Sequence[bool] = ()
    conditions: list[torch.Tensor | torch.SymBool] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    most: int = MOST_ASKED
    _asked: list[tuple[Any, int]] = field(default_factory=list)
    _bounds: Bounds = field(default_factory=Bounds)

    def begin(self) -> None:
        """Forgets what was asked for: the module begins again."""
        for noted in (self.conditions, self.lines, self._asked):
            noted.clear()
        self._bounds = Bounds()

    def answer(self, x: Any, line: str) -> bool | None:
        """Whether a tensor is true, or a relation of numbers that depend on data, the same each
        time; None if nobody can tell a graph.
        """
        if isinstance(x, torch.SymBool):
            return self._of_numbers(x, line)
        is_one = isinstance(x, torch.Tensor) and x.numel() == 1
        if not is_one or is_transformed(x):
            return None
        for place, (y, version) in enumerate(self._asked):
            if y is x and version == x._version:
                return self.told[place]
        if len(self.conditions) == self.most:
            return None
        self._asked.append((x, x._version))
        # It may be written into later.
        return self._told(x.clone(), line)

    def _of_numbers(self, x: torch.SymBool, line: str) -> bool | None:
        known = self._bounds.decide(x)
        if known is not None or len(self.conditions) == self.most:
            return known
        # In the place of the condition; what is related is known by its bounds.
        self._asked.append((x, 0))
        answer = self._told(x, line)
        self._bounds.learn(x, answer)
        return answer

    def _told(self, condition: torch.Tensor | torch.SymBool, line: str) -> bool:
        """The answer to what is asked for now."""
        self.conditions.append(condition)
        self.lines.append(line)
        return self.told[-1]

    @property
    def told(self) -> list[bool]:
        """The answers to what was asked for."""
        count = len(self.conditions)
        return [*self.given, *[True] * count][:count]


class Choice(NamedTuple, Generic[Way]):
    """The ways through a module for both answers.

    Attributes:
        place: which of the conditions on them decides.
        line: where Python asks for it.
    """

    place: int
    line: str
    then: Ways[Way]
    otherwise: Ways[Way]

    @property
    def both(self) -> tuple[Ways[Way], Ways[Way]]:
        """The ways for yes, and for no."""
        return self.then, self.otherwise


Ways = Union[Way, Choice[Way]]


def each_way(function: Callable[[Any], Any], ways: Ways[Any]) -> Ways[Any]:
    """The result of a function for each of the ways."""
    if isinstance(ways, Choice):
        both = [each_way(function, way) for way in ways.both]
        return Choice(ways.place, ways.line, *both)
    return function(ways)


def list_of(ways: Ways[Way]) -> list[Way]:
    """The ways, those first for which all answers are yes."""
    if isinstance(ways, Choice):
        return [way for part in ways.both for way in list_of(part)]
    return [ways]


class RaisedError(UnsupportedError):
    """The module raises an error, on one of its ways."""


class Explorer(Generic[Way]):
    """Traces a module on all of its ways, but for those that end in an error of its own.

    Attributes:
        passed: the lines of conditions that only decide whether there is an error.
    """

    def __init__(self, trace: Callable[[Answers], Way]) -> None:
        self.passed: list[str] = []
        self._trace = trace
        self._count = 0
        self._error: RaisedError | None = None

    def explore(self) -> Ways[Way]:
        """All ways.

        Raises:
            RaisedError: all of them end in errors.
            UnsupportedError: there are too many.
        """
        ways = self._from(())
        if ways is None:
            assert self._error is not None
            raise self._error
        return ways

    def _from(self, given: Sequence[bool]) -> Ways[Way] | None:
        """The ways that begin with these answers."""
        answers = Answers(given)
        self._count += 1
        ways: Ways[Way] | None = None
        try:
            ways = self._trace(answers)
        except RaisedError as error:
            self._error = error
        told = answers.told
        for place in reversed(range(len(given), len(told))):
            line = answers.lines[place]
            if self._count == MOST_WAYS:
                message = (
                    f"values decide among more than {MOST_WAYS} ways, as at {line}"
                )
                raise UnsupportedError(
                    f"{message}: decide by torch.where or torch.cond"
                )
            other = self._from([*told[:place], False])
            if ways is not None and other is not None:
                ways = Choice(place, line, ways, other)
            else:
                self.passed += [line] if ways is not other else []
                ways = other if ways is None else ways
        return ways
