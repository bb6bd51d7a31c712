"""What is not a matter of what operations compute: copies, repetitions, names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.names import NameSupply, substitute
from nnef_grad.language.library import standard
from nnef_grad.ops.traits import DATA, UNIQUE

# ---- Copies ----


def copies(graph: Graph) -> frozenset[Tensor]:
    """What is made by copying."""
    made = (op.outputs for op in graph.operations if op.name == "copy")
    return frozenset(tensor for outputs in made for tensor in outputs)


def without_copies(graph: Graph, kept: Collection[Tensor]) -> Graph:
    """The graph without copies of tensors, but for the kept ones and the outputs."""
    stays, originals = {*kept, *graph.outputs}, dict[Tensor, Any]()
    operations: list[Operation] = []
    for op in graph.operations:
        op = substitute(op, originals)
        is_copy = op.name == "copy" and isinstance(op.operands[0], Tensor)
        if is_copy and stays.isdisjoint(op.outputs):
            originals.update((tensor, op.operands[0]) for tensor in op.outputs)
        else:
            operations.append(op)
    return replace(graph, operations=tuple(operations)) if originals else graph


def without_repetitions(graph: Graph) -> Graph:
    """The graph without operations that do what an earlier one does, but for those that
    make an output: nothing else reads what they make.
    """
    first: dict[tuple[object, ...], Operation] = {}
    stays, originals = set(graph.outputs), dict[Tensor, Tensor]()
    operations: list[Operation] = []
    for op in graph.operations:
        op = substitute(op, originals)
        earlier = first.setdefault(_key(op), op) if op.name not in UNIQUE else op
        if earlier is not op:
            originals.update(zip(op.outputs, earlier.outputs, strict=True))
        if earlier is op or not stays.isdisjoint(op.outputs):
            operations.append(op)
    found = tuple(operations)
    return graph if found == graph.operations else replace(graph, operations=found)


def _key(op: Operation) -> tuple[object, ...]:
    """Equal for operations that compute the same. `repr` tells 1 from 1.0 from true, and
    0.0 from -0.0.
    """
    return op.name, repr(op.operands), repr(op.attributes), op.dtype


def computed_outputs(graph: Graph) -> Graph:
    """The graph with copies as outputs where these are variables or constants."""
    names, outputs = NameSupply(graph.tensors), set(graph.outputs)
    renamed = {
        tensor: replace(tensor, name=names.fresh(f"{tensor.name}_data"))
        for op in graph.operations
        if op.name in DATA
        for tensor in op.outputs
        if tensor in outputs
    }
    if not renamed:
        return graph
    operations = [substitute(op, renamed) for op in graph.operations]
    operations += [_copy(new, old) for old, new in renamed.items()]
    return replace(graph, operations=tuple(operations))


def _copy(x: Tensor, y: Tensor) -> Operation:
    return Operation(standard()["copy"], (x,), {}, (y,), dtype=x.dtype)


# ---- Names ----


def without_prefixes(graph: Graph, prefixes: Sequence[str]) -> Graph:
    """The graph with other names for tensors whose names begin with something that is
    read as a literal.
    """
    names = NameSupply(graph.tensors)
    renamed = {
        tensor: replace(tensor, name=names.fresh(f"_{tensor.name}"))
        for tensor in graph.tensors.values()
        if tensor.name.startswith(tuple(prefixes))
    }
    return _renamed(graph, renamed) if prefixes and renamed else graph


def _renamed(graph: Graph, renamed: dict[Tensor, Tensor]) -> Graph:
    inputs = tuple(renamed.get(tensor, tensor) for tensor in graph.inputs)
    outputs = tuple(renamed.get(tensor, tensor) for tensor in graph.outputs)
    names = {old.name: new.name for old, new in renamed.items()}
    shown = {
        t.name: names[t.name] for t in (*graph.inputs, *graph.outputs) if t in renamed
    }
    quantization = {
        names.get(name, name): replace(q, tensor=names.get(name, name))
        for name, q in graph.quantization.items()
    }
    notes = tuple(f"  {new}: what '{old}' is called here" for old, new in shown.items())
    return replace(
        graph,
        inputs=inputs,
        outputs=outputs,
        operations=tuple(substitute(op, renamed) for op in graph.operations),
        quantization=quantization,
        notes=(*graph.notes, *notes),
    )
