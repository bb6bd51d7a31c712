"""Replaces compound operations by their bodies."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from nnef_grad import names
from nnef_grad.emit import Emitter
from nnef_grad.evaluate import Evaluator, parameters
from nnef_grad.ir import Graph, Operation
from nnef_grad.library import standard
from nnef_grad.simplify import simplify


def inline(
    graph: Graph, operations: Collection[Operation], nested: Callable[[str], bool]
) -> Graph:
    """The graph with the bodies of some operations in their place.

    Args:
        graph: a flat graph.
        operations: those to replace; each has a body.
        nested: whether an operation of that name inside a body is replaced too, if it
            has a body of its own.

    Ensures: every tensor of the graph keeps its name; new ones are called after the
    result that they lead to.
    """
    library = standard()
    chosen = set(map(id, operations))
    emitter = Emitter(library, simplify=simplify)
    evaluator = Evaluator(
        emitter, lambda fragment: fragment.body is not None and nested(fragment.name)
    )
    for operation in graph.operations:
        if id(operation) in chosen:
            _put_body(operation, evaluator)
        else:
            emitter.append(operation)
    flat = replace(graph, operations=tuple(emitter.operations))
    return names.settle(flat, emitter.hints, emitter.pinned, reserved=graph.tensors)


def _put_body(operation: Operation, evaluator: Evaluator) -> None:
    definition = operation.definition
    subject = next(operation.outputs).name
    bound = parameters(definition, operation.operands, operation.attributes)
    result_name = definition.results[0].name if len(definition.results) == 1 else None
    values = evaluator.inlined(
        definition,
        bound,
        lambda name: subject if name == result_name else f"{subject}_{name}",
        operation.span,
    )
    emitter = evaluator.emitter
    for result, value in zip(operation.results, values.values()):
        parts = zip(result, value) if isinstance(result, tuple) else [(result, value)]
        for tensor, part in parts:
            emitter.named(part, tensor.name)
