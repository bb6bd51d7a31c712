"""Dead code elimination."""

from __future__ import annotations

from dataclasses import replace

from nnef_grad.graph.ir import Graph, Operation


def prune(graph: Graph) -> Graph:
    """The graph without the operations whose results are not used.

    Ensures: each remaining operation contributes to an output, or is an external.
    """
    needed = set(graph.outputs)
    kept: list[Operation] = []
    for operation in reversed(graph.operations):
        if operation.name == "external" or not needed.isdisjoint(operation.outputs):
            kept.append(operation)
            needed.update(operation.inputs)
    return replace(graph, operations=tuple(reversed(kept)))
