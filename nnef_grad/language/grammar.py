"""Where the grammar is, and the tables that generate.py makes of it."""

from __future__ import annotations

from pathlib import Path

# The output of generate.py, and a checksum of the grammar.
TABLES = Path(__file__).parent / "tables.json"


def grammar_path() -> Path:
    """The path of the grammar: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parents[1]
    path = package / "grammars" / "nnef.lark"
    return path if path.exists() else package.parent / "grammars" / "nnef.lark"
