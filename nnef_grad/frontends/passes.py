"""Passes over what a front end has read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from dataclasses import replace
from typing import Any

from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.names import substitute
from nnef_grad.ops.traits import RESHAPING


def declare_as_read(graph: Graph, kept: Container[Tensor | None] = ()) -> Graph:
    """The graph with variables that are only read in another shape declared in this shape,
    such as a bias of [C] that is read as [1, C]; but for those that are to be kept.
    """
    readers: dict[Tensor, list[Operation]] = defaultdict(list)
    for op in graph.operations:
        for tensor in op.inputs:
            readers[tensor].append(op)
    reshaped: dict[Tensor, Tensor] = {}
    declared: dict[Tensor, Tensor] = {}
    for variable in graph.variables:
        found = readers[variable]
        shapes = {op.outputs[0].shape for op in found if op.name in RESHAPING}
        is_one = all(op.name in RESHAPING for op in found) and len(shapes) == 1
        if not is_one or variable in graph.outputs or variable in kept:
            continue
        (shape,) = shapes
        declared[variable] = Tensor(variable.dtype, shape)
        reshaped.update((op.outputs[0], declared[variable]) for op in found)
    if not declared or not reshaped.keys().isdisjoint(graph.outputs):
        return graph
    operations = []
    for op in graph.operations:
        if op.outputs[0] in declared:
            (variable,) = op.outputs
            attributes: Any = {**op.attributes, "shape": declared[variable].shape}
            operations.append(
                replace(op, results=(declared[variable],), attributes=attributes)
            )
        elif op.outputs[0] not in reshaped:
            operations.append(substitute(op, reshaped))
    names = {**graph.names, **{new: graph.names[old] for old, new in declared.items()}}
    return replace(graph, operations=tuple(operations), names=names)
