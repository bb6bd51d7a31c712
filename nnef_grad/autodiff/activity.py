"""Activity: what gradients flow through, between the tensors that are differentiated with
respect to and the outputs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from typing import NamedTuple

from nnef_grad.autodiff.rules import Derivation, Rules
from nnef_grad.base.errors import Problem
from nnef_grad.graph.extents import OpenExtentError
from nnef_grad.graph.ir import Graph, Operation, Tensor


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
        try:
            derivation = rules.derivation(operation)
        except OpenExtentError as error:
            raise error.of(operation.name, operation.place) from None
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


def no_derivative(operation: Operation, limit: str) -> Problem:
    """The problem of an operation that has no derivative, within a limit."""
    what = f"'{operation.name}' has no derivative{f' {limit}' if limit else ''}"
    advice = f"write a rule '{operation.name}_vjp', or choose wrt and outputs"
    return Problem(f"{what}: {advice} without it in between", operation.span)


# ---- Concatenations of what an earlier one has joined already ----
#
# first = concat([a, b], axis = 1);
# second = concat([a, b, c], axis = 1);
#
# A densely connected network (Huang et al. 2017) joins the results of all layers so far, at
# each layer. What a and b receive from `second` is divided with what `first` receives: n
# layers then take n slices and sums, in place of a slice and a sum for each pair of layers.

CONCAT = "concat"


def of_shared_parts(
    operations: Iterable[Operation], active: Container[Tensor], named: Container[Tensor]
) -> dict[Operation, Operation]:
    """For concatenations that begin with all parts of an earlier one, the same of its
    result and of the other parts. What a tensor that the user named receives is that of
    its own uses.
    """
    # By the axis and the first parts, as there may be thousands of parts.
    alike = defaultdict[object, list[Operation]](list)
    shared = {}
    for operation in operations:
        parts = operation.inputs
        if operation.name != CONCAT or sum(part in active for part in parts) < 2:
            continue
        earlier = alike[(operation.attributes["axis"], *parts[:2])]
        for other in sorted(earlier, key=lambda op: -len(op.inputs)):
            end = len(other.inputs)
            is_shared = 1 < end < len(parts) and parts[:end] == other.inputs
            if is_shared and sum(part in active for part in other.inputs) > 1:
                operands = ((other.outputs[0], *parts[end:]),)
                shared[operation] = operation.rewired(operands, operation.results)
                break
        if operation.outputs[0] not in named:
            earlier.append(operation)
    return shared
