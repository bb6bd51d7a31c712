"""Replaces operations by their bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from nnef_grad import names
from nnef_grad.emit import Emitter
from nnef_grad.errors import InvalidGraphError, located
from nnef_grad.ir import Graph, Operation
from nnef_grad.library import custom
from nnef_grad.rules import Rules
from nnef_grad.simplify import simplify

Build = Callable[[Emitter, Operation], Sequence[Any]]


def inline(
    graph: Graph,
    body: Callable[[Operation], Build | None],
    rules: Rules | None = None,
) -> Graph:
    """The graph with the bodies of some operations in their place.

    Args:
        graph: a flat graph.
        body: for an operation to replace, what emits its body and returns a value for
            each of its results; None for an operation that stays.
        rules: know the user's operations that the bodies hold, and their shapes.

    Returns:
        The graph; the same one, if all operations stay.

    Ensures: every tensor of the graph keeps its name; new ones are called after the
    result that they lead to.
    """
    builds = [body(operation) for operation in graph.operations]
    if not any(builds):
        return graph
    rules = rules if rules is not None else Rules()
    library = rules.library(graph.fragments)
    emitter = Emitter(library, simplify=simplify, shapes=rules.shapes)
    for operation, build in zip(graph.operations, builds, strict=True):
        if build is None:
            emitter.append(operation)
        else:
            _put(build, operation, emitter)
    operations = tuple(emitter.operations)
    flat = replace(graph, operations=operations, fragments=custom(operations))
    return names.settle(flat, emitter.hints, emitter.pinned, reserved=graph.tensors)


def _put(build: Build, operation: Operation, emitter: Emitter) -> None:
    emitter.naming = _naming(operation)
    emitter.origin = operation.origin
    for result, value in zip(
        operation.results, _values(build, operation, emitter), strict=True
    ):
        parts = (
            zip(result, value, strict=True)
            if isinstance(result, tuple)
            else [(result, value)]
        )
        for tensor, part in parts:
            named = emitter.named(part, tensor.name)
            if named.shape != tensor.shape:
                message = (
                    f"the body of '{operation.name}' gives a tensor of shape"
                    f" {list(named.shape)} for '{tensor.name}' of shape {list(tensor.shape)}"
                )
                raise InvalidGraphError(message, operation.span)
    emitter.replaced(operation)


def _values(build: Build, operation: Operation, emitter: Emitter) -> Sequence[Any]:
    """What the body returns. What it cannot be is told at the operation."""
    with located(operation.span):
        return build(emitter, operation)


def _naming(operation: Operation) -> Callable[[str], str]:
    subject = next(operation.outputs).name
    results = operation.definition.results
    own = results[0].name if len(results) == 1 else None
    return lambda name: subject if name == own else f"{subject}_{name}"
