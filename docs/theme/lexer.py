"""NNEF in colours."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, words
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
)

# By which pygments finds it.
__all__ = ["NnefLexer"]

KEYWORDS = (
    "version",
    "extension",
    "graph",
    "fragment",
    "for",
    "in",
    "if",
    "else",
    "yield",
)
TYPES = ("tensor", "scalar", "integer", "logical", "string")


class NnefLexer(RegexLexer):  # type: ignore[misc]
    """A document of NNEF 1.0, or a part of one."""

    name = "NNEF"
    aliases: ClassVar = ["nnef"]
    tokens: ClassVar = {
        "root": [
            (r"#[^\n]*", Comment.Single),
            (r"\s+", Text),
            (words(KEYWORDS, suffix=r"\b"), Keyword),
            (words(TYPES, suffix=r"\b"), Keyword.Type),
            (words(("true", "false"), suffix=r"\b"), Keyword.Constant),
            (r"'[^'\n]*'|\"[^\"\n]*\"", String),
            (r"\d+(\.\d+)?([eE][-+]?\d+)?", Number),
            (r"[A-Za-z_]\w*(?=\s*(<\w+>)?\()", Name.Function),
            (r"[A-Za-z_]\w*", Name),
            (r"->|&&|\|\||[<>=!]=|[-+*/^<>=!]", Operator),
            (r"[][(){},;:?]", Punctuation),
            (r".", Text),
        ]
    }
