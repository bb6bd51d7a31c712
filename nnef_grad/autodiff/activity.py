"""Activity: what gradients flow through, between the tensors that are differentiated with
respect to and the outputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nnef_grad.autodiff.rules import Derivation, Rules
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.symbols import number_needed_by


class Activity(NamedTuple):
    """The tensors and operations that gradients flow through, these with their
    derivatives.

    A tensor is active that is scalar, depends on one that is differentiated with
    respect to, and is what an output depends on, with a derivative that is not zero.
    """

    tensors: set[Tensor]
    operations: list[tuple[Operation, Derivation]]


def find_activity(
    graph: Graph,
    wrt: Iterable[Tensor],
    outputs: Iterable[Tensor],
    rules: Rules,
    stopped: Iterable[Tensor] = (),
) -> Activity:
    """The activity between tensors and outputs; a stopped tensor depends on nothing."""
    dependent, halted = {*wrt}, {*stopped}
    moving: list[tuple[Operation, Derivation]] = []
    for operation in graph.operations:
        if dependent.isdisjoint(operation.inputs):
            continue
        with number_needed_by(operation):
            derivation = rules.derivation(operation)
        if derivation.is_zero:
            continue
        results = {t for t in operation.outputs if t.dtype == "scalar"} - halted
        if results:
            dependent |= results
            moving.append((operation, derivation))
    active = dependent.intersection(outputs)
    reached: list[tuple[Operation, Derivation]] = []
    for operation, derivation in reversed(moving):
        if not active.isdisjoint(operation.outputs):
            active.update(dependent.intersection(operation.inputs))
            reached.append((operation, derivation))
    return Activity(active, reached[::-1])
