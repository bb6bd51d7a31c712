"""Shapes that are written in full, and no more than five axes where elements move."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, groupby, pairwise
from math import prod
from typing import Any

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.ops.parts import section
from nnef_grad.ops.shape import reshaped, with_extent
from nnef_grad.targets.registry import lowering

MOST_AXES = 5

# ---- The same elements in another shape ----


@lowering("reshape")
def reshape_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """To the whole shape of the result; to rank 0 without the axes that there are."""
    (x,), result = op.operands, op.outputs[0].shape
    if isinstance(x, Tensor) and not result:
        return [emit("squeeze", x, axes=list(range(x.rank))) if x.rank else x]
    if isinstance(x, Tensor):
        return [reshaped(emit, x, result)]
    return [emit("reshape", x, shape=result) if result else x]


@lowering("squeeze", "unsqueeze")
def squeeze_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """With the axes in ascending order; without any, nothing changes."""
    (x,), axes = op.operands, sorted(op.attributes["axes"])
    return [emit(op.name, x, axes=axes) if axes else x]


# ---- Axes in another order ----


@lowering("transpose")
def transpose_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """With all axes; where they are too many, with those as one that stay side by
    side.
    """
    (x,), axes = op.operands, op.attributes["axes"]
    assert isinstance(x, Tensor)
    order = [*axes, *range(len(axes), x.rank)]
    if order == sorted(order):
        return [x]
    if x.rank <= MOST_AXES:
        return [emit("transpose", x, axes=order)]
    extents, order = _joined(x.shape, order)
    moved = (_at_once if len(order) <= MOST_AXES else _in_turn)(emit, x, extents, order)
    return [reshaped(emit, moved, op.outputs[0].shape)]


def _joined(shape: Shape, order: Sequence[int]) -> tuple[list[int], list[int]]:
    """The extents and the order of fewer axes for the same transposition: without those
    of extent 1, and with those as one that follow each other.
    """
    proper = [axis for axis, extent in enumerate(shape) if extent > 1]
    kept = enumerate(proper.index(axis) for axis in order if axis in proper)
    grouped = groupby(kept, key=lambda pair: pair[1] - pair[0])
    runs = [[proper[axis] for _, axis in run] for _, run in grouped]
    ordered = sorted(runs)
    extents = [prod(shape[axis] for axis in run) for run in ordered]
    return extents, [ordered.index(run) for run in runs]


def _at_once(emit: Emitter, x: Tensor, extents: list[int], order: list[int]) -> Any:
    blocks = reshaped(emit, x, tuple(extents), hint="blocks")
    return emit("transpose", blocks, axes=order, hint="moved")


def _in_turn(emit: Emitter, x: Tensor, extents: list[int], order: list[int]) -> Any:
    """One axis after the other goes to its place."""
    now = sorted(order)
    for place, axis in enumerate(order):
        found = now.index(axis)
        if found != place:
            parts = now[:place], now[place:found], [axis], now[found + 1 :]
            shape = tuple(prod(extents[a] for a in part) for part in parts)
            x = _at_once(emit, x, list(shape), [0, 2, 1, 3])
            now.insert(place, now.pop(found))
    return x


# ---- Joining and dividing ----


@lowering("split")
def split_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """A slice for each part."""
    (x,), axis = op.inputs, int(op.attributes["axis"])
    ends = list(accumulate(part.shape[axis] for part in op.outputs))
    ranges = pairwise([0, *ends])
    return [tuple(section(emit, x, {axis: ends}, hint="part") for ends in ranges)]


@lowering("stack")
def stack_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """The parts get the axis, and are joined along it."""
    (parts,), axis = op.operands, op.attributes["axis"]
    assert isinstance(parts, tuple)
    layers = [emit("unsqueeze", part, axes=[axis], hint="layer") for part in parts]
    return [emit("concat", layers, axis=axis)]


@lowering("unstack")
def unstack_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """A slice for each part, without the axis."""
    (x,), axis = op.inputs, int(op.attributes["axis"])
    layers = (
        section(emit, x, {axis: (i, i + 1)}, hint="layer") for i in range(x.shape[axis])
    )
    return [tuple(emit("squeeze", layer, axes=[axis]) for layer in layers)]


# ---- Repeating and gathering ----


@lowering("tile")
def tile_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """One axis after the other."""
    (x,), repeats = op.operands, op.attributes["repeats"]
    for axis, count in enumerate(repeats):
        if count > 1:
            x = along_axis(emit, x, axis, partial(_repeated, emit, count))
    return [x]


def _repeated(emit: Emitter, count: int, rows: Tensor) -> Any:
    return emit("tile", rows, repeats=[1, count, 1], hint="repeated")


def along_axis(emit: Emitter, x: Any, axis: int, change: Any) -> Any:
    """What a change of the middle one of three axes does to an axis among others."""
    shape = x.shape
    blocks = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    changed = change(reshaped(emit, x, blocks, hint="blocks"))
    return reshaped(emit, changed, with_extent(shape, axis, changed.shape[1]))


@lowering("gather", when=lambda op: op.dtype != "integer")
def gather_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """A product with a matrix of ones and zeros; of logicals, by way of numbers."""
    x, indices = op.operands
    assert isinstance(x, Tensor)
    if x.dtype == "logical":
        numbers = emit("select", x, 1.0, 0.0, hint="numbers")
        axis = op.attributes["axis"]
        gathered = emit("gather", numbers, indices, axis=axis, hint="gathered")
        return [emit("gt", gathered, 0.5)]
    return [reshaped(emit, _product(emit, op, x), op.outputs[0].shape)]


def _product(emit: Emitter, op: Operation, x: Tensor) -> Any:
    """[taken, extent] times [before, extent, after] is [before, taken, after]."""
    axis = int(op.attributes["axis"])
    before, after = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    groups = (before,) if before > 1 else ()
    rows = reshaped(emit, x, (*groups, x.shape[axis], after), hint="rows")
    onehot = _onehot(emit, op.operands[1], x.shape[axis])
    if groups:
        onehot = emit("unsqueeze", onehot, axes=[0], hint="onehot_for_all")
    return emit("matmul", onehot, rows, hint="gathered")


def _onehot(emit: Emitter, indices: Any, extent: int) -> Any:
    """A row for each index: 1 at its position, and 0 at the others."""
    numbers = [float(i) for i in range(extent)]
    positions = emit("constant", shape=[1, extent], value=numbers, hint="positions")
    if isinstance(indices, Tensor):
        indices = reshaped(emit, indices, (prod(indices.shape), 1), hint="column")
    index = emit("cast", indices, dtype="scalar", hint="index")
    taken = emit("eq", index, positions, hint="taken")
    return emit("select", taken, 1.0, 0.0, hint="onehot")
