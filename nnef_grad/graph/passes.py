"""Passes over whole graphs: dead code elimination, the order that consumers expect, and
the verifier of graphs made by the compiler.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from nnef_grad.graph.ir import Graph, Operation
from nnef_grad.language.library import standard


def count_uses(graph: Graph) -> Counter[str]:
    """How often each tensor is an operand or an output, by its name."""
    uses = Counter([tensor.name for op in graph.operations for tensor in op.inputs])
    uses.update([tensor.name for tensor in graph.outputs])
    return uses


def prune(graph: Graph) -> Graph:
    """The graph without the operations whose results are not used; the same one, if there
    are none.

    Ensures: each remaining operation contributes to an output, or is an external.
    """
    needed = {tensor.name for tensor in graph.outputs}
    kept: list[Operation] = []
    for operation in reversed(graph.operations):
        is_needed = operation.name == "external"
        for tensor in operation.outputs:
            is_needed = is_needed or tensor.name in needed
        if is_needed:
            kept.append(operation)
            for tensor in operation.inputs:
                needed.add(tensor.name)
    if len(kept) == len(graph.operations):
        return graph
    return replace(graph, operations=tuple(reversed(kept)))


def put_inputs_first(graph: Graph) -> Graph:
    """The graph with its externals first, in the order of the signature: some consumers
    bind inputs by it.
    """
    externals = {op.outputs[0]: op for op in graph.operations if op.name == "external"}
    others = [op for op in graph.operations if op.name != "external"]
    return replace(graph, operations=(*(externals[t] for t in graph.inputs), *others))


def replace_variables(graph: Graph) -> Graph:
    """The graph with its variables as further inputs, after its own, in the order of their
    declaration: their values are no longer part of the model.
    """
    operations = tuple(
        replace(
            op,
            definition=standard()["external"],
            attributes={"shape": op.attributes["shape"]},
        )
        if op.name == "variable"
        else op
        for op in graph.operations
    )
    inputs = (*graph.inputs, *graph.variables)
    return put_inputs_first(replace(graph, inputs=inputs, operations=operations))


def verify(graph: Graph) -> None:
    """Checks that each tensor is defined once, before it is used, and that parsers
    accept the interface.

    Raises:
        AssertionError: the graph is not well-formed, by a bug in the compiler.
    """
    defined: set[str] = set()
    for operation in graph.operations:
        for tensor in operation.inputs:
            assert tensor.name in defined, (
                f"'{tensor.name}' is used before it is defined"
            )
        for tensor in operation.outputs:
            assert tensor.name not in defined, f"'{tensor.name}' is defined twice"
            defined.add(tensor.name)
    outputs = [tensor.name for tensor in graph.outputs]
    assert defined.issuperset(outputs), "an output is not defined"
    assert len(set(outputs)) == len(outputs), "an output is returned twice"
    inputs = {tensor.name for tensor in graph.inputs}
    assert inputs.isdisjoint(outputs), "an output is also an input"
