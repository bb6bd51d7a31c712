"""The graph after each pass, printed for those who work on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nnef_grad.base.errors import Problem
from nnef_grad.commandline import console
from nnef_grad.graph.ir import Graph
from nnef_grad.graph.pipeline import watching
from nnef_grad.graph.printer import print_graph

ALL = "all"


@contextmanager
def printed_after(wanted: str | None) -> Iterator[None]:
    """Prints the graph on stderr after each pass of a name, or after all."""
    seen: dict[str, None] = {}

    def watch(name: str, graph: Graph) -> None:
        seen[name] = None
        if wanted in (name, ALL):
            console.print_message(f"# After {name}:\n{print_graph(graph)}")

    if wanted is None:
        yield
        return
    with watching(watch):
        yield
    if wanted not in seen and wanted != ALL:
        passes = ", ".join(seen) or "none"
        message = f"no pass '{wanted}' has changed the graph; these have: {passes}"
        console.print_message(Problem(message).render("warning"))
