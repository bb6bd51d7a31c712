"""Activity: the tensors that gradients flow through, between the tensors that are
differentiated with respect to and the outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from nnef_grad.autodiff.rules import Rules
from nnef_grad.graph.ir import Graph, Operation, Tensor


def active_tensors(
    graph: Graph,
    wrt: Iterable[Tensor],
    outputs: Iterable[Tensor],
    rules: Rules,
    stopped: Collection[Tensor] = (),
) -> set[Tensor]:
    """The scalar tensors that depend on one of `wrt`, and that one of the outputs depends
    on, with a derivative that is not zero. A stopped tensor depends on nothing.
    """
    dependent = set(wrt)
    for operation in graph.operations:
        is_fed = not dependent.isdisjoint(operation.inputs)
        if is_fed and not rules.derivation(operation).is_zero:
            found = (t for t in operation.outputs if t.dtype == "scalar")
            dependent.update(t for t in found if t not in stopped)
    needed = set(outputs)
    for operation in reversed(graph.operations):
        if any(t in needed and t not in stopped for t in operation.outputs):
            needed.update(dependent.intersection(operation.inputs))
    return dependent & needed


def is_active(operation: Operation, active: set[Tensor]) -> bool:
    """Whether gradients flow through an operation."""
    ends = operation.inputs, operation.outputs
    return not any(map(active.isdisjoint, ends))
