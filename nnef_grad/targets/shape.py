"""Shapes that are given in full, operations along axes in order, slices that go forward from
a beginning to an end, and no more than five axes where elements move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from math import prod

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import Integers, Operand, Operation, Shape, Tensor, shape_of
from nnef_grad.graph.quotients import minimum
from nnef_grad.ops.join import one_hot
from nnef_grad.ops.parts import section, slice_positions
from nnef_grad.ops.shape import Positions, reshaped
from nnef_grad.targets.forms import form
from nnef_grad.targets.registry import lowering

MOST_AXES = 5


def fill(emit: Emitter, x: Operand, shape: Shape, hint: str | None = None) -> Operand:
    """An operand, repeated to a shape that it can be broadcast to."""
    missing = list(range(len(shape_of(x)), len(shape)))
    if missing:
        x = emit("unsqueeze", x, axes=missing, hint="single")
    pairs = zip(shape, shape_of(x), strict=True)
    repeats = [1 if whole == part else whole // part for whole, part in pairs]
    return x if {*repeats} <= {1} else emit("tile", x, repeats=repeats, hint=hint)


def joined(
    emit: Emitter, parts: Sequence[Tensor], axis: int, hint: str = "joined"
) -> Tensor:
    """The parts side by side along an axis; the part itself where it is the only one."""
    return emit("concat", parts, axis=axis, hint=hint) if len(parts) > 1 else parts[0]


@lowering("reshape")
def reshape_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """To the whole shape of the result; to rank 0 without the axes that there are."""
    (x,), shape = op.operands, op.outputs[0].shape
    if shape_of(x) == shape:
        return [x]
    if shape:
        return [emit("reshape", x, shape=shape)]
    return [emit("squeeze", x, axes=list(range(len(shape_of(x)))))]


@lowering(
    "sum_reduce", "mean_reduce", "max_reduce", "min_reduce", "squeeze", "unsqueeze"
)
def axes_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Along the axes in ascending order; along none, nothing is to be done."""
    (x,), axes = op.operands, sorted(op.attributes["axes"])
    is_mean = op.attributes.get("normalize", False)
    return [emit("mean_reduce" if is_mean else op.name, x, axes=axes) if axes else x]


