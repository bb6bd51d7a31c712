"""The order of operations that consumers of a graph expect."""

from __future__ import annotations

from dataclasses import replace

from nnef_grad.graph.ir import Graph


def put_inputs_first(graph: Graph) -> Graph:
    """The graph with its externals first, in the order of the signature: some consumers
    bind inputs by it.
    """
    externals = {
        t: op for op in graph.operations if op.name == "external" for t in op.outputs
    }
    others = (op for op in graph.operations if op.name != "external")
    return replace(graph, operations=(*(externals[t] for t in graph.inputs), *others))
