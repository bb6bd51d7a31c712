"""The extension lines of tract's dialect. The grammar of the standard does not have all of
them, so they are read here, and blank in the text that is parsed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nnef_grad.base.source import Source

# A comment, or a line that is none.
_LINE = re.compile(
    r"#.*|(?:^|(?<=;))[ \t]*extension\s+(tract_\w+)\b([^;]*);", re.MULTILINE
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
    return any(line[1] for line in _LINE.finditer(text))


def read_header(source: Source) -> Header:
    """The extension lines of a document, and the text to parse."""
    symbols: set[str] = set()
    notes: list[str] = []

    def blank(line: re.Match[str]) -> str:
        if line[1] is None:
            return line[0]
        keyword, value = line[1], " ".join(line[2].split())
        if keyword == "tract_symbol":
            symbols.update(value.replace(",", " ").split())
        elif keyword != "tract_registry":
            notes.append(f"{keyword} {value}")
        return _VISIBLE.sub(" ", line[0])

    text = _LINE.sub(blank, source.text)
    return Header(frozenset(symbols), tuple(notes), text)
