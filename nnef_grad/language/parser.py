"""The parser: text to syntax tree, and the messages of syntax errors. The grammar is
grammars/nnef.lark, generate.py makes tables of it, lalr.py runs these, tree_builder.py
builds the nodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from threading import Lock
from typing import TypeVar, cast
from zlib import crc32

from nnef_grad.base.errors import (
    MAX_PROBLEMS,
    NnefSyntaxError,
    Problem,
    Remedy,
    brief,
)
from nnef_grad.base.source import Source, Span
from nnef_grad.language import syntax
from nnef_grad.language.lalr import (
    TABLES,
    UNKNOWN,
    Automaton,
    Production,
    Tables,
    UnexpectedWordError,
    grammar_path,
)
from nnef_grad.language.tree_builder import TreeBuilder

Node = TypeVar("Node")

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")


def parse_document(
    source: Source, text: str | None = None, *, extended: bool = False
) -> syntax.Document:
    """Reads a document, whose `text` may have blanks for what is read elsewhere, and which
    may have names and strings of any text where it is `extended`. A syntax error points at
    the first unexpected word of each faulty statement.
    """
    text = source.text if text is None else text
    try:
        return _parse(TreeBuilder.document, source, text, extended=extended)
    except NnefSyntaxError as error:
        problems = _all_problems(source, text, error, extended)
        raise NnefSyntaxError.collect(problems) from None


def parse_fragments(
    source: Source, start: int = 0, end: int | None = None
) -> tuple[syntax.Fragment, ...]:
    """Reads the fragment definitions between two offsets of a source."""
    return _parse(TreeBuilder.library, source, source.text, start, end)


def parse_invocation(source: Source, start: int = 0) -> syntax.Invocation:
    """Reads an invocation from an offset on; it may have no parentheses."""
    return _parse(TreeBuilder.call, source, source.text, start)


def parse_quantization(
    source: Source, *, extended: bool = False
) -> tuple[syntax.Quantization, ...]:
    """Reads a file of quantization info, whose keys may be extended identifiers."""
    text = _KEY.sub(" ", source.text) if extended else source.text
    return _parse(TreeBuilder.quantization, source, text, extended=extended)


_KEY = re.compile(r"^i(?=[\"'])", re.MULTILINE)


def _parse(
    rule: Callable[..., Node],
    source: Source,
    text: str,
    start: int = 0,
    end: int | None = None,
    *,
    extended: bool = False,
) -> Node:
    """Reads a part of a text, which is that of a source, by a rule of the grammar."""
    end = len(text) if end is None else end
    control = _CONTROL.search(source.text, start, end)
    if control:
        # A syntax error would be misleading.
        message = "this is not NNEF text: it contains a control character"
        raise NnefSyntaxError(message, Span(source, *control.span()))
    automaton, builder, lock = _machinery(extended)
    with lock:
        builder.begin(source, any_text=extended)
        try:
            return cast("Node", automaton.parse(rule.__name__, text, start, end))
        except UnexpectedWordError as error:
            raise _syntax_error(error, Span(source, start, end), automaton) from None


@lru_cache(maxsize=2)
def _machinery(extended: bool) -> tuple[Automaton, TreeBuilder, Lock]:
    """The parser, its builder, and a lock: one text is parsed at a time."""
    builder, tables = TreeBuilder(), _tables(grammar_path().read_bytes())
    if extended:
        words = _EXTENDED.sub(lambda word: word[0] + _ANY_TEXT[word[1]], tables.words)
        tables = tables._replace(words=words)
    return Automaton(tables, builder), builder, Lock()


# What tract has beside the words of the standard: extended identifiers, and strings of several
# lines.
_EXTENDED = re.compile(r"\(\?P<(NAME|STRING)>")
_QUOTED = r"""(?:"(?:[^"\\]|\\[\s\S])*"|'(?:[^'\\]|\\[\s\S])*')"""
_ANY_TEXT = {"NAME": f"i{_QUOTED}|", "STRING": f"{_QUOTED}|"}


def _tables(grammar: bytes) -> Tables:
    """The tables of the grammar: those that are kept, unless it was changed since."""
    kept = json.loads(TABLES.read_text("utf-8"))
    if kept.pop("grammar") == crc32(grammar):
        kept["rules"] = [Production(*rule) for rule in kept["rules"]]
        return Tables(**kept)
    from nnef_grad.language.generate import generated

    return generated(grammar)


# ---- Syntax errors ----

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


def _syntax_error(
    error: UnexpectedWordError, text: Span, automaton: Automaton
) -> NnefSyntaxError:
    """The error about a word that does not follow, in a part of a text."""
    remedy: Remedy | None = None
    word = error.word[error.word.lastindex or 0]
    span = text._replace(start=error.word.end() - len(word), end=error.word.end())
    hint = _hint(word, error.accepted, automaton)
    if not word:
        end = text.start + len(text.text.rstrip())
        span = text._replace(start=max(text.start, end - 1), end=end)
        message = f"the text ends too early{hint}"
    elif word[0] in "'\"" and re.search(r"\bi$", text.source.text[: span.start]):
        message = f"i{brief(word)} is a name in tract's dialect, not in the standard"
        remedy = "dialect"
    elif error.word.lastgroup != UNKNOWN:
        message = f"unexpected '{brief(word)}'{hint}"
    elif word in "'\"":
        message = "a string that does not end on its line"
    else:
        message = f"unexpected character {word!r}"
    return NnefSyntaxError(message, span, remedy=remedy)


def _hint(word: str, accepted: set[str], automaton: Automaton) -> str:
    """The expected words, if they are few. `true` begins nothing but expressions."""
    words: list[str] = []
    if "TRUE" in accepted:
        words.append("an expression")
        accepted -= {*_WORDS, "LITERALS", "LSQB", "LPAR"}
    if "LESSTHAN" in accepted:
        accepted -= {"LSQB"}
    literals = {kind: literal for literal, kind in automaton.literals.items()}
    kinds = sorted(accepted - _OPERATORS)
    words += [_WORDS.get(kind) or f"'{literals[kind]}'" for kind in kinds]
    return f"; expected {' or '.join(words)}" if 0 < len(words) <= 4 else ""


def _all_problems(
    source: Source, text: str, error: NnefSyntaxError, extended: bool
) -> list[Problem]:
    """The first error, and those of texts with faulty statements blanked out: a few."""
    problems = list(error.problems)
    # Each costs a parse of the whole text.
    for _ in range(min(MAX_PROBLEMS, MAX_READ_AGAIN // (len(text) + 1))):
        statement = _statement(text, problems[-1].position())
        if statement is None:
            break
        start, end = statement
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
        try:
            _parse(TreeBuilder.document, source, text, extended=extended)
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
        if piece[0] in "{}" and not is_before:
            return None
        if piece[0] == "}":
            start = None
        elif piece[0] in ";{" and is_before:
            start = piece.end()
        elif piece[0] == ";" and start is not None:
            return start, piece.end()
    return None
