"""Texts and places in them.

Everything that was parsed has a `Span`; line and column are computed only for messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

TAB = 4
LONG_LINE = 160


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A text and its name in error messages: a path, `<stdin>` or `<string>`."""

    name: str
    text: str = field(repr=False)

    def line(self, number: int) -> str:
        """The text of a line, counted from 1, without its end."""
        return self.text.split("\n")[number - 1].rstrip("\r")


class Span(NamedTuple):
    """The characters `start` (inclusive) to `end` (exclusive) of a source.

    `caller` is the place of the invocation that this was expanded from, if any.
    """

    source: Source
    start: int
    end: int
    caller: Span | None = None

    @property
    def text(self) -> str:
        """The characters."""
        return self.source.text[self.start : self.end]

    @property
    def line(self) -> int:
        """The line of the first character, counted from 1."""
        return self.source.text.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int:
        """The column of the first character, counted from 1."""
        return self.start - self.source.text.rfind("\n", 0, self.start)

    @property
    def callers(self) -> Iterator[Span]:
        """The invocations that led here, the last one first."""
        place = self.caller
        while place is not None:
            yield place
            place = place.caller

    def __str__(self) -> str:
        """The place; the name alone of what has no text."""
        if not self.source.text:
            return self.source.name
        return f"{self.source.name}:{self.line}:{self.column}"

    def as_data(self) -> dict[str, str | int]:
        """The place for programs: lines and columns are counted from 1."""
        last = Span(self.source, self.end, self.end)
        return {
            "file": self.source.name,
            "line": self.line,
            "column": self.column,
            "end_line": last.line,
            "end_column": last.column,
        }

    def excerpt(self) -> str:
        """The line with a caret and tildes under the span; a long one is cut."""
        line, column = self.source.line(self.line), self.column - 1
        start = 0 if len(line) <= LONG_LINE else max(0, column - LONG_LINE // 2)
        shown = line[start : start + LONG_LINE]
        before = shown[: column - start].expandtabs(TAB)
        width = max(1, min(self.end - self.start, len(shown) - (column - start)))
        return (
            f"    {shown.expandtabs(TAB)}\n    {' ' * len(before)}^{'~' * (width - 1)}"
        )


def join(first: Span, last: Span) -> Span:
    """The span from the beginning of one to the end of another of the same source."""
    return Span(first.source, first.start, last.end)


# The place of what stands in no text.
NOWHERE = Span(Source("", ""), 0, 0)
