"""Passes over what operations are called and how often they are there: copies,
repetitions, names.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from nnef_grad.emit.firsts import Firsts
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor
from nnef_grad.graph.names import NameSupply, substitute
from nnef_grad.language.library import standard
from nnef_grad.ops.traits import DATA, UNIQUE


def remove_copies(graph: Graph, kept: Set[Tensor]) -> Graph:
    """The graph without copies of tensors, but for the kept ones and the outputs, and
    without operations that do what an earlier one does: if they make an output, they
    stay, but nothing else reads it.
    """
    outputs, firsts = set(graph.outputs), Firsts()
    stays = outputs | kept
    originals, operations = dict[Tensor, Operand](), list[Operation]()
    for op in graph.operations:
        if originals and not originals.keys().isdisjoint(op.inputs):
            op = substitute(op, originals)
        is_copy = op.name == "copy" and isinstance(op.operands[0], Tensor)
        if is_copy and stays.isdisjoint(op.outputs):
            originals[op.outputs[0]] = op.operands[0]
            continue
        earlier = op if op.name in UNIQUE else firsts.first(op)
        if earlier is not op:
            originals.update(zip(op.outputs, earlier.outputs, strict=True))
        if earlier is op or not outputs.isdisjoint(op.outputs):
            operations.append(op)
    found = tuple(operations)
    return graph if found == graph.operations else replace(graph, operations=found)


def copy_outputs(graph: Graph) -> Graph:
    """The graph with copies as outputs where these are variables or constants."""
    outputs = set(graph.outputs)
    data = [
        tensor
        for op in graph.operations
        if op.name in DATA
        for tensor in op.outputs
        if tensor in outputs
    ]
    if not data:
        return graph
    supply, names = NameSupply(graph.tensors), dict(graph.names)
    copies = {t: Tensor(t.dtype, t.shape) for t in data}
    for tensor, copy in copies.items():
        names[copy] = names[tensor]
        names[tensor] = supply.fresh(f"{names[copy]}_data")
    operations = [
        Operation(standard()["copy"], (tensor,), {}, (copy,), tensor.dtype)
        for tensor, copy in copies.items()
    ]
    return replace(
        graph,
        outputs=tuple(copies.get(tensor, tensor) for tensor in graph.outputs),
        operations=(*graph.operations, *operations),
        names=names,
    )
