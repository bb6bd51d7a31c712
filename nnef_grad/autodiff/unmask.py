"""Removes masks that are put on again later.

grad_l = select(m, grad_y, 0.0);               grad_x_unmasked = div(grad_y, x);
grad_x_unmasked = div(grad_l, x);       to     grad_x = select(m, grad_x_unmasked, 0.0);
grad_x = select(m, grad_x_unmasked, 0.0);
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from nnef_grad.autodiff.cotangent_support import Selection, keeps, selection
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.names import substitute
from nnef_grad.ops.traits import LOGIC

# Where the elements of a tensor matter: where all of some selections take them.
Demand = tuple[Selection, ...]
# The logical operations, by their results.
Logic = Mapping[Tensor, Operation]
# Branches are seldom nested more deeply.
LIMIT = 8


def unmask(graph: Graph, is_new: Callable[[Tensor], bool]) -> Graph:
    """The graph without masks whose zeros have no effect, among what a derivative has
    added to the forward graph.

    Args:
        graph: a graph.
        is_new: whether a tensor is of the derivative.

    Ensures: every output has the same elements.
    """

    def mask(operation: Operation) -> Selection | None:
        return selection(operation) if is_new(operation.outputs[0]) else None

    # Most graphs have none.
    if not any(op.name == "select" and mask(op) for op in graph.operations):
        return graph
    demands = _demands(graph)
    found: dict[Tensor, Tensor] = {}
    operations = []
    for operation in graph.operations:
        operation = substitute(operation, found)
        chosen, (result, *_) = mask(operation), operation.outputs
        if chosen is not None and chosen in demands.get(result, ()):
            source = operation.operands[1 if chosen.holds else 2]
            if isinstance(source, Tensor) and source.shape == result.shape:
                found[result] = source
                continue
        operations.append(operation)
    return replace(graph, operations=tuple(operations))


def _demands(graph: Graph) -> dict[Tensor, Demand]:
    """The demand for each tensor, from the last operation to the first."""
    demands: dict[Tensor, Demand] = dict.fromkeys(graph.outputs, ())
    logic = {op.outputs[0]: op for op in graph.operations if op.name in LOGIC}
    for operation in reversed(graph.operations):
        for operand, demand in _of_operands(operation, demands, logic):
            known = demands.get(operand, demand)
            demands[operand] = tuple(s for s in known if s in demand)
    return demands


def _of_operands(
    operation: Operation, demands: Mapping[Tensor, Demand], logic: Logic
) -> Iterator[tuple[Tensor, Demand]]:
    if not keeps(operation):
        yield from ((tensor, ()) for tensor in operation.inputs)
        return
    result = operation.outputs[0]
    own = demands.get(result, ())
    for index, operand in enumerate(operation.operands):
        if isinstance(operand, Tensor):
            is_whole = operand.shape == result.shape and operand.dtype == "scalar"
            added = _of_branch(operation, index, logic) if is_whole else ()
            yield operand, (*own, *added)[-LIMIT:] if is_whole else ()


def _of_branch(operation: Operation, index: int, logic: Logic) -> Demand:
    """The demand that a select adds for one of its branches."""
    condition = operation.operands[0]
    if operation.name != "select" or not isinstance(condition, Tensor):
        return ()
    return _implied(Selection(condition, index == 1), logic)


def _implied(chosen: Selection, logic: Logic) -> Demand:
    """A selection, and some of those that it is the intersection of."""
    found = [chosen]
    for one in found:
        if len(found) < LIMIT:
            found += _parts(one, logic.get(one.condition))
    return tuple(found[:LIMIT])


def _parts(chosen: Selection, made: Operation | None) -> Iterator[Selection]:
    """The selections that one is the intersection of, given what made its condition."""
    if made is None:
        return
    if made.name == "not":
        yield Selection(made.inputs[0], not chosen.holds)
    elif made.name == ("and" if chosen.holds else "or"):
        yield from (Selection(tensor, chosen.holds) for tensor in made.inputs)
