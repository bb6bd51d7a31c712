"""Results that are divided into parts.

tract moves slices before the operation that made what they divide, and computes each part
by itself, where nothing else reads the whole. The slices then divide the operands in their
turn. In a densely connected network, where each layer reads the results of all before it, the
gradients of a layer would come to be computed in as many parts as there are layers. No slice
moves over a reshape that joins its axis with others:

    grad = add(g, h);                       grad = add(g, h);
    first = slice(grad, axes = [1], ...);   grad_flat = reshape(grad, shape = [1, 36]);
    second = slice(grad, axes = [1], ...);  first_flat = slice(grad_flat, axes = [1], ...);
                                       ->   first = reshape(first_flat, shape = [1, 4, 3, 3]);
                                            ...
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import prod

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor
from nnef_grad.ops.parts import section, slice_positions
from nnef_grad.ops.shape import reshaped
from nnef_grad.ops.traits import ELEMENTWISE
from nnef_grad.targets.registry import replaced


def hold_divided(graph: Graph) -> Graph:
    """The graph with slices of the flat elements of results that nothing but slices reads."""
    divided = _divided(graph)
    if not divided:
        return graph
    return replaced(
        graph, {"slice"}, _of_flat_elements, lambda op: op.inputs[0] in divided
    )


def _divided(graph: Graph) -> set[Tensor]:
    """Results of operations element by element that are divided along one axis, which has
    others after it.
    """
    readers: Mapping[Tensor, list[Operation]] = defaultdict(list)
    for op in graph.operations:
        for x in op.inputs:
            readers[x].append(op)
    made = (op.outputs[0] for op in graph.operations if op.name in ELEMENTWISE)
    return {
        x
        for x in made
        if len(readers[x]) > 1 and _are_parts(x, readers[x]) and x not in graph.outputs
    }


def _are_parts(x: Tensor, readers: Sequence[Operation]) -> bool:
    """Whether operations are slices of a tensor, without steps, along one such axis."""
    if any(op.name != "slice" for op in readers):
        return False
    taken = [slice_positions(x.shape, **op.settings) for op in readers]
    axes = {axis for positions in taken for axis in positions}
    steps = {own.step for positions in taken for own in positions.values()}
    if len(axes) != 1 or steps != {1}:
        return False
    inner = x.shape[max(axes) :]
    return not any(map(has_symbols, inner)) and prod(inner[1:]) > 1


def _of_flat_elements(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The same part, of the axis joined with those after it."""
    (x,) = op.inputs
    ((axis, taken),) = slice_positions(x.shape, **op.settings).items()
    outer, size = x.shape[:axis], prod(x.shape[axis + 1 :])
    flat = emit("reshape", x, shape=[*outer, x.shape[axis] * size])
    emit.set_hint(flat, f"{emit.names[x]}_flat")
    ends = (taken.start * size, taken.stop * size)
    part = section(emit, flat, {axis: ends}, hint="flat")
    return [reshaped(emit, part, op.outputs[0].shape)]
