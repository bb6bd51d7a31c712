"""Passes over what operations are called and how often they are there: copies,
repetitions, names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from nnef_grad.build.arguments import operation_key
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor
from nnef_grad.graph.names import NameSupply, substitute
from nnef_grad.language.library import standard
from nnef_grad.ops.traits import DATA, UNIQUE

# ---- Copies ----


def copies(graph: Graph) -> frozenset[Tensor]:
    """The tensors that are copies."""
    made = (op.outputs for op in graph.operations if op.name == "copy")
    return frozenset(tensor for outputs in made for tensor in outputs)


def remove_copies(graph: Graph, kept: Collection[Tensor]) -> Graph:
    """The graph without copies of tensors, but for the kept ones and the outputs."""
    stays, originals = {*kept, *graph.outputs}, dict[Tensor, Operand]()
    operations: list[Operation] = []
    for op in graph.operations:
        op = substitute(op, originals)
        is_copy = op.name == "copy" and isinstance(op.operands[0], Tensor)
        if is_copy and stays.isdisjoint(op.outputs):
            originals.update((tensor, op.operands[0]) for tensor in op.outputs)
        else:
            operations.append(op)
    return replace(graph, operations=tuple(operations)) if originals else graph


def remove_repetitions(graph: Graph) -> Graph:
    """The graph without operations that do what an earlier one does, but for those that
    make an output: nothing else reads what they make.
    """
    first: dict[object, Operation] = {}
    stays, originals = set(graph.outputs), dict[Tensor, Tensor]()
    operations: list[Operation] = []
    for op in graph.operations:
        op = substitute(op, originals)
        is_unique = op.name in UNIQUE
        earlier = op if is_unique else first.setdefault(operation_key(op), op)
        if earlier is not op:
            originals.update(zip(op.outputs, earlier.outputs, strict=True))
        if earlier is op or not stays.isdisjoint(op.outputs):
            operations.append(op)
    found = tuple(operations)
    return graph if found == graph.operations else replace(graph, operations=found)


def copy_outputs(graph: Graph) -> Graph:
    """The graph with copies as outputs where these are variables or constants."""
    names, outputs = NameSupply(graph.tensors), set(graph.outputs)
    renamed = {
        tensor: replace(tensor, name=names.fresh(f"{tensor.name}_data"))
        for op in graph.operations
        if op.name in DATA
        for tensor in op.outputs
        if tensor in outputs
    }
    copy = standard()["copy"]
    operations = [substitute(op, renamed) for op in graph.operations]
    operations += [
        Operation(copy, (new,), {}, (old,), dtype=old.dtype)
        for old, new in renamed.items()
    ]
    return replace(graph, operations=tuple(operations)) if renamed else graph


# ---- Names ----


# tract reads names that begin with these as literals.
_MISREAD = ("inf", "true", "false")


def rename_misread(graph: Graph) -> Graph:
    """The graph with other names for tensors whose names are misread."""
    names = NameSupply(graph.tensors)
    renamed = {
        tensor: replace(tensor, name=names.fresh(f"_{tensor.name}"))
        for tensor in graph.tensors.values()
        if tensor.name.startswith(_MISREAD)
    }
    return _renamed(graph, renamed) if renamed else graph


def _renamed(graph: Graph, renamed: Mapping[Tensor, Tensor]) -> Graph:
    names = {old.name: new.name for old, new in renamed.items()}
    notes = (
        f"  {names[name]}: what '{name}' is called here"
        for name in dict.fromkeys(t.name for t in (*graph.inputs, *graph.outputs))
        if name in names
    )
    return replace(
        graph,
        inputs=tuple(renamed.get(tensor, tensor) for tensor in graph.inputs),
        outputs=tuple(renamed.get(tensor, tensor) for tensor in graph.outputs),
        operations=tuple(substitute(op, renamed) for op in graph.operations),
        quantization={
            names.get(name, name): replace(q, tensor=names.get(name, name))
            for name, q in graph.quantization.items()
        },
        notes=(*graph.notes, *notes),
    )
