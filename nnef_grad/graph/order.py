"""Puts operations into the order that readers expect."""

from __future__ import annotations

from dataclasses import replace

from nnef_grad.graph.ir import Graph


def put_inputs_first(graph: Graph) -> Graph:
    """The graph with its externals in front, in the order of the signature: there are
    consumers that bind inputs by it.
    """
    externals = {
        t: op for op in graph.operations if op.name == "external" for t in op.outputs
    }
    others = (op for op in graph.operations if op.name != "external")
    return replace(graph, operations=(*(externals[t] for t in graph.inputs), *others))
