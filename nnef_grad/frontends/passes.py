"""Passes over what a front end has read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from dataclasses import replace
from typing import Any

from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.names import substitute
from nnef_grad.ops.traits import RESHAPING


def declare_as_read(
    graph: Graph,
    kept: Container[Tensor | None] = (),
    readers: Container[str] | None = None,
) -> Graph:
    """The graph with variables that are only read in another shape declared in this shape,
    such as a bias of [C] that is read as [1, C].

    Args:
        graph: a graph.
        kept: variables that keep their shapes.
        readers: the operations that must read the other shape, if not all may.
    """
    read_by: dict[Tensor, list[Operation]] = defaultdict(list)
    for op in graph.operations:
        for tensor in op.inputs:
            read_by[tensor].append(op)
    declared: dict[Tensor, Tensor] = {}
    reshaped: dict[Tensor, Tensor] = {}
    for variable in graph.variables:
        found = [op.outputs[0] for op in read_by[variable] if op.name in RESHAPING]
        is_one = len({y.shape for y in found}) == 1 and len(found) == len(
            read_by[variable]
        )
        is_free = variable not in kept and {variable, *found}.isdisjoint(graph.outputs)
        names = {op.name for y in found for op in read_by[y]}
        if is_one and is_free and (readers is None or all(n in readers for n in names)):
            declared[variable] = Tensor(variable.dtype, found[0].shape)
            reshaped.update(dict.fromkeys(found, declared[variable]))
    operations = []
    for op in graph.operations:
        if op.outputs[0] in declared:
            made = declared[op.outputs[0]]
            attributes: Any = {**op.attributes, "shape": made.shape}
            operations.append(replace(op, results=(made,), attributes=attributes))
        elif op.outputs[0] not in reshaped:
            operations.append(substitute(op, reshaped))
    called = {**graph.names, **{new: graph.names[old] for old, new in declared.items()}}
    return replace(graph, operations=tuple(operations), names=called)
