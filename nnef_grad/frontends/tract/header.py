"""The extension lines of tract's dialect. The grammar of the standard does not have all of
them, so they are read here, and blank in the text that is parsed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nnef_grad.base.source import Source

_LINE = re.compile(
    r"(?:^|(?<=;))([ \t]*)extension\s+(tract_\w+)\b([^;]*);", re.MULTILINE
)
_VISIBLE = re.compile(r"[^\r\n]")


class Header(NamedTuple):
    """The extension lines of a document.

    Attributes:
        symbols: the names that stand for extents.
        notes: the lines that do not change what the document computes.
        text: the document without the lines, every other character in its place.
    """

    symbols: frozenset[str]
    notes: tuple[str, ...]
    text: str


def is_tract(text: str) -> bool:
    """Whether a document has an extension line of tract."""
    return "tract_" in text and bool(_lines(text))


def read_header(source: Source) -> Header:
    """The extension lines of a document, and the text to parse."""
    symbols: set[str] = set()
    notes: list[str] = []
    text = source.text
    for line in _lines(text):
        keyword, value = line[2], " ".join(line[3].split())
        if keyword == "tract_symbol":
            symbols.update(value.replace(",", " ").split())
        elif keyword != "tract_registry":
            notes.append(f"{keyword} {value}")
        blank = _VISIBLE.sub(" ", line[0])
        text = f"{text[: line.start()]}{blank}{text[line.end() :]}"
    return Header(frozenset(symbols), tuple(notes), text)


def _lines(text: str) -> list[re.Match[str]]:
    """The lines, but for those in comments."""
    return [line for line in _LINE.finditer(text) if not _in_comment(text, line)]


def _in_comment(text: str, line: re.Match[str]) -> bool:
    beginning = text.rfind("\n", 0, line.start()) + 1
    return "#" in text[beginning : line.start()]
