"""Extensions, a line each or several in one: the grammar of Khronos' parser has both."""

from __future__ import annotations

import pytest

import nnef_grad

NAMES = ("KHR_enable_fragment_definitions", "KHR_enable_operator_expressions")
BODY = """
fragment twice( x: tensor<scalar> ) -> ( y: tensor<scalar> ) { y = 2.0 * x; }
graph net( x ) -> ( y ) { x = external(shape = [2]); y = twice(x) + 1.0; }
"""
LINES = {
    "one": f"extension {NAMES[0]}, {NAMES[1]};",
    "two": f"extension {NAMES[0]};\nextension {NAMES[1]};",
    "none between": f"extension {NAMES[0]},{NAMES[1]};",
}


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_names_of_extensions(lines: str) -> None:
    read = nnef_grad.loads(f"version 1.0;\n{lines}\n{BODY}")
    assert [op.name for op in read.operations] == ["external", "mul", "add"]


def test_khronos_parser_takes_them_in_one_line() -> None:
    nnef = pytest.importorskip("nnef")
    graph = nnef.parse_string(
        f"version 1.0;\n{LINES['one']}\n{BODY}", lowered=["twice"]
    )
    assert graph.outputs == ["y"]
