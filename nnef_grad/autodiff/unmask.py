"""Removes masks that are put on again later.

grad_l = select(m, grad_y, 0.0);               grad_x_unmasked = div(grad_y, x);
grad_x_unmasked = div(grad_l, x);       to     grad_x = select(m, grad_x_unmasked, 0.0);
grad_x = select(m, grad_x_unmasked, 0.0);
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nnef_grad.autodiff.cotangent_support import Selection, keeps, selection
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor, shape_of
from nnef_grad.graph.names import substitute

# Where the elements of a tensor matter: where all of some selections take them.
Demand = tuple[Selection, ...]
# Branches are seldom nested more deeply.
LIMIT = 8


def unmask(graph: Graph) -> Graph:
    """The graph without the masks of a derivative whose zeros have no effect.

    Ensures: every output has the same elements.
    """
    # Most graphs have none.
    if not any(map(_is_mask, graph.operations)):
        return graph
    demands = _demands(graph)
    found: dict[Tensor, Tensor] = {}
    operations = []
    for operation in graph.operations:
        operation = substitute(operation, found)
        source = _source_of(operation, demands)
        if source is None:
            operations.append(operation)
        else:
            found.update((t, source) for t in operation.outputs)
    return replace(graph, operations=tuple(operations))


def _is_mask(operation: Operation) -> bool:
    return operation.origin is not None and selection(operation) is not None


def _source_of(operation: Operation, demands: Mapping[Tensor, Demand]) -> Tensor | None:
    """The operand in place of a selection that is repeated wherever its zeros matter."""
    chosen = selection(operation)
    if chosen is None or not _is_mask(operation):
        return None
    result = operation.outputs[0]
    source = operation.operands[1 if chosen.holds else 2]
    if chosen not in demands.get(result, ()) or shape_of(source) != result.shape:
        return None
    return source if isinstance(source, Tensor) else None


def _demands(graph: Graph) -> dict[Tensor, Demand]:
    """The demand for each tensor, from the last operation to the first."""
    demands: dict[Tensor, Demand] = dict.fromkeys(graph.outputs, ())
    for operation in reversed(graph.operations):
        for operand, demand in _of_operands(operation, demands):
            known = demands.get(operand, demand)
            demands[operand] = tuple(s for s in known if s in demand)
    return demands


def _of_operands(
    operation: Operation, demands: Mapping[Tensor, Demand]
) -> Iterator[tuple[Tensor, Demand]]:
    if not keeps(operation):
        yield from ((tensor, ()) for tensor in operation.inputs)
        return
    result = operation.outputs[0]
    own = demands.get(result, ())
    for index, operand in enumerate(operation.operands):
        if isinstance(operand, Tensor):
            is_whole = operand.shape == result.shape and operand.dtype == "scalar"
            added = _of_branch(operation, index) if is_whole else ()
            yield operand, (*own, *added)[-LIMIT:] if is_whole else ()


def _of_branch(operation: Operation, index: int) -> Demand:
    """The demand that a select adds for one of its branches."""
    if operation.name != "select":
        return ()
    condition: Operand = operation.operands[0]
    return (Selection(condition, index == 1),) if isinstance(condition, Tensor) else ()
