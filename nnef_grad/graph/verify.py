"""The verifier of graphs made by the compiler. A failure is a bug in the compiler."""

from __future__ import annotations

from nnef_grad.graph.ir import Graph


def verify(graph: Graph) -> None:
    """Checks that each tensor is defined once, before it is used, and that parsers
    accept the interface.

    Raises:
        AssertionError: the graph is not well-formed.
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
    outputs = [t.name for t in graph.outputs]
    assert defined.issuperset(outputs), "an output is not defined"
    assert len(set(outputs)) == len(outputs), "an output is returned twice"
    assert not set(outputs) & {t.name for t in graph.inputs}, (
        "an output is also an input"
    )
