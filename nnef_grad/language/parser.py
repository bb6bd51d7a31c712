"""The parser: text to syntax tree. The grammar is grammars/nnef.lark, generate.py makes
tables of it, lalr.py runs these, tree_builder.py builds the nodes, syntax_errors.py the
messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from threading import Lock
from typing import TypeVar, cast
from zlib import crc32

from nnef_grad.base.errors import NnefSyntaxError
from nnef_grad.base.source import Source, Span
from nnef_grad.language import syntax
from nnef_grad.language.lalr import (
    TABLES,
    Automaton,
    Rule,
    Tables,
    UnexpectedWordError,
    grammar_path,
)
from nnef_grad.language.syntax_errors import all_problems, syntax_error
from nnef_grad.language.tree_builder import TreeBuilder

Node = TypeVar("Node")

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")


def parse_document(source: Source, text: str | None = None) -> syntax.Document:
    """Reads a whole document.

    Args:
        source: the document.
        text: its text, with blanks in place of what is read elsewhere.

    Raises:
        NnefSyntaxError: the text is not an NNEF 1.0 document; the error points at the
            first unexpected word of each faulty statement.
    """

    def parse(text: str) -> syntax.Document:
        return _parse(TreeBuilder.document, source, text)

    text = source.text if text is None else text
    try:
        return parse(text)
    except NnefSyntaxError as error:
        problems = all_problems(text, error, parse)
        raise NnefSyntaxError.collect(problems) from None


def parse_fragments(
    source: Source, start: int = 0, end: int | None = None
) -> tuple[syntax.Fragment, ...]:
    """Reads the fragment definitions between two offsets of a source.

    Raises:
        NnefSyntaxError: the text holds something other than fragment definitions.
    """
    return _parse(TreeBuilder.library, source, source.text, start, end)


def parse_invocation(source: Source, start: int = 0) -> syntax.Invocation:
    """Reads an invocation from an offset of a source on: a name, with arguments in
    parentheses if there are any.

    Raises:
        NnefSyntaxError: the text holds something else.
    """
    return _parse(TreeBuilder.call, source, source.text, start)


def parse_quantization(source: Source) -> tuple[syntax.Quantization, ...]:
    """Reads a file of quantization info.

    Raises:
        NnefSyntaxError: the text holds something other than entries of such a file.
    """
    return _parse(TreeBuilder.quantization, source, source.text)


def _parse(
    rule: Callable[..., Node],
    source: Source,
    text: str,
    start: int = 0,
    end: int | None = None,
) -> Node:
    """Reads a part of a text, which is that of a source, by a rule of the grammar."""
    control = _CONTROL.search(source.text)
    if control:
        # A syntax error would be misleading.
        message = "this is not NNEF text: it contains a control character"
        raise NnefSyntaxError(message, Span(source, *control.span()))
    automaton, builder, lock = _machinery()
    end = len(text) if end is None else end
    with lock:
        builder.begin(source)
        try:
            return cast("Node", automaton.parse(rule.__name__, text, start, end))
        except UnexpectedWordError as error:
            whole = Span(source, start, end)
            raise syntax_error(error, whole, automaton) from None


@lru_cache(maxsize=1)
def _machinery() -> tuple[Automaton, TreeBuilder, Lock]:
    """The parser, its builder, and a lock: as the parser owns the builder, one text is
    parsed at a time.
    """
    builder = TreeBuilder()
    return Automaton(_tables(grammar_path().read_bytes()), builder), builder, Lock()


def _tables(grammar: bytes) -> Tables:
    """The tables of the grammar: those that are kept, unless it was changed since."""
    kept = json.loads(TABLES.read_text("utf-8"))
    if kept.pop("grammar") == crc32(grammar):
        return Tables(**{**kept, "rules": [Rule(*rule) for rule in kept["rules"]]})
    from nnef_grad.language.generate import generated

    return generated(grammar)
