"""Syntax errors: what was unexpected, and what was expected."""

from __future__ import annotations

from nnef_grad.base.errors import NnefSyntaxError, brief
from nnef_grad.base.source import Span
from nnef_grad.language.lexical import (
    BUILTIN,
    DTYPE,
    END,
    NAME,
    NUMBER,
    PRIMITIVE,
    STRING,
    UNKNOWN,
)

EXPRESSION = "an expression"
# What an error says was expected, in this order. Operators would be too many.
# fmt: off
_SHOWN = (
    EXPRESSION, END, BUILTIN, ":", ",", DTYPE, "else", "=", "extension", "for",
    "fragment", "graph", "{", "(", "[", NAME, NUMBER, PRIMITIVE, "?", "}", ")", "]",
    ";", STRING, "tensor", "version", "yield", "->",
)
# fmt: on
_WORDS = {
    EXPRESSION: EXPRESSION,
    NAME: "a name",
    NUMBER: "a number",
    STRING: "a string",
    DTYPE: "a type in angle brackets",
    PRIMITIVE: "a type",
    BUILTIN: "a built-in function",
    END: "the end of the text",
}


def syntax_error(
    place: Span, kind: str, expected: set[str], text: Span
) -> NnefSyntaxError:
    """The error about a word that does not follow, in a part of a text."""
    word, hint = place.text, _hint(place.text, expected)
    if kind == END:
        end = text.start + len(text.text.rstrip())
        place = text._replace(start=max(text.start, end - 1), end=end)
        message = f"the text ends too early{hint}"
    elif kind != UNKNOWN:
        message = f"unexpected '{brief(word)}'{hint}"
    elif word in "'\"":
        message = "a string that does not end on its line"
    else:
        message = f"unexpected character {word!r}"
    return NnefSyntaxError(message, place)


def _hint(word: str, expected: set[str]) -> str:
    """The expected words, if they are few."""
    if word == "," and expected == {NAME, ";"}:
        return ": the names of extensions follow each other without commas"
    words = [_WORDS.get(kind, f"'{kind}'") for kind in _SHOWN if kind in expected]
    return f"; expected {' or '.join(words)}" if 0 < len(words) <= 4 else ""
