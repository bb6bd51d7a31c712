"""Replaces operations by their bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from typing import Any

from nnef_grad.base.errors import InvalidGraphError, located
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.simplify import simplify
from nnef_grad.graph.ir import Graph, Operation, Tensor, shape_of
from nnef_grad.graph.names import step_names, substitute
from nnef_grad.graph.symbols import number_needed_by
from nnef_grad.ops.opset import OpSet

Decompose = Callable[[Emitter, Operation], Sequence[Any]]


def inline(
    graph: Graph,
    body: Callable[[Operation], Decompose | None],
    opset: OpSet | None = None,
    distinct: Set[Tensor] = frozenset(),
) -> Graph:
    """The graph with bodies, which `body` gives, in the place of operations."""
    return put_bodies(graph, [body(op) for op in graph.operations], opset, distinct)


def put_bodies(
    graph: Graph,
    bodies: Sequence[Decompose | None],
    opset: OpSet | None = None,
    distinct: Set[Tensor] = frozenset(),
) -> Graph:
    """The graph with the bodies of some operations in their place; the same one, if all
    operations stay. Its tensors keep their names, and new ones are called after the
    result that they lead to.

    Args:
        graph: a flat graph.
        bodies: for each operation to replace, what emits its body and returns a value for
            each of its results; None for each operation that stays.
        opset: the operations that the bodies may hold besides those of the graph; the
            standard's, if not given.
        distinct: tensors that no body may share, though it computes the same.
    """
    if not any(bodies):
        return graph
    declared = (opset or OpSet()).extended(graph.fragments)
    emitter = Emitter(declared, graph.names, simplify, opaque=distinct)
    results: dict[Tensor, Tensor] = {}
    for operation, body in zip(graph.operations, bodies, strict=True):
        if body is None:
            is_shared = distinct.isdisjoint(operation.outputs)
            emitter.append(operation, is_shared=is_shared)
        else:
            _put(body, operation, emitter, results)
    operations = tuple([substitute(op, results) for op in emitter.operations])
    names = emitter.assigned_names(operations, reserved=graph.tensors)
    return replace(graph, operations=operations, names=names)


def _put(
    build: Decompose,
    operation: Operation,
    emitter: Emitter,
    results: dict[Tensor, Tensor],
) -> None:
    """Emits a body in the place of an operation. `results` gets, for tensors that the body
    made, the results of the operation in whose places they are.
    """
    declared = operation.definition.results
    subject = emitter.names[operation.outputs[0]]
    # A single result has the name of the operation's.
    own = {declared[0].name: subject} if len(declared) == 1 else {}
    emitter.naming = step_names(f"{subject}_{{}}", own)
    emitter.origin, emitter.span = operation.origin, operation.span
    with located(operation.span), number_needed_by(operation):
        values = build(emitter, operation)
    for result, value in zip(operation.results, values, strict=True):
        is_array = isinstance(result, tuple)
        whole = (result, value) if is_array else ((result,), (value,))
        for tensor, part in zip(*whole, strict=True):
            if (shape := shape_of(part)) != tensor.shape:
                message = (
                    f"the body of '{operation.name}' gives a tensor of shape {list(shape)}"
                    f" for '{emitter.names[tensor]}' of shape {list(tensor.shape)}"
                )
                raise InvalidGraphError(message, operation.span)
            is_new = isinstance(part, Tensor) and emitter.is_new(part)
            if is_new and part not in results:
                results[part] = tensor
            elif part is not tensor:
                emitter.emit_to(tensor, "copy", part)
    emitter.note_producer(operation)
