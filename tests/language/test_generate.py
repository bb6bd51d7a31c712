"""The tables of the parser are those of the grammar."""

from __future__ import annotations

import subprocess
import sys

from nnef_grad.language import generate
from nnef_grad.language.lalr import Automaton
from nnef_grad.language.parser import TABLES
from nnef_grad.language.tree_builder import TreeBuilder

ADVICE = "the grammar has changed: python -m nnef_grad.language.generate"


def test_the_tables_that_are_kept_are_those_of_the_grammar() -> None:
    assert TABLES.read_text("utf-8") == generate.text(generate.generated()), ADVICE


def test_every_rule_of_the_grammar_has_a_method() -> None:
    Automaton(generate.generated(), TreeBuilder())


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
