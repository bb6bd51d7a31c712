"""The views of a graph in a notebook, a debugger and `print`: at most a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from nnef_grad.graph.ir import Graph, Operation, Tensor, Views
from nnef_grad.graph.printer import print_graph, print_operation, statements

# The lines or rows at the beginning and at the end that are shown, and of the notes.
FIRST, LAST = 40, 20
NOTES = 8
# The most characters of an operation, as a constant may have thousands.
WIDEST = 200
# The names listed of many inputs or outputs.
NAMED = 6

HEADINGS = "<tr><th>result</th><th>operation</th><th>type</th><th>shape</th></tr>"


def one_line(graph: Graph) -> str:
    """The name of a graph, its inputs and outputs, and how much is in it."""
    inputs, outputs = _listed(graph.input_names), _listed(graph.output_names)
    signature = f"( {inputs} ) -> ( {outputs} )"
    counts = f"operations: {len(graph.operations)}, variables: {len(graph.variables)}"
    return f"<graph {graph.name}{signature}, {counts}>"


def _listed(names: Sequence[str]) -> str:
    rest = f", and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + rest


def shortened_text(graph: Graph) -> str:
    """The text of a graph, without the middle where it is long."""
    lines = print_graph(graph).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("graph "))
    head = _shortened(lines[:start], NOTES, 0, "# ... {} more notes")
    more = "    # ... {} more lines: nnef_grad.dumps has them all"
    return "\n".join([*head, *_shortened(lines[start:], FIRST, LAST, more)])


def _shortened(lines: list[str], first: int, last: int, note: str) -> list[str]:
    left_out = len(lines) - first - last
    if left_out <= 1:
        return lines
    return [*lines[:first], note.format(f"{left_out:,}"), *lines[len(lines) - last :]]


def html(graph: Graph, title: str = "") -> str:
    """A table of the operations of a graph; of many, without those in the middle."""
    title = title or one_line(graph)[1:-1]
    more = '<tr><td colspan="4">... {} more</td></tr>'
    rows = [_row(op, graph.names) for op in graph.operations]
    rows = _shortened(rows, FIRST, LAST, more)
    return f"<p>{escape(title)}</p><table>{HEADINGS}{''.join(rows)}</table>"


def _row(op: Operation, names: Mapping[Tensor, str]) -> str:
    _, _, call = print_operation(op, names).partition(" = ")
    cells = [
        ", ".join(names[t] for t in op.outputs),
        call if len(call) <= WIDEST else f"{call[:WIDEST]} ...",
        ", ".join(dict.fromkeys(t.dtype for t in op.outputs)),
        ", ".join(dict.fromkeys(str(list(t.shape)) for t in op.outputs)),
    ]
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


Graph.views = Views(statements, one_line, shortened_text, html)
