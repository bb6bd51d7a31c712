"""Removes what the results do not need."""

from __future__ import annotations

from dataclasses import replace

from nnef_grad.graph.ir import Graph, Operation


def prune(graph: Graph) -> Graph:
    """The graph without the operations whose results nobody reads.

    Ensures: an operation that stays is on the way to an output, or makes an input of
    the graph.
    """
    needed = set(graph.outputs)
    kept: list[Operation] = []
    for operation in reversed(graph.operations):
        if operation.name == "external" or not needed.isdisjoint(operation.outputs):
            kept.append(operation)
            needed.update(operation.inputs)
    return replace(graph, operations=tuple(reversed(kept)))
