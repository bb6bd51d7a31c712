"""Statements to graphs, and graphs to the statements that are written of them."""

from __future__ import annotations

import nnef_grad

OPERATORS = "extension KHR_enable_operator_expressions;\n"


FRAGMENTS = "extension KHR_enable_fragment_definitions;\n"


def graph_of(body: str, header: str = "") -> nnef_grad.Graph:
    text = (
        f"version 1.0;\n{header}\ngraph net( x, w ) -> ( y )\n{{\n"
        f"x = external(shape = [2, 3]);\nw = external(shape = [2, 3]);\n{body}\n}}\n"
    )
    return nnef_grad.loads(text)


def lines(graph: nnef_grad.Graph) -> list[str]:
    """The operations after the externals, as they are written."""
    text = nnef_grad.dumps(graph).split("{\n")[1].split("}")[0]
    return [line.strip() for line in text.splitlines() if "external" not in line]


def round_trip(graph: nnef_grad.Graph) -> None:
    text = nnef_grad.dumps(graph)
    again = nnef_grad.loads(text)
    assert again == graph
    assert nnef_grad.dumps(again) == text
