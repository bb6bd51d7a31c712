"""Checks what the compiler itself made. A failure here is a bug of the compiler, or of a rule."""

from __future__ import annotations

from nnef_grad.emit import Emitter
from nnef_grad.ir import Graph, Tensor, tensors
from nnef_grad.library import standard


def verify(graph: Graph) -> None:
    """Checks that a graph is well-formed, and that each tensor has the shape and type that its operation gives it.

    Raises:
        AssertionError: it is not.
    """
    defined: set[str] = set()
    emitter = Emitter(standard())
    for operation in graph.operations:
        for tensor in operation.inputs:
            assert tensor.name in defined, f"'{tensor.name}' is used before it is defined"
        results = emitter.call(
            operation.definition, operation.operands, operation.attributes, dtype=operation.dtype, span=operation.span
        )
        for tensor, inferred in zip(operation.outputs, tensors(results)):
            assert tensor.name not in defined, f"'{tensor.name}' is defined twice"
            assert _type(tensor) == _type(inferred), f"'{tensor.name}' is {_type(tensor)}, and {operation.name} gives {_type(inferred)}"
            defined.add(tensor.name)
    outputs = [t.name for t in graph.outputs]
    assert defined.issuperset(outputs), "an output is not defined"
    assert len(set(outputs)) == len(outputs), "an output is returned twice"
    assert not set(outputs) & {t.name for t in graph.inputs}, "an output is also an input"


def _type(tensor: Tensor) -> tuple[str, tuple[int, ...]]:
    return tensor.dtype, tensor.shape
