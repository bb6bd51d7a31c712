"""The words of the language, and the layout of its texts."""

from __future__ import annotations

# fmt: off
KEYWORDS = frozenset([
    "version", "extension", "graph", "fragment", "tensor", "integer", "scalar", "logical",
    "string", "shape_of", "length_of", "range_of", "for", "in", "yield", "if", "else",
    "true", "false",
])
# fmt: on

# Statements are indented; a line is broken where it would be longer.
INDENT = "    "
WIDTH = 100
