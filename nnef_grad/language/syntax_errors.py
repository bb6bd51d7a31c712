"""Syntax errors: the first unexpected word, and those of further statements."""

from __future__ import annotations

import re
from collections.abc import Callable

from nnef_grad.base.errors import MAX_PROBLEMS, NnefSyntaxError, Problem, brief
from nnef_grad.base.source import Span
from nnef_grad.language.lalr import Automaton, UnexpectedWordError

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


def syntax_error(
    error: UnexpectedWordError, text: Span, automaton: Automaton
) -> NnefSyntaxError:
    """The error about a word that does not follow, in a part of a text."""
    word = error.word[error.word.lastindex or 0]
    span = text._replace(start=error.word.end() - len(word), end=error.word.end())
    hint = _hint(word, error.accepted, automaton)
    if not word:
        end = text.start + len(text.text.rstrip())
        span = text._replace(start=max(text.start, end - 1), end=end)
        message = f"the text ends too early{hint}"
    elif error.is_known:
        message = f"unexpected '{brief(word)}'{hint}"
    elif word in "'\"":
        message = "a string that does not end on its line"
    else:
        message = f"unexpected character {word!r}"
    return NnefSyntaxError(message, span)


def _hint(word: str, accepted: set[str], automaton: Automaton) -> str:
    """The expected words, if they are few. `true` begins nothing but expressions."""
    if word == "," and accepted == {"NAME", "SEMICOLON"}:
        return ": the names of extensions follow each other without commas"
    words: list[str] = []
    if "TRUE" in accepted:
        words.append("an expression")
        accepted -= {*_WORDS, "LITERALS", "LSQB", "LPAR"}
    if "LESSTHAN" in accepted:
        accepted -= {"LSQB"}
    literals = {kind: literal for literal, kind in automaton.literals.items()}
    words += [
        _WORDS.get(kind) or f"'{literals[kind]}'"
        for kind in sorted(accepted - _OPERATORS)
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
