"""Passes over operations that are right by themselves, and that a runtime makes wrong
next to each other; those that are for tract alone stand in tract/workarounds.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.inline import Decompose, put_bodies
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor, tensors
from nnef_grad.ops.traits import LAYERS
from nnef_grad.targets.borders import join_zeros
from nnef_grad.targets.conditions import automatic, cropping, set_to
from nnef_grad.targets.registry import Relations, find_lowering, replaced

When = Callable[[Operation], bool]

MOVING = "copy cast reshape squeeze unsqueeze transpose slice concat tile pad"
# The operations that a filter may go through.
_PASSING = frozenset(f"{MOVING} select add sub mul div pow min max".split())


def is_passing(op: Operation) -> bool:
    """Whether a filter may go through the operation."""
    return op.name in _PASSING


def sources(graph: Graph, ends: Iterable[Tensor], passes: When) -> set[Tensor]:
    """The tensors that come to some, through operations."""
    found = {*ends}
    if not found:
        return found
    for op in reversed(graph.operations):
        if passes(op) and not found.isdisjoint(op.outputs):
            found.update(op.inputs)
    return found


def hold_zeros(graph: Graph) -> Graph:
    """The graph with zeros joined to a tensor, not padded, where a pool or a filter would
    misread them.

    In ONNX, optimisers put zeros around a tensor into what reads it, as padding of its
    own: a pool ignores what it pads, or does not count it, and wants less of it than it
    has elements; and a convolution has the padding of its filter for that of its data.
    They look through what does nothing, and only they know what that is. The padding of
    the data of a convolution is right by itself, but not next to automatic padding.
    """
    read: list[Operand] = []
    for op in graph.operations:
        if op.name in ("max_pool", "avg_pool", "conv"):
            is_right = op.name == "conv" and not automatic(op)
            read += op.operands[1:] if is_right else op.operands
    found = sources(graph, tensors(read), is_passing)
    with_zeros = set_to(border="constant", value=0.0)

    def is_open(op: Operation) -> bool:
        return op.outputs[0] in found and with_zeros(op) and not cropping(op)

    return replaced(graph, {"pad"}, _zeros, is_open)


def _zeros(emit: Emitter, op: Operation) -> Sequence[Operand]:
    return [join_zeros(emit, op.inputs[0], op.attributes["padding"])]


def add_biases(graph: Graph) -> Graph:
    """The graph with biases added after their layers, but for variables that nothing
    else reads; and with normalisations by constants put together from single steps.

    In the converter to ONNX, the axes of a bias are squeezed wherever it is read, and a
    constant has none there. In tract a bias that is computed is moved as well.
    """
    if not any(map(_has_parameters, graph.operations)):
        return graph
    near = Relations(graph)

    def body(op: Operation) -> Decompose | None:
        if op.name == "batch_normalization":
            has_constant = "constant" in {near.producers[x].name for x in op.inputs}
            return find_lowering(op) if has_constant else None
        bias = op.inputs[-1]
        is_plain = near.producers[bias].name == "variable" and near.uses[bias] == 1
        return None if is_plain else _added

    bodies = [body(op) if _has_parameters(op) else None for op in graph.operations]
    return put_bodies(graph, bodies)


def _has_parameters(op: Operation) -> bool:
    """Whether an operation is a normalisation, or a layer with a tensor for its bias."""
    is_layer = op.name in LAYERS and isinstance(op.operands[2], Tensor)
    return is_layer or op.name == "batch_normalization"


def _added(emit: Emitter, op: Operation) -> Sequence[Operand]:
    *operands, bias = op.operands
    unbiased = emit(op.name, *operands, **op.settings, hint="unbiased")
    return [emit("add", unbiased, bias)]
