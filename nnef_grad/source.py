"""Texts and places in them.

Everything that was parsed knows its `Span`; only an error message ever asks a span for
its line and column.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

TAB = 4


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A text and the name that error messages call it by: a path, `<stdin>` or
    `<string>`.
    """

    name: str
    text: str = field(repr=False)

    def line(self, number: int) -> str:
        """The text of a line, counted from 1, without its end."""
        return self.text.split("\n")[number - 1].rstrip("\r")


class Span(NamedTuple):
    """The characters `start` (inclusive) to `end` (exclusive) of a source.

    `caller` is the place of the invocation that what stands here was expanded from,
    where there is one.
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

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"

    def excerpt(self) -> str:
        """The line of the span with a caret under its first character and a tilde under
        each further one.
        """
        line = self.source.line(self.line)
        before = line[: self.column - 1].expandtabs(TAB)
        width = max(1, min(self.end - self.start, len(line) - self.column + 1))
        return (
            f"    {line.expandtabs(TAB)}\n    {' ' * len(before)}^{'~' * (width - 1)}"
        )


def called_from(span: Span, caller: Span | None) -> Span:
    """The same place, with the invocation that led there at the end of its way back."""
    if span is caller:
        return span
    return span._replace(
        caller=caller if span.caller is None else called_from(span.caller, caller)
    )


def join(first: Span, last: Span) -> Span:
    """The span from the beginning of one to the end of another of the same source."""
    return Span(first.source, first.start, last.end)
