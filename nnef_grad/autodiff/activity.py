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
    dependent = {tensor.name for tensor in wrt}
    halted = {tensor.name for tensor in stopped}
    fed: list[tuple[Operation, Derivation]] = []
    for operation in graph.operations:
        if not _any_of(operation.inputs, dependent):
            continue
        derivation = rules.derivation(operation)
        fed.append((operation, derivation))
        if not derivation.is_zero:
            for tensor in operation.outputs:
                if tensor.dtype == "scalar" and tensor.name not in halted:
                    dependent.add(tensor.name)
    needed = {tensor.name for tensor in outputs}
    wanted = needed - halted
    for operation, _ in reversed(fed):
        if _any_of(operation.outputs, wanted):
            inputs = {t.name for t in operation.inputs if t.name in dependent}
            needed |= inputs
            wanted |= inputs - halted
    active = dependent & needed
    return Activity(active, [pair for pair in fed if _is_active(pair[0], active)])


def _any_of(tensors: Iterable[Tensor], names: set[str]) -> bool:
    return not names.isdisjoint([tensor.name for tensor in tensors])


def _is_active(operation: Operation, active: set[str]) -> bool:
    """Whether gradients flow through an operation."""
    return _any_of(operation.inputs, active) and _any_of(operation.outputs, active)
