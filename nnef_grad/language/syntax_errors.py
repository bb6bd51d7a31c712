"""Syntax errors: the first unexpected word, and those of further statements."""

from __future__ import annotations

import re
from collections.abc import Callable

from lark import Lark
from lark.exceptions import (
    UnexpectedCharacters,
    UnexpectedEOF,
    UnexpectedInput,
    UnexpectedToken,
)

from nnef_grad.errors import MAX_PROBLEMS, NnefSyntaxError, Problem
from nnef_grad.source import Source, Span

MAX_READ_AGAIN = 200_000

_WORDS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "DTYPE": "a type in angle brackets",
    "PRIMITIVE": "a type",
    "BUILTIN": "a built-in function",
    "TRUE": "'true'",
    "FALSE": "'false'",
    "$END": "the end of the text",
}
_OPERATORS = {
    "OR",
    "AND",
    "COMPARE",
    "PLUS",
    "MINUS",
    "TIMES",
    "POWER",
    "NOT",
    "LESSTHAN",
    "MORETHAN",
    "IN",
    "IF",
}
_BEGINS_EXPRESSION = {
    "NAME",
    "NUMBER",
    "STRING",
    "LSQB",
    "LPAR",
    "TRUE",
    "FALSE",
    "BUILTIN",
    "PRIMITIVE",
}


def syntax_error(error: UnexpectedInput, text: Span, parser: Lark) -> NnefSyntaxError:
    """The error of Lark as an error of our own."""
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        assert error.token.start_pos is not None
        start = text.start + error.token.start_pos
        span = Span(text.source, start, start + len(error.token))
        return NnefSyntaxError(
            f"unexpected '{error.token}'{_hint(error, parser)}", span
        )
    if isinstance(error, UnexpectedCharacters):
        start = text.start + (error.pos_in_stream or 0)
        character = text.source.text[start]
        what = (
            "a string that does not end on its line"
            if character in "'\""
            else f"unexpected character {character!r}"
        )
        return NnefSyntaxError(what, Span(text.source, start, start + 1))
    assert isinstance(error, (UnexpectedToken, UnexpectedEOF))
    end = text.start + len(text.text.rstrip())
    last = Span(text.source, max(text.start, end - 1), end)
    return NnefSyntaxError(f"the text ends too early{_hint(error, parser)}", last)


def _hint(error: UnexpectedToken | UnexpectedEOF, parser: Lark) -> str:
    """The expected words, if they are few."""
    accepted: set[str] = set(getattr(error, "accepts", None) or error.expected)
    words: list[str] = []
    if accepted >= _BEGINS_EXPRESSION:
        words.append("an expression")
        accepted -= _BEGINS_EXPRESSION | {"PLUS", "MINUS", "NOT"}
    if "LESSTHAN" in accepted:
        accepted -= {"LSQB"}
    words += [_spelling(name, parser) for name in sorted(accepted - _OPERATORS)]
    return f"; expected {' or '.join(words)}" if 0 < len(words) <= 4 else ""


def _spelling(terminal: str, parser: Lark) -> str:
    if terminal in _WORDS:
        return _WORDS[terminal]
    return f"'{parser.get_terminal(terminal).pattern.value}'"


# ---- Further problems ----


def all_problems(
    source: Source, error: NnefSyntaxError, parse: Callable[[str], object]
) -> list[Problem]:
    """The first syntax error, and those of further statements.

    A faulty statement is blanked out, and the text is parsed again. As each problem
    costs a parse of the whole text, fewer are looked for in long texts.
    """
    problems = list(error.problems)
    text = source.text
    for _ in range(min(MAX_PROBLEMS, MAX_READ_AGAIN // (len(text) + 1))):
        statement = _statement(text, problems[-1].span)
        if statement is None:
            break
        start, end = statement
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
        try:
            parse(text)
        except NnefSyntaxError as further:
            # An error before the blank follows from it, as in an empty body.
            if further.span is None or further.span.start < end:
                break
            if (
                not text[end : further.span.start].strip()
                and text[further.span.start] == "}"
            ):
                break
            problems += further.problems
        else:
            break
    return problems


# A statement ends with a semicolon that is not in a string or a comment.
_PIECE = re.compile(r"#[^\n]*|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|[;{}]")


def _statement(text: str, span: Span | None) -> tuple[int, int] | None:
    """The bounds of the statement around a place; None outside bodies."""
    start: int | None = None
    for piece in _PIECE.finditer(text):
        if span is None or (piece[0] == "}" and piece.start() >= span.start):
            return None
        if piece[0] in ";{" and piece.start() < span.start:
            start = piece.end()
        elif piece[0] == "}":
            start = None
        elif piece[0] == ";" and start is not None:
            return start, piece.end()
    return None
