"""Removes masks that are put on again later.

grad_l = select(m, grad_y, 0.0);               grad_x_unmasked = div(grad_y, x);
grad_x_unmasked = div(grad_l, x);       to     grad_x = select(m, grad_x_unmasked, 0.0);
grad_x = select(m, grad_x_unmasked, 0.0);
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nnef_grad.autodiff.confine import Selection, keeps, selection
from nnef_grad.graph.ir import Graph, Operation, Tensor, tensors
from nnef_grad.graph.rewriting import Fate, sweep
from nnef_grad.ops.traits import LOGIC

# Where the elements of a tensor matter: where all of some selections take them.
Demand = tuple[Selection, ...]
# Branches are seldom nested more deeply.
LIMIT = 8


def unmask(graph: Graph, is_new: Callable[[Tensor], bool]) -> Graph:
    """The graph, whose outputs have the same elements, without masks whose zeros have
    no effect, among the tensors that are new: of a derivative, and not of the forward
    graph.
    """
    selections = ((op.outputs, selection(op)) for op in graph.operations)
    masks = {out[0]: mask for out, mask in selections if mask and is_new(out[0])}
    # Most graphs have none.
    if not masks:
        return graph
    demands = _demands(graph)

    def unmasked(operation: Operation) -> Fate:
        result = operation.outputs[0]
        mask = masks.get(result)
        if mask is not None and mask in demands.get(result, ()):
            source = operation.operands[1 if mask.holds else 2]
            if isinstance(source, Tensor) and source.shape == result.shape:
                return {result: source}
        return operation

    return sweep(graph, unmasked)


def _demands(graph: Graph) -> dict[Tensor, Demand]:
    """The demand for each tensor, from the last operation to the first."""
    demands: dict[Tensor, Demand] = dict.fromkeys(graph.outputs, ())
    logic = {op.outputs[0]: op for op in graph.operations if op.name in LOGIC}
    for operation in reversed(graph.operations):
        result = operation.outputs[0]
        for index, operand in enumerate(operation.operands):
            for tensor in tensors((operand,)):
                demand: Demand = ()
                is_whole = tensor.shape == result.shape and tensor.dtype == "scalar"
                if is_whole and keeps(operation):
                    branch = _of_branch(operation, index, logic)
                    demand = (*demands.get(result, ()), *branch)[-LIMIT:]
                others = demands.get(tensor, demand)
                demands[tensor] = tuple(s for s in others if s in demand)
    return demands


def _of_branch(
    operation: Operation, index: int, logic: Mapping[Tensor, Operation]
) -> Demand:
    """The demand that a select adds for one of its branches: its selection, and some of
    those that this is the intersection of, given the logical operations.
    """
    condition = operation.operands[0]
    if operation.name != "select" or not isinstance(condition, Tensor):
        return ()
    implied = [Selection(condition, index == 1)]
    for one in implied:
        logical = logic.get(one.condition)
        if logical is not None and logical.name == "not":
            implied.append(Selection(logical.inputs[0], not one.holds))
        elif logical is not None and logical.name == ("and" if one.holds else "or"):
            implied += (Selection(tensor, one.holds) for tensor in logical.inputs)
        if len(implied) >= LIMIT:
            break
    return tuple(implied[:LIMIT])
