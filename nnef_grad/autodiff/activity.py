"""Activity: what gradients flow through, between the tensors that are differentiated with
respect to and the outputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nnef_grad.autodiff.rules import Derivation, Rules
from nnef_grad.graph.ir import Graph, Operation, Tensor


class Activity(NamedTuple):
    """What gradients flow through.

    Attributes:
        tensors: the names of the active tensors, which are scalar, depend on a tensor that
            is differentiated with respect to, and are what an output depends on, with a
            derivative that is not zero.
        operations: those between active tensors, with their derivatives.
    """

    tensors: set[str]
    operations: list[tuple[Operation, Derivation]]


def find_activity(
    graph: Graph,
    wrt: Iterable[Tensor],
    outputs: Iterable[Tensor],
    rules: Rules,
    stopped: Iterable[Tensor] = (),
) -> Activity:
    """The activity between some tensors and the outputs; a stopped tensor depends on
    nothing.
    """
    dependent, halted = {*_names(wrt)}, {*_names(stopped)}
    fed: list[tuple[Operation, Derivation]] = []
    for operation in graph.operations:
        if dependent.isdisjoint(_names(operation.inputs)):
            continue
        derivation = rules.derivation(operation)
        fed.append((operation, derivation))
        if not derivation.is_zero:
            scalars = [t for t in operation.outputs if t.dtype == "scalar"]
            dependent.update([t for t in _names(scalars) if t not in halted])
    needed = {*_names(outputs)}
    for operation, _ in reversed(fed):
        open_ends = [t for t in _names(operation.outputs) if t not in halted]
        if not needed.isdisjoint(open_ends):
            needed.update([t for t in _names(operation.inputs) if t in dependent])
    active = dependent & needed
    return Activity(active, [pair for pair in fed if _is_active(pair[0], active)])


def _names(tensors: Iterable[Tensor]) -> list[str]:
    return [tensor.name for tensor in tensors]


def _is_active(operation: Operation, active: set[str]) -> bool:
    """Whether gradients flow through an operation."""
    takes, gives = _names(operation.inputs), _names(operation.outputs)
    return not (active.isdisjoint(takes) or active.isdisjoint(gives))
