"""Replaces operations by their bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from typing import Any

from nnef_grad.build.emitter import Emitter
from nnef_grad.build.simplify import simplify
from nnef_grad.errors import InvalidGraphError, located
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.names import assign_names, step_names
from nnef_grad.graph.symbols import number_needed_by
from nnef_grad.ops.opset import OpSet

Decompose = Callable[[Emitter, Operation], Sequence[Any]]


def inline(
    graph: Graph,
    body: Callable[[Operation], Decompose | None],
    opset: OpSet | None = None,
    distinct: Set[Tensor] = frozenset(),
) -> Graph:
    """The graph with the bodies of some operations in their place: see `put_bodies`.

    Args:
        body: for an operation to replace, what emits its body; None for one that stays.
    """
    return put_bodies(graph, [body(op) for op in graph.operations], opset, distinct)


def put_bodies(
    graph: Graph,
    bodies: Sequence[Decompose | None],
    opset: OpSet | None = None,
    distinct: Set[Tensor] = frozenset(),
) -> Graph:
    """The graph with the bodies of some operations in their place.

    Args:
        graph: a flat graph.
        bodies: for each operation to replace, what emits its body and returns a value for
            each of its results; None for each operation that stays.
        opset: the operations that the bodies may hold besides those of the graph; the
            standard's, if not given.
        distinct: tensors that no body may share, though it computes the same.

    Returns:
        The graph; the same one, if all operations stay.

    Ensures: every tensor of the graph keeps its name; new ones are called after the
    result that they lead to.
    """
    if not any(bodies):
        return graph
    opset = opset or OpSet()
    emitter = Emitter(opset.extended(graph.fragments), simplify=simplify)
    for operation, body in zip(graph.operations, bodies, strict=True):
        if body is None:
            is_shared = not distinct or distinct.isdisjoint(operation.outputs)
            emitter.append(operation, is_shared=is_shared)
        else:
            _put(body, operation, emitter)
    flat = replace(graph, operations=tuple(emitter.operations))
    assign_names(flat, emitter.hints, emitter.pinned, reserved=graph.tensors)
    return flat


def _put(build: Decompose, operation: Operation, emitter: Emitter) -> None:
    subject, declared = operation.outputs[0].name, operation.definition.results
    # A single result has the name of the operation's.
    own = {declared[0].name: subject} if len(declared) == 1 else {}
    emitter.naming = step_names(f"{subject}_{{}}", own)
    emitter.origin, emitter.span = operation.origin, operation.span
    with located(operation.span), number_needed_by(operation):
        values = build(emitter, operation)
    for result, value in zip(operation.results, values, strict=True):
        parts = (
            zip(result, value, strict=True)
            if isinstance(result, tuple)
            else [(result, value)]
        )
        for tensor, part in parts:
            named = emitter.pin_name(part, tensor.name)
            if named.shape != tensor.shape:
                message = (
                    f"the body of '{operation.name}' gives a tensor of shape"
                    f" {list(named.shape)} for '{tensor.name}' of shape {list(tensor.shape)}"
                )
                raise InvalidGraphError(message, operation.span)
    emitter.note_producer(operation)
