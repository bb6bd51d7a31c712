"""Shapes that are given in full, slices that go forward from a beginning to an end, and
no more than five axes where elements move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from math import prod

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operand, Operation, Shape, Tensor, shape_of
from nnef_grad.ops.parts import section, slice_positions
from nnef_grad.ops.repeat import one_hot
from nnef_grad.ops.shape import reshaped
from nnef_grad.targets.registry import lowering

MOST_AXES = 5

# ---- The same elements in another shape ----


@lowering("reshape")
def reshape_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """To the whole shape of the result; to rank 0 without the axes that there are."""
    (x,), shape = op.operands, op.outputs[0].shape
    if not shape:
        axes = list(range(len(shape_of(x))))
        return [emit("squeeze", x, axes=axes) if axes else x]
    is_there = shape_of(x) == shape
    return [x if is_there else emit("reshape", x, shape=shape)]


@lowering("squeeze", "unsqueeze")
def squeeze_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """With the axes in ascending order; without any, nothing changes."""
    (x,), axes = op.operands, sorted(op.attributes["axes"])
    return [emit(op.name, x, axes=axes) if axes else x]


# ---- Axes in another order ----


def _order(op: Operation) -> Shape:
    """The order of all axes."""
    axes = op.attributes["axes"]
    return (*axes, *range(len(axes), len(shape_of(op.operands[0]))))


def _runs(op: Operation) -> list[list[int]]:
    """The axes that stay side by side, in their new order, without those of extent 1."""
    shape = shape_of(op.operands[0])
    proper = [axis for axis, extent in enumerate(shape) if extent > 1]
    kept = enumerate(proper.index(axis) for axis in _order(op) if axis in proper)
    grouped = groupby(kept, key=lambda pair: pair[1] - pair[0])
    return [[proper[axis] for _, axis in run] for _, run in grouped]


@lowering("transpose", applies=lambda op: len(_runs(op)) <= MOST_AXES)
def transpose_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """With all axes; where they are too many, with those as one that stay side by
    side.
    """
    (x,), order = op.operands, _order(op)
    if not isinstance(x, Tensor) or order == tuple(sorted(order)):
        return [x]
    if x.rank <= MOST_AXES:
        return [emit("transpose", x, axes=order)]
    runs = _runs(op)
    ordered = sorted(runs)
    extents = tuple(prod(x.shape[axis] for axis in run) for run in ordered)
    blocks = reshaped(emit, x, extents, hint="blocks")
    moved = emit("transpose", blocks, axes=list(map(ordered.index, runs)), hint="moved")
    return [reshaped(emit, moved, op.outputs[0].shape)]


# ---- Joining and dividing ----


@lowering("split")
def split_lowered(emit: Emitter, op: Operation) -> Sequence[tuple[Tensor, ...]]:
    """A slice for each part."""
    (x,), axis = op.inputs, op.attributes["axis"]
    ends = list(accumulate(part.shape[axis] for part in op.outputs))
    ranges = pairwise([0, *ends])
    return [tuple(section(emit, x, {axis: ends}, hint="part") for ends in ranges)]


@lowering("stack")
def stack_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """The parts get the axis, and are joined along it."""
    (parts,), axis = op.operands, op.attributes["axis"]
    assert isinstance(parts, tuple)
    layers = [emit("unsqueeze", part, axes=[axis], hint="layer") for part in parts]
    return [emit("concat", layers, axis=axis)]


@lowering("unstack")
def unstack_lowered(emit: Emitter, op: Operation) -> Sequence[tuple[Tensor, ...]]:
    """A slice for each part, without the axis."""
    (x,), axis = op.inputs, op.attributes["axis"]
    layers = (
        section(emit, x, {axis: (i, i + 1)}, hint="layer") for i in range(x.shape[axis])
    )
    return [tuple(emit("squeeze", layer, axes=[axis]) for layer in layers)]


# ---- Slices ----

Positions = Mapping[int, range]


@lowering("slice")
def slice_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """With everything given."""
    (x,) = op.operands
    if not isinstance(x, Tensor):
        return [x]
    found = slice_positions(x.shape, **op.settings)
    return [take(emit, x, dict(sorted(found.items())))]


def take(emit: Emitter, x: Tensor, positions: Positions) -> Tensor:
    """The elements at the positions along some axes."""
    positions = {a: p for a, p in positions.items() if p != range(x.shape[a])}
    if not positions:
        return x
    if any(map(_is_backward, positions.values())):
        backward = _mirrored if x.dtype == "scalar" else _one_by_one
        return backward(emit, x, positions)
    pairs = positions.items()
    columns = zip(*(_range(taken, x.shape[a]) for a, taken in pairs), strict=True)
    begin, end, stride = map(list, columns)
    stride = stride if set(stride) != {1} else []
    return emit("slice", x, axes=list(positions), begin=begin, end=end, stride=stride)


def _is_backward(taken: range) -> bool:
    return taken.step < 0 and len(taken) > 1


def _range(taken: range, extent: int) -> tuple[int, int, int]:
    """Begin, end and stride. The end is such that a length has no remainder, whichever
    way it would be rounded. An end of 0 is not 0 everywhere.
    """
    if len(taken) <= 1:
        begin = taken[0] if taken else 1
        return begin, begin + len(taken), 1
    end = taken.start + len(taken) * taken.step
    return taken.start, min(end, extent), taken.step


def _mirrored(emit: Emitter, x: Tensor, positions: Positions) -> Tensor:
    """Elements in reverse order are found in the mirror, after the last one."""
    padding = [(0, 0)] * x.rank
    mirrored = dict(positions)
    for axis, taken in positions.items():
        last = x.shape[axis] - 1
        if _is_backward(taken):
            padding[axis] = (0, last - taken[-1])
            start, step = 2 * last - taken[0], -taken.step
            mirrored[axis] = range(start, start + len(taken) * step, step)
    mirror = emit("pad", x, padding=padding, border="reflect", hint="mirror")
    return take(emit, mirror, mirrored)


def _one_by_one(emit: Emitter, x: Tensor, positions: Positions) -> Tensor:
    """Slices of one element each, joined in their order: only numbers can be padded."""
    for axis, taken in positions.items():
        layers = [section(emit, x, {axis: (i, i + 1)}, hint="layer") for i in taken]
        x = emit("concat", layers, axis=axis, hint="in_order")
    return x


# ---- Repeating and gathering ----


@lowering("tile")
def tile_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Nothing is repeated."""
    return op.operands


@lowering("gather", applies=lambda op: op.dtype != "integer")
def gather_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """A product with a matrix of ones and zeros; of logicals, by way of numbers."""
    x, indices = op.operands
    assert isinstance(x, Tensor)
    if x.dtype == "logical":
        numbers = emit("select", x, 1.0, 0.0, hint="numbers")
        axis = op.attributes["axis"]
        gathered = emit("gather", numbers, indices, axis=axis, hint="gathered")
        return [emit("gt", gathered, 0.5)]
    return [reshaped(emit, _product(emit, op, x), op.outputs[0].shape)]


def _product(emit: Emitter, op: Operation, x: Tensor) -> Tensor:
    """[taken, extent] times [before, extent, after] is [before, taken, after]."""
    axis = op.attributes["axis"]
    before, after = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    groups = (before,) if before > 1 else ()
    rows = reshaped(emit, x, (*groups, x.shape[axis], after), hint="rows")
    onehot = one_hot(emit, op.operands[1], x.shape[axis])
    if groups:
        onehot = emit("unsqueeze", onehot, axes=[0], hint="onehot_for_all")
    return emit("matmul", onehot, rows, hint="gathered")
