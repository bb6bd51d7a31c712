"""The tables of the parser are those of the grammar."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nnef_grad.base.source import Source
from nnef_grad.language import generate, parser
from nnef_grad.language.lalr import TABLES, Automaton, grammar_path
from nnef_grad.language.tree_builder import TreeBuilder

ADVICE = "the grammar has changed: python -m nnef_grad.language.generate"


def test_the_tables_that_are_kept_are_those_of_the_grammar() -> None:
    found = generate.text(grammar_path().read_bytes())
    assert TABLES.read_text("utf-8") == found, ADVICE


def test_a_grammar_that_was_changed_has_tables_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammar = grammar_path().read_bytes().replace(b'"graph" NAME', b'"network" NAME')
    monkeypatch.setattr(parser, "grammar_path", lambda: tmp_path / "nnef.lark")
    (tmp_path / "nnef.lark").write_bytes(grammar)
    text = "version 1.0; network n( x ) -> ( y ) { y = copy(x); }"
    parser._machinery.cache_clear()
    try:
        assert parser.parse_document(Source("text", text)).graph.name == "n"
    finally:
        parser._machinery.cache_clear()


def test_every_rule_of_the_grammar_has_a_method() -> None:
    Automaton(generate.generated(grammar_path().read_bytes()), TreeBuilder())


def test_the_compiler_does_not_import_what_makes_the_tables() -> None:
    program = (
        "import sys, nnef_grad;"
        "nnef_grad.loads('version 1.0; graph g(x) -> (y) { x = external(shape = [1]); y = copy(x); }');"
        "print([name for name in sys.modules if name.split('.')[0] in ('lark', 'numpy')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"
