"""Graphs in which some operations are others, on the tensors that there are. What emits new
ones is in emit/rewriting.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import is_
from typing import Any, Union

from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor, map_tensors

# What becomes of an operation: it stays, or another one is in its place; or it is gone, and
# what reads its results reads other operands.
Fate = Union[Operation, Mapping[Tensor, Operand]]


def sweep(graph: Graph, change: Callable[[Operation], Fate]) -> Graph:
    """The graph after a sweep from its first operation to its last, the same if nothing
    changes.

    `change` gets each operation on the operands that it reads by then. Where it returns
    operands in place of results, one may also be given in place of a tensor that was made
    before: its producer makes the other one then.
    """
    places, operations, is_late = dict[Tensor, Any](), list[Operation](), False
    for operation in graph.operations:
        if places and not places.keys().isdisjoint(operation.inputs):
            operation = substitute(operation, places)
        fate = change(operation)
        if isinstance(fate, Operation):
            operations.append(fate)
        else:
            places.update(fate)
            is_late = is_late or not fate.keys() <= {*operation.outputs}
    if is_late:
        operations = [substitute(operation, places) for operation in operations]
    elif not places and all(map(is_, operations, graph.operations)):
        return graph
    outputs = tuple([places.get(tensor, tensor) for tensor in graph.outputs])
    return replace(graph, operations=tuple(operations), outputs=outputs)


def with_others_read(graph: Graph, others: Mapping[Tensor, Operand]) -> Graph:
    """The graph with other operands read in the place of some tensors, which are gone."""

    def change(operation: Operation) -> Fate:
        result = operation.outputs[0]
        return {result: others[result]} if result in others else operation

    return sweep(graph, change)


def substitute(operation: Operation, tensors: Mapping[Tensor, Any]) -> Operation:
    """The operation with some of its tensors replaced."""
    if not tensors:
        return operation
    old = tensors.keys()
    if old.isdisjoint(operation.inputs) and old.isdisjoint(operation.outputs):
        return operation

    def replaced(tensor: Tensor) -> Any:
        return tensors.get(tensor, tensor)

    return operation.rewired(
        map_tensors(replaced, operation.operands),
        map_tensors(replaced, operation.results),
    )


def with_tensors(graph: Graph, tensors: Mapping[Tensor, Tensor]) -> Graph:
    """The graph with some of its tensors replaced, which keep their names."""
    changed = {old: new for old, new in tensors.items() if old is not new}
    names = {new: graph.names[old] for old, new in changed.items()}
    if not changed:
        return graph
    return replace(
        graph,
        inputs=tuple([changed.get(t, t) for t in graph.inputs]),
        outputs=tuple([changed.get(t, t) for t in graph.outputs]),
        operations=tuple([substitute(op, changed) for op in graph.operations]),
        names={**graph.names, **names},
    )
