"""Syntax errors: the first unexpected word, and those of further statements."""

from __future__ import annotations

import re
from collections.abc import Callable

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from nnef_grad.errors import MAX_PROBLEMS, NnefSyntaxError, Problem, brief
from nnef_grad.source import Span

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
_OPERATORS = {"OR", "AND", "COMPARE", "PLUS", "MINUS", "TIMES", "POWER", "NOT", "IN"}
_OPERATORS |= {"LESSTHAN", "MORETHAN", "IF"}


def syntax_error(error: UnexpectedInput, text: Span, parser: Lark) -> NnefSyntaxError:
    """The error of Lark as an error of our own."""
    start, end = text.start + (error.pos_in_stream or 0), text.end
    if isinstance(error, UnexpectedCharacters):
        end = start + 1
        character = text.source.text[start]
        message = f"unexpected character {character!r}"
        if character in "'\"":
            message = "a string that does not end on its line"
    else:
        assert isinstance(error, UnexpectedToken)
        message = f"unexpected '{brief(error.token)}'{_hint(error, parser)}"
        end = start + len(error.token)
        if error.token.type == "$END":
            message = f"the text ends too early{_hint(error, parser)}"
            end = text.start + len(text.text.rstrip())
            start = max(text.start, end - 1)
    return NnefSyntaxError(message, Span(text.source, start, end))


def _hint(error: UnexpectedToken, parser: Lark) -> str:
    """The expected words, if they are few. `true` begins nothing but expressions."""
    accepted: set[str] = set(error.accepts or error.expected)
    if error.token == "," and accepted == {"NAME", "SEMICOLON"}:
        return ": the names of extensions follow each other without commas"
    words: list[str] = []
    if "TRUE" in accepted:
        words.append("an expression")
        accepted -= {*_WORDS, "LITERALS", "LSQB", "LPAR"}
    if "LESSTHAN" in accepted:
        accepted -= {"LSQB"}
    words += [
        _WORDS.get(name) or f"'{parser.get_terminal(name).pattern.value}'"
        for name in sorted(accepted - _OPERATORS)
    ]
    return f"; expected {' or '.join(words)}" if 0 < len(words) <= 4 else ""


# ---- Further problems ----


def all_problems(
    text: str, error: NnefSyntaxError, parse: Callable[[str], object]
) -> list[Problem]:
    """The first syntax error, and those of further statements.

    A faulty statement is blanked out, and the text is parsed again. As each problem
    costs a parse of the whole text, fewer are looked for in long texts.
    """
    problems = list(error.problems)
    for _ in range(min(MAX_PROBLEMS, MAX_READ_AGAIN // (len(text) + 1))):
        statement = _statement(text, problems[-1].position())
        if statement is None:
            break
        start, end = statement
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
        try:
            parse(text)
            break
        except NnefSyntaxError as further:
            position = further.problems[0].position()
            # An error before the blank follows from it, as in an empty body.
            if position < end or text[end : position + 1].strip() == "}":
                break
            problems += further.problems
    return problems


# A statement ends with a semicolon that is not in a string or a comment.
_PIECE = re.compile(r"#[^\n]*|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|[;{}]")


def _statement(text: str, position: int) -> tuple[int, int] | None:
    """The bounds of the statement around a position; None outside bodies."""
    start: int | None = None
    for piece in _PIECE.finditer(text):
        is_before = piece.start() < position
        if piece[0] == "{" and not is_before:
            return None
        if piece[0] == "}" and not is_before:
            return None
        if piece[0] == "}":
            start = None
        elif piece[0] in ";{" and is_before:
            start = piece.end()
        elif piece[0] == ";" and start is not None:
            return start, piece.end()
    return None
