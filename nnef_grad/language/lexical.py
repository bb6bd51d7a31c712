"""The words of the language, and the layout of its texts."""

from __future__ import annotations

import re

PRIMITIVES = ("integer", "scalar", "logical", "string")
BUILTINS = ("shape_of", "length_of", "range_of")
# fmt: off
KEYWORDS = frozenset([
    *PRIMITIVES, *BUILTINS, "version", "extension", "graph", "fragment", "tensor",
    "for", "in", "yield", "if", "else", "true", "false",
])
_SYMBOLS = (
    "->", "<=", ">=", "==", "!=", "||", "&&", "(", ")", "[", "]", "{", "}", "<", ">",
    "+", "-", "*", "/", "^", "!", "?", "=", ":", ",", ";",
)
# fmt: on

# The kinds of words; that of a keyword or a symbol is the word itself.
NAME, NUMBER, STRING, DTYPE, LITERALS = "NAME", "NUMBER", "STRING", "DTYPE", "LITERALS"
PRIMITIVE, BUILTIN, END, UNKNOWN = "PRIMITIVE", "BUILTIN", "END", "UNKNOWN"
KINDS = {
    **{word: word for word in (*KEYWORDS, *_SYMBOLS)},
    **dict.fromkeys(PRIMITIVES, PRIMITIVE),
    **dict.fromkeys(BUILTINS, BUILTIN),
    "": END,
}

_ITEM = r"-?[0-9]{1,10}(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"
# Ignored text, and the word after it, in a group; the last one is empty. An array of several
# numbers is one word, as is a type in angle brackets.
WORD = re.compile(
    r"(?:[ \t\r\n\f\v]+|#[^\r\n\f]*)*(?:"
    rf"(?P<{LITERALS}>\[\s*{_ITEM}(?:\s*,\s*{_ITEM})+\s*\])"
    rf"|(?P<{DTYPE}><\s*(?:{'|'.join(PRIMITIVES)}|\?)\s*>)"
    rf"|(?P<{NAME}>[A-Za-z_][A-Za-z0-9_]*)"
    rf"|(?P<{NUMBER}>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
    rf"|(?P<{STRING}>'(?:[^'\\\r\n]|\\.)*'|\"(?:[^\"\\\r\n]|\\.)*\")"
    rf"|(?P<SYMBOL>{'|'.join(map(re.escape, _SYMBOLS))}|\Z)"
    rf"|(?P<{UNKNOWN}>[\s\S]))"
)

# Statements are indented; a line is broken where it would be longer.
INDENT = "    "
WIDTH = 100
