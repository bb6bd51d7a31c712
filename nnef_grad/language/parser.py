"""The parser: text to syntax tree, with Lark. The grammar is grammars/nnef.lark,
tree_builder.py builds the nodes, syntax_errors.py the messages.
"""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import lark
from lark import Lark
from lark.exceptions import UnexpectedInput

from nnef_grad.errors import (
    NnefSyntaxError,
)
from nnef_grad.language import syntax
from nnef_grad.language.syntax_errors import all_problems, syntax_error
from nnef_grad.language.tree_builder import TreeBuilder
from nnef_grad.source import Source, Span


def parse_document(source: Source) -> syntax.Document:
    """Reads a whole document.

    Raises:
        NnefSyntaxError: the text is not an NNEF 1.0 document; the error points at the
            first unexpected word of each faulty statement.
    """
    try:
        document: syntax.Document = _parse(source, source.text, 0, "document")
    except NnefSyntaxError as error:
        problems = all_problems(
            source, error, lambda text: _parse(source, text, 0, "document")
        )
        raise NnefSyntaxError.collect(problems) from None
    return document


def parse_fragments(
    source: Source, start: int = 0, end: int | None = None
) -> tuple[syntax.Fragment, ...]:
    """Reads the fragment definitions between two offsets of a source.

    Raises:
        NnefSyntaxError: the text holds something other than fragment definitions.
    """
    fragments: tuple[syntax.Fragment, ...] = _parse(
        source, source.text[start:end], start, "library"
    )
    return fragments


def parse_quantization(source: Source) -> tuple[syntax.Quantization, ...]:
    """Reads a file of quantization info.

    Raises:
        NnefSyntaxError: the text holds something other than entries of such a file.
    """
    entries: tuple[syntax.Quantization, ...] = _parse(
        source, source.text, 0, "quantization"
    )
    return entries


def _parse(source: Source, text: str, offset: int, start: str) -> Any:
    _refuse_binary(source)
    parser, builder, lock = _machinery()
    with lock:
        builder.begin(source, offset)
        try:
            return parser.parse(text, start=start)
        except UnexpectedInput as error:
            span = Span(source, offset, offset + len(text))
            raise syntax_error(error, span, parser) from None


@lru_cache(maxsize=1)
def _machinery() -> tuple[Lark, TreeBuilder, Lock]:
    """The parser, its builder, and a lock. The parser is generated once per process; it
    owns the builder, so that one text is parsed at a time.
    """
    builder = TreeBuilder()
    parser = Lark(
        grammar_path().read_text("utf-8"),
        parser="lalr",
        lexer="basic",
        start=["document", "library", "quantization"],
        transformer=builder,
        cache=_cache_path() or False,
    )
    return parser, builder, Lock()


def _cache_path() -> str | None:
    """The file that caches the generated tables: generating them would take a third of
    a run.

    Lark compares a digest of the grammar with the file, and generates the tables again
    where it differs or cannot be read. None if the user has no cache folder.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "nnef-grad")
    try:
        folder = folder.expanduser()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    major, minor = sys.version_info[:2]
    return str(folder / f"grammar-{lark.__version__}-python{major}.{minor}")


def grammar_path() -> Path:
    """The path of the grammar: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "grammars" / "nnef.lark"
    return (
        installed if installed.exists() else package.parent / "grammars" / "nnef.lark"
    )


_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")


def _refuse_binary(source: Source) -> None:
    """Refuses binary files, for which a syntax error would be misleading."""
    found = _CONTROL.search(source.text)
    if found:
        raise NnefSyntaxError(
            "this is not NNEF text: it contains a control character",
            Span(source, *found.span()),
        )