@lowering("argmax_reduce", "argmin_reduce")
def position_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Along several axes as one, in row-major order, which go to the end if need be."""
    (x,), shape = op.operands, op.outputs[0].shape
    axes = sorted(op.attributes["axes"])
    if not axes or not isinstance(x, Tensor):
        return [emit("constant", shape=shape, value=[0], dtype="integer")]
    first, end = axes[0], axes[-1] + 1
    if len(axes) < end - first:
        kept = [axis for axis in range(x.rank) if axis not in axes]
        x = emit("transpose", x, axes=[*kept, *axes], hint="in_order")
        first, end = len(kept), x.rank
    extents = (*x.shape[:first], prod(x.shape[first:end]), *x.shape[end:])
    x = reshaped(emit, x, extents, hint="joined")
    position = emit(op.name, x, axes=[first], hint="position")
    return [reshaped(emit, position, shape)]


def _order(op: Operation) -> Integers:
    """The order of all axes."""
    axes = op.attributes["axes"]
    return (*axes, *range(len(axes), len(shape_of(op.operands[0]))))


def _runs(op: Operation) -> list[list[int]]:
    """The axes that stay side by side, in their new order, without those of extent 1."""
    shape = shape_of(op.operands[0])
    proper = [axis for axis, extent in enumerate(shape) if extent != 1]
    kept = enumerate(proper.index(axis) for axis in _order(op) if axis in proper)
    grouped = groupby(kept, key=lambda pair: pair[1] - pair[0])
    return [[proper[axis] for _, axis in run] for _, run in grouped]


@lowering("transpose", applies=lambda op: len(_runs(op)) <= MOST_AXES)
def transpose_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """With all axes; if they are too many, with those as one that stay side by side."""
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


@form("transpose", lambda op: len(_runs(op)) <= 1)
def reshape_instead(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """Nothing moves but axes of extent 1."""
    return [emit("reshape", op.inputs[0], shape=op.outputs[0].shape)]


@lowering("split")
def split_lowered(emit: Emitter, op: Operation) -> Sequence[tuple[Tensor, ...]]:
    """A slice for each part."""
    (x,), axis = op.inputs, op.attributes["axis"]
    ends = accumulate((part.shape[axis] for part in op.outputs), initial=0)
    return [tuple(section(emit, x, {axis: e}, hint="part") for e in pairwise(ends))]


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
    layers = _layers(emit, x, axis, range(x.shape[axis]))
    return [tuple(emit("squeeze", layer, axes=[axis]) for layer in layers)]


def _layers(
    emit: Emitter, x: Tensor, axis: int, taken: Iterable[int]
) -> Iterator[Tensor]:
    return (section(emit, x, {axis: (i, i + 1)}, hint="layer") for i in taken)


Taken = Mapping[int, Positions]


@lowering("slice")
def slice_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """With everything given."""
    (x,) = op.operands
    if not isinstance(x, Tensor):
        return [x]
    taken = slice_positions(x.shape, **op.settings)
    return [take(emit, x, dict(sorted(taken.items())))]


def take(emit: Emitter, x: Tensor, positions: Taken) -> Tensor:
    """The elements at the positions along some axes."""
    positions = {a: p for a, p in positions.items() if not p.are_all(x.shape[a])}
    if not positions:
        return x
    if any(map(_is_backward, positions.values())):
        backward = _mirrored if x.dtype == "scalar" else one_by_one
        return backward(emit, x, positions)
    ranges = [_range(taken, x.shape[axis]) for axis, taken in positions.items()]
    begin, end, stride = zip(*ranges, strict=True)
    stride = () if {*stride} == {1} else stride
    return emit("slice", x, axes=list(positions), begin=begin, end=end, stride=stride)


def _is_backward(taken: Positions) -> bool:
    return taken.step < 0 and taken.count != 1


def _range(
    taken: Positions, extent: Dimension
) -> tuple[Dimension, Dimension, Dimension]:
    """Begin, end and stride: the length has no remainder, and no end is 0."""
    count = taken.count
    if has_symbols(count):
        return taken.start, taken.stop, taken.step
    if count in (0, 1):
        begin = taken.start if count else 1
        return begin, begin + count, 1
    end = taken.start + count * taken.step
    return taken.start, minimum(end, extent), taken.step


def _mirrored(emit: Emitter, x: Tensor, positions: Taken) -> Tensor:
    """Elements in reverse order are found in the mirror, after the last one."""
    padding, mirrored = [(0, 0)] * x.rank, dict(positions)
    for axis, taken in positions.items():
        if _is_backward(taken):
            last = x.shape[axis] - 1
            padding[axis] = (0, last - taken.least)
            start, step = 2 * last - taken.start, -taken.step
            mirrored[axis] = Positions(start, start + taken.count * step, step)
    mirror = emit("pad", x, padding=padding, border="reflect", hint="mirror")
    return take(emit, mirror, mirrored)


def one_by_one(emit: Emitter, x: Tensor, positions: Taken) -> Tensor:
    """Slices of one element each, joined in their order: only numbers can be padded."""
    for axis, taken in positions.items():
        x = joined(emit, [*_layers(emit, x, axis, taken)], axis, "in_order")
    return x


@lowering("gather", applies=lambda op: op.dtype != "integer")
def gather_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """A product with a matrix of ones and zeros; of logicals, by way of numbers.

    [taken, extent] times [before, extent, after] is [before, taken, after]. Where there is
    one row, it is repeated.
    """
    x, indices = op.operands
    assert isinstance(x, Tensor)
    if x.dtype == "logical":
        numbers = emit("select", x, 1.0, 0.0, hint="numbers")
        axis = op.attributes["axis"]
        gathered = emit("gather", numbers, indices, axis=axis, hint="gathered")
        return [emit("gt", gathered, 0.5)]
    axis, extent = op.attributes["axis"], x.shape[op.attributes["axis"]]
    if extent == 1:
        ones = (1,) * len(shape_of(indices))
        row = reshaped(emit, x, (*x.shape[:axis], *ones, *x.shape[axis + 1 :]), "row")
        return [fill(emit, row, op.outputs[0].shape)]
    before, after = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    groups = (before,) if before != 1 else ()
    rows = reshaped(emit, x, (*groups, extent, after), hint="rows")
    onehot = one_hot(emit, indices, extent)
    if groups:
        onehot = emit("unsqueeze", onehot, axes=[0], hint="onehot_for_all")
    product = emit("matmul", onehot, rows, hint="gathered")
    return [reshaped(emit, product, op.outputs[0].shape)]
