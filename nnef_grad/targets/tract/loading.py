"""What tract computes, or moves, as it loads a graph.

It computes what depends on variables alone: it turns filters, and brings matrices into the
order of its kernels. With a large variable it does so only if nothing else reads that, or
what does reads it alike, but it takes slices of any. So each product of another kind reads its
own slices, which are joined to the whole again:

    y = matmul(x, w, transposeB = true);        y = matmul(x, w, transposeB = true);
    dx = matmul(dy, w);                    ->   first = slice(w, axes = [0], begin = [0], end = [512]);
                                                second = slice(w, axes = [0], begin = [512], end = [1024]);
                                                whole = concat([first, second], axis = 0);
                                                dx = matmul(dy, whole);

It moves slices before the operation that made what they divide, and computes each part
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
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import Decompose, DefUse, each, where
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor
from nnef_grad.ops.parts import section, slice_positions
from nnef_grad.ops.shape import reshaped
from nnef_grad.ops.traits import ARRANGING, ELEMENTWISE, PRODUCTS

# ---- Large variables that are read several times ----

# tract folds what is read by several operations up to 4 MiB.
MOST_FOLDED = 2**20
# What it folds, or packs, if an operand is known.
_FOLDED = PRODUCTS | ARRANGING

# A variable, and a number of a reader of it, for each of several readers.
_Readers = Mapping[Tensor, int]


@each(*_FOLDED)
def split_large_variables(op: Operation, near: DefUse) -> Decompose | None:
    """Parts of large variables are joined again, for all products but one."""
    own = near.fact(_further_readers).get(op.outputs[0])
    return partial(_joined_again, own) if own else None


def _further_readers(graph: Graph) -> Mapping[Tensor, _Readers]:
    """By the result of an operation, the large variables that it should read by parts."""
    near, readers = DefUse(graph), defaultdict[Tensor, dict[Tensor, int]](dict)
    for variable in near.named("variable"):
        (x,) = variable.outputs
        if prod(x.shape) <= MOST_FOLDED:
            continue
        folded = [op for op in near.readers[x] if op.name in _FOLDED]
        sliced = sum(op.name == "slice" for op in near.readers[x])
        is_read_otherwise = near.uses[x] > len(folded) + sliced
        numbers: dict[Any, int] = {}
        for op in folded:
            way, next_number = _way(op, x), len(numbers) + int(is_read_otherwise)
            if (number := numbers.setdefault(way, next_number)) > 0:
                readers[op.outputs[0]][x] = number
    return readers


def _way(op: Operation, x: Tensor) -> Any:
    """How an operation reads a variable: a repeated product, as the first one."""
    if op.name not in ("linear", "matmul"):
        return op.outputs[0]
    shapes = tuple(operand.shape for operand in op.inputs)
    return op.name, op.operands.index(x), tuple(op.settings.items()), shapes


def _joined_again(readers: _Readers, emit: Emitter, op: Operation) -> Sequence[Operand]:
    operands = [
        _in_parts(emit, x, readers[x]) if isinstance(x, Tensor) and x in readers else x
        for x in op.operands
    ]
    return emit.emit_again(op, operands)


def _in_parts(emit: Emitter, x: Tensor, number: int) -> Tensor:
    """Two parts of a variable, joined; another two for each number."""
    axis = longest_axis(x)
    extent = x.shape[axis]
    places = pairwise((0, max(extent // (number + 1), 1), extent))
    parts = [section(emit, x, {axis: ends}, hint="part") for ends in places]
    return emit("concat", parts, axis=axis, hint="whole")


def longest_axis(x: Tensor) -> int:
    """The first of the axes that have the largest extent."""
    return x.shape.index(max(x.shape))


# ---- Results that are divided into parts ----


def _divided(graph: Graph) -> set[Tensor]:
    """Results element by element that are divided along one axis, not the last one."""
    near, slices = DefUse(graph), defaultdict[Tensor, list[Operation]](list)
    for op in near.named("slice"):
        slices[op.inputs[0]].append(op)
    return {
        x
        for x, parts in slices.items()
        if near.uses[x] == len(parts) > 1 and near.producers[x].name in ELEMENTWISE
        if _are_parts(x, parts)
    }


def _are_parts(x: Tensor, slices: Sequence[Operation]) -> bool:
    """Whether slices of a tensor have no steps, and are along one such axis."""
    taken = [slice_positions(x.shape, **op.settings) for op in slices]
    axes = {axis for positions in taken for axis in positions}
    steps = {own.step for positions in taken for own in positions.values()}
    if len(axes) != 1 or steps != {1}:
        return False
    inner = x.shape[max(axes) :]
    return not any(map(has_symbols, inner)) and prod(inner[1:]) > 1


@each("slice")
@where(lambda op, near: op.inputs[0] in near.fact(_divided))
def hold_divided(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Slices of results that nothing but slices reads are taken of their flat elements: of
    the axis joined with those after it.
    """
    (x,) = op.inputs
    ((axis, taken),) = slice_positions(x.shape, **op.settings).items()
    outer, size = x.shape[:axis], prod(x.shape[axis + 1 :])
    flat = emit("reshape", x, shape=[*outer, x.shape[axis] * size])
    emit.set_hint(flat, f"{emit.names[x]}_flat")
    ends = (taken.start * size, taken.stop * size)
    part = section(emit, flat, {axis: ends}, hint="flat")
    return [reshaped(emit, part, op.outputs[0].shape)]
