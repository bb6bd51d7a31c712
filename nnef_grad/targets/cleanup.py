"""Passes over what operations are called and how often they are there: copies,
repetitions, names.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from nnef_grad.build.arguments import operation_key, settings_key
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor
from nnef_grad.graph.names import NameSupply, substitute
from nnef_grad.language.library import standard
from nnef_grad.ops.traits import DATA, UNIQUE


class Keys:
    """The keys of operations, by their identity: most operations stay from round to round.
    They are kept alive, so that no other operation gets the same identity.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[Operation, object]] = {}

    def of(self, op: Operation) -> object:
        """Equal for what computes the same; of an operation that is not shared, its own."""
        found = self._found.get(id(op))
        if found is None:
            is_unique = op.name in UNIQUE
            key = id(op) if is_unique else operation_key(op, settings_key(op))
            found = self._found[id(op)] = op, key
        return found[1]


def remove_copies(graph: Graph, kept: Set[Tensor], keys: Keys) -> Graph:
    """The graph without copies of tensors, but for the kept ones and the outputs, and
    without operations that do what an earlier one does: if they make an output, they
    stay, but nothing else reads it.
    """
    outputs, first = set(graph.outputs), dict[object, Operation]()
    stays = outputs | kept
    originals, operations = dict[Tensor, Operand](), list[Operation]()
    for op in graph.operations:
        if originals and not originals.keys().isdisjoint(op.inputs):
            op = substitute(op, originals)
        is_copy = op.name == "copy" and isinstance(op.operands[0], Tensor)
        if is_copy and stays.isdisjoint(op.outputs):
            originals[op.outputs[0]] = op.operands[0]
            continue
        earlier = first.setdefault(keys.of(op), op)
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
    names, copy = NameSupply(graph.tensors), standard()["copy"]
    renamed = {t: replace(t, name=names.fresh(f"{t.name}_data")) for t in data}
    operations = [substitute(op, renamed) for op in graph.operations]
    operations += [
        Operation(copy, (new,), {}, (old,), dtype=old.dtype)
        for old, new in renamed.items()
    ]
    return replace(graph, operations=tuple(operations))


# tract reads names that begin with these as literals.
_MISREAD = ("inf", "true", "false")


def rename_misread(graph: Graph) -> Graph:
    """The graph with other names for tensors whose names are misread."""
    misread = [t for t in graph.tensors.values() if t.name.startswith(_MISREAD)]
    if not misread:
        return graph
    supply = NameSupply(graph.tensors)
    renamed = {t: replace(t, name=supply.fresh(f"_{t.name}")) for t in misread}
    names = {old.name: new.name for old, new in renamed.items()}
    interface = dict.fromkeys(t.name for t in (*graph.inputs, *graph.outputs))
    told = [name for name in interface if name in names]
    notes = (f"  {names[name]}: what '{name}' is called here" for name in told)
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
