"""The parser: text to syntax tree, with Lark. The grammar is grammars/nnef.lark,
tree_builder.py builds the nodes, syntax_errors.py the messages.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

import lark
from lark import Lark
from lark.exceptions import UnexpectedInput

from nnef_grad.errors import NnefSyntaxError
from nnef_grad.language import syntax
from nnef_grad.language.syntax_errors import all_problems, syntax_error
from nnef_grad.language.tree_builder import TreeBuilder
from nnef_grad.source import Source, Span

Node = TypeVar("Node")

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")


def parse_document(source: Source) -> syntax.Document:
    """Reads a whole document.

    Raises:
        NnefSyntaxError: the text is not an NNEF 1.0 document; the error points at the
            first unexpected word of each faulty statement.
    """

    def parse(text: str) -> syntax.Document:
        return _parse(TreeBuilder.document, source, text)

    try:
        return parse(source.text)
    except NnefSyntaxError as error:
        problems = all_problems(source.text, error, parse)
        raise NnefSyntaxError.collect(problems) from None


def parse_fragments(
    source: Source, start: int = 0, end: int | None = None
) -> tuple[syntax.Fragment, ...]:
    """Reads the fragment definitions between two offsets of a source.

    Raises:
        NnefSyntaxError: the text holds something other than fragment definitions.
    """
    return _parse(TreeBuilder.library, source, source.text[start:end], start)


def parse_quantization(source: Source) -> tuple[syntax.Quantization, ...]:
    """Reads a file of quantization info.

    Raises:
        NnefSyntaxError: the text holds something other than entries of such a file.
    """
    return _parse(TreeBuilder.quantization, source, source.text)


def _parse(
    rule: Callable[[TreeBuilder, list[Any]], Node],
    source: Source,
    text: str,
    offset: int = 0,
) -> Node:
    """Reads a text, which is at an offset of a source, by a rule of the grammar."""
    control = _CONTROL.search(source.text)
    if control:
        # A syntax error would be misleading.
        message = "this is not NNEF text: it contains a control character"
        raise NnefSyntaxError(message, Span(source, *control.span()))
    parser, builder, lock = _machinery()
    with lock:
        builder.begin(source, offset)
        try:
            return cast("Node", parser.parse(text, start=rule.__name__))
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
    path = package / "grammars" / "nnef.lark"
    return path if path.exists() else package.parent / "grammars" / "nnef.lark"
