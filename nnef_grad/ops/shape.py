"""Shapes: what moves elements about, joins tensors and takes parts of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import accumulate, chain, groupby, pairwise
from math import prod
from typing import Any

from nnef_grad.graph.ir import Operand, Operation, Shape, Tensor, shape_of
from nnef_grad.ops.reduce import check_axes
from nnef_grad.ops.registry import (
    Emit,
    check_results,
    require,
    shape,
    vjp,
    volume,
)
from nnef_grad.ops.windows import Padding, check_border, check_reach

BORDERS = ("constant", "replicate", "reflect", "reflect-even", "ignore")


def check_axis(axis: int, rank: int) -> None:
    """One axis of a tensor.

    Raises:
        ShapeError: it is out of range.
    """
    require(rank > 0, f"a tensor of rank 0 has no axis, and 'axis' is {axis}")
    require(
        0 <= axis < rank,
        f"'axis' must be in 0..{rank - 1} for rank {rank}, and is {axis}",
    )


def check_length(name: str, items: tuple[object, ...], rank: int) -> None:
    """An attribute that has an item for each dimension.

    Raises:
        ShapeError: it has another number of items.
    """
    require(
        len(items) == rank,
        f"'{name}' must have an item for each of {rank} dimensions, and has {len(items)}",
    )


def with_extent(shape: Shape, axis: int, extent: int) -> Shape:
    """The shape with another extent along an axis."""
    return (*shape[:axis], extent, *shape[axis + 1 :])


# ---- Steps of the rules ----


def reshaped(emit: Emit, x: Tensor, shape: Shape, hint: str | None = None) -> Any:
    """The same elements in another shape; x itself where it has the shape already."""
    return x if x.shape == shape else emit("reshape", x, shape=shape, hint=hint)


def section(
    emit: Emit,
    x: Tensor,
    ranges: Mapping[int, tuple[int, int]],
    hint: str | None = None,
) -> Any:
    """The part of x between a begin and an end along some axes; x itself where that is
    all of it.
    """
    cut = {
        axis: ends
        for axis, ends in sorted(ranges.items())
        if ends != (0, x.shape[axis])
    }
    if not cut:
        return x
    begin, end = zip(*cut.values(), strict=True)
    return emit("slice", x, axes=list(cut), begin=begin, end=end, hint=hint)


def place(
    emit: Emit,
    x: Tensor,
    offsets: Mapping[int, int],
    shape: Shape,
    hint: str = "padded",
) -> Any:
    """A tensor of zeros that holds x at offsets along some axes, and along the others
    has the extents of x.

    What would lie outside of the shape, before 0 or after the extent, is left out;
    None where that is all of x.
    """
    padding = [(0, 0)] * x.rank
    for axis, offset in offsets.items():
        padding[axis] = (offset, shape[axis] - offset - x.shape[axis])
    kept = [
        (max(0, -before), extent - max(0, -after))
        for extent, (before, after) in zip(x.shape, padding, strict=True)
    ]
    if any(begin >= end for begin, end in kept):
        return None
    if any(side > 0 for sides in padding for side in sides):
        return emit("pad", x, padding=padding, hint=hint)
    return section(emit, x, dict(enumerate(kept)), hint=hint)


def _concatenated(
    emit: Emit, parts: Sequence[Any], axis: int, shape: Shape, hint: str | None = None
) -> Any:
    """Joins parts, some of which are only so many zeros; their other extents are those
    of the shape.
    """
    values = [
        emit(
            "constant", shape=with_extent(shape, axis, part), value=[0.0], hint="zeros"
        )
        if isinstance(part, int)
        else part
        for part in parts
        if part != 0
    ]
    return (
        values[0] if len(values) == 1 else emit("concat", values, axis=axis, hint=hint)
    )


def _joined(
    emit: Emit, parts: Sequence[Any], extents: Sequence[int], axis: int, shape: Shape
) -> Any:
    """Joins parts to a tensor of the shape, with zeros for those that are None."""
    given = [index for index, part in enumerate(parts) if part is not None]
    if len(given) == 1:
        (index,) = given
        return place(emit, parts[index], {axis: sum(extents[:index])}, shape)
    runs = groupby(zip(parts, extents, strict=True), key=lambda pair: pair[0] is None)
    items: list[Any] = []
    for missing, run in runs:
        items += (
            [sum(extent for _, extent in run)] if missing else [part for part, _ in run]
        )
    return _concatenated(emit, items, axis, shape)


# ---- The same elements in another shape ----


@shape("reshape")
def reshape_shape(
    input: Shape, shape: tuple[int, ...], axis_start: int, axis_count: int
) -> Shape:
    """The extents in the axis range are replaced; the volume stays."""
    rank = len(input)
    require(
        0 <= axis_start <= rank,
        f"'axis_start' must be in 0..{rank} for rank {rank}, and is {axis_start}",
    )
    most = rank - axis_start
    require(
        -1 <= axis_count <= most,
        f"'axis_count' must be in -1..{most} from axis {axis_start} on, and is {axis_count}",
    )
    axis_end = rank if axis_count == -1 else axis_start + axis_count
    replaced = _resolve(shape, input[axis_start:axis_end])
    return (*input[:axis_start], *replaced, *input[axis_end:])


def _resolve(items: tuple[int, ...], input: Shape) -> Shape:
    """The extents that the items of a reshape stand for: 0 keeps an extent of the
    input, -1 takes what remains.
    """
    require(
        all(item >= -1 for item in items),
        f"the items of 'shape' must be at least -1, and are {list(items)}",
    )
    require(items.count(-1) <= 1, f"'shape' may have one item -1, and is {list(items)}")
    kept = all(item != 0 or axis < len(input) for axis, item in enumerate(items))
    require(
        kept,
        f"an item 0 of 'shape' keeps an extent, and there is none in {list(input)}"
        f" for each 0 of {list(items)}",
    )
    extents = tuple(
        input[axis] if item == 0 else item for axis, item in enumerate(items)
    )
    count, known = volume(input), prod(extent for extent in extents if extent != -1)
    message = f"'shape' {list(items)} does not fit the extents {list(input)} of volume {count}"
    require(
        known > 0 and count % known == 0 if -1 in extents else count == known, message
    )
    return tuple(count // known if extent == -1 else extent for extent in extents)


@vjp("reshape")
def reshape_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    """The elements go back to where they were."""
    return [reshaped(emit, dy, shape_of(op.operands[0]))]


@shape("transpose")
def transpose_shape(input: Shape, axes: tuple[int, ...]) -> Shape:
    """A permutation of the leading axes; axes beyond the list stay."""
    rank, count = len(input), len(axes)
    require(
        count <= rank, f"'axes' may have {rank} items for rank {rank}, and have {count}"
    )
    require(
        sorted(axes) == list(range(count)),
        f"'axes' must be a permutation of 0..{count - 1}, and are {list(axes)}",
    )
    return (*(input[axis] for axis in axes), *input[count:])


@vjp("transpose")
def transpose_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    """The inverse permutation, of all axes."""
    axes = op.attributes["axes"]
    order = [*axes, *range(len(axes), dy.rank)]
    inverse = sorted(range(dy.rank), key=order.__getitem__)
    return [
        dy if inverse == order == sorted(order) else emit("transpose", dy, axes=inverse)
    ]


@shape("squeeze")
def squeeze_shape(input: Shape, axes: tuple[int, ...]) -> Shape:
    """The axes of the input that are named go; they must have extent 1."""
    check_axes(axes, len(input))
    extents = [input[axis] for axis in axes]
    require(
        all(extent == 1 for extent in extents),
        f"only extents of 1 can be squeezed, and those of axes {list(axes)} are {extents}",
    )
    gone = set(axes)
    return tuple(extent for axis, extent in enumerate(input) if axis not in gone)


@vjp("squeeze")
def squeeze_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    """The axes come back."""
    axes = op.attributes["axes"]
    return [emit("unsqueeze", dy, axes=sorted(axes)) if axes else dy]


@shape("unsqueeze")
def unsqueeze_shape(input: Shape, axes: tuple[int, ...]) -> Shape:
    """The axes that are named are new; they are counted in the output, in any order."""
    rank = len(input) + len(axes)
    check_axes(axes, rank)
    extents, new = iter(input), set(axes)
    return tuple(1 if axis in new else next(extents) for axis in range(rank))


@vjp("unsqueeze")
def unsqueeze_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    """The axes go again."""
    axes = op.attributes["axes"]
    return [emit("squeeze", dy, axes=sorted(axes)) if axes else dy]


# ---- Joining and dividing ----


@shape("concat")
def concat_shape(values: tuple[Shape, ...], axis: int) -> Shape:
    """The extents along the axis are added; all others must agree."""
    require(len(values) > 0, "there is nothing to concatenate")
    check_axis(axis, len(values[0]))
    fits = all(
        len(v) == len(values[0])
        and with_extent(v, axis, 0) == with_extent(values[0], axis, 0)
        for v in values
    )
    require(
        fits,
        f"the shapes must agree in all dimensions but {axis}, and are {_listed(values)}",
    )
    return with_extent(values[0], axis, sum(value[axis] for value in values))


@vjp("concat")
def concat_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    """Each operand receives its section of the gradient."""
    axis = op.attributes["axis"]
    (values,) = op.operands
    assert isinstance(values, tuple)
    extents = (shape_of(value)[axis] for value in values)
    sections = pairwise(accumulate(extents, initial=0))
    return [
        tuple(
            section(emit, dy, {axis: ends}) if ends[0] < ends[1] else None
            for ends in sections
        )
    ]


@shape("split")
def split_shape(value: Shape, axis: int, ratios: tuple[int, ...]) -> list[Shape]:
    """The extent along the axis is divided in the given ratios."""
    check_axis(axis, len(value))
    require(len(ratios) > 0, "'ratios' must not be empty")
    require(
        all(ratio > 0 for ratio in ratios),
        f"'ratios' must be positive, and are {list(ratios)}",
    )
    unit, rest = divmod(value[axis], sum(ratios))
    require(
        rest == 0,
        f"the sum {sum(ratios)} of 'ratios' must divide the extent of axis {axis}, which is {value[axis]}",
    )
    return [with_extent(value, axis, unit * ratio) for ratio in ratios]


@vjp("split")
def split_vjp(emit: Emit, op: Operation, dvalues: Sequence[Tensor | None]) -> list[Any]:
    """The gradients of the parts, joined again; zeros for a part that nothing depends
    on.
    """
    axis = op.attributes["axis"]
    extents = [part.shape[axis] for part in op.outputs]
    return [_joined(emit, dvalues, extents, axis, shape_of(op.operands[0]))]


@shape("stack")
def stack_shape(values: tuple[Shape, ...], axis: int) -> Shape:
    """A new axis, with an extent for each of the equal shapes."""
    require(len(values) > 0, "there is nothing to stack")
    check_axis(axis, len(values[0]) + 1)
    require(
        len(set(values)) == 1, f"the shapes must be equal, and are {_listed(values)}"
    )
    return (*values[0][:axis], len(values), *values[0][axis:])


@vjp("stack")
def stack_vjp(emit: Emit, op: Operation, dvalue: Tensor) -> list[Any]:
    """Each operand receives its section of the gradient, without the new axis."""
    axis = op.attributes["axis"]
    sections = (
        section(emit, dvalue, {axis: (i, i + 1)}, hint=f"section_{i + 1}")
        for i in range(dvalue.shape[axis])
    )
    return [tuple(emit("squeeze", part, axes=[axis]) for part in sections)]


@shape("unstack")
def unstack_shape(value: Shape, axis: int) -> list[Shape]:
    """A shape for each element of the axis, without the axis."""
    check_axis(axis, len(value))
    check_results(value[axis])
    return [value[:axis] + value[axis + 1 :]] * value[axis]


@vjp("unstack")
def unstack_vjp(
    emit: Emit, op: Operation, dvalues: Sequence[Tensor | None]
) -> list[Any]:
    """The gradients of the parts, stacked again; zeros for a part that nothing depends
    on.
    """
    axis = op.attributes["axis"]
    parts = [
        part
        if part is None
        else emit("unsqueeze", part, axes=[axis], hint=f"section_{i + 1}")
        for i, part in enumerate(dvalues)
    ]
    return [_joined(emit, parts, [1] * len(parts), axis, shape_of(op.operands[0]))]


def _listed(shapes: tuple[Shape, ...]) -> str:
    return ", ".join(str(list(s)) for s in shapes)


# ---- Parts and borders ----


@shape("slice")
def slice_shape(
    input: Shape,
    axes: tuple[int, ...],
    begin: tuple[int, ...],
    end: tuple[int, ...],
    stride: tuple[int, ...],
) -> Shape:
    """How many positions are taken along each axis."""
    output = list(input)
    for axis, positions in slice_positions(input, axes, begin, end, stride).items():
        output[axis] = len(positions)
    return tuple(output)


def slice_positions(
    input: Shape,
    axes: tuple[int, ...],
    begin: tuple[int, ...],
    end: tuple[int, ...],
    stride: tuple[int, ...],
) -> dict[int, range]:
    """The positions in the input that a slice takes, by axis.

    Raises:
        ShapeError: the attributes do not fit each other, or the input.
    """
    check_axes(axes, len(input))
    for name, items in (("begin", begin), ("end", end), ("stride", stride or axes)):
        require(
            len(items) == len(axes),
            f"'{name}' must have an item for each of {len(axes)} axes, and has {len(items)}",
        )
    strides = stride or (1,) * len(axes)
    require(
        0 not in strides,
        f"the items of 'stride' must not be 0, and are {list(strides)}",
    )
    # The old notation for a slice to the end.
    open_ended = all(step == 1 for step in strides)
    ends = [
        input[axis] if open_ended and last == 0 else last
        for axis, last in zip(axes, end, strict=True)
    ]
    return {
        a: _positions(a, input[a], first, last, step)
        for a, first, last, step in zip(axes, begin, ends, strides, strict=True)
    }


def _positions(axis: int, extent: int, begin: int, end: int, stride: int) -> range:
    first, last = _clamped(begin, extent), _clamped(end, extent)
    ordered = 0 <= first <= last if stride > 0 else last <= first < extent
    message = (
        f"there is no slice from {begin} to {end} with stride {stride}"
        f" along axis {axis} of extent {extent}"
    )
    require(ordered, message)
    return range(first, last, stride)


def _clamped(offset: int, extent: int) -> int:
    """A negative offset counts from the end; what lies outside is just outside: at -1,
    or at the extent.
    """
    return max(-1, min(offset + extent if offset < 0 else offset, extent))


@vjp("slice")
def slice_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    """The gradient goes back to the positions that were taken, among zeros."""
    shape = shape_of(op.operands[0])
    attributes: dict[str, Any] = dict(op.attributes)
    positions = slice_positions(shape, **attributes)
    if not all(positions.values()):
        return [None]
    ascending = {
        axis: taken if taken.step > 0 else taken[::-1]
        for axis, taken in positions.items()
    }
    gradient = _reversed(
        emit,
        dy,
        [
            axis
            for axis, taken in positions.items()
            if taken.step < 0 and len(taken) > 1
        ],
    )
    for axis, taken in ascending.items():
        if len(taken) > 1:
            gradient = _spread(emit, gradient, axis, taken.step)
    return [
        place(
            emit, gradient, {axis: taken[0] for axis, taken in ascending.items()}, shape
        )
    ]


def _reversed(emit: Emit, x: Tensor, axes: Sequence[int]) -> Any:
    """The last element first. An end that lies just before the first element is one
    that stays negative.
    """
    if not axes:
        return x
    end = [-1 - x.shape[axis] for axis in axes]
    backwards = [-1] * len(axes)
    return emit(
        "slice",
        x,
        axes=axes,
        begin=backwards,
        end=end,
        stride=backwards,
        hint="reversed",
    )


def _spread(emit: Emit, x: Tensor, axis: int, step: int) -> Any:
    """The elements with step - 1 zeros after each."""
    if step == 1:
        return x
    column = emit("unsqueeze", x, axes=[axis + 1], hint="column")
    stuffed = place(
        emit, column, {axis + 1: 0}, with_extent(column.shape, axis + 1, step)
    )
    return reshaped(
        emit, stuffed, with_extent(x.shape, axis, x.shape[axis] * step), hint="spread"
    )


@shape("pad")
def pad_shape(input: Shape, padding: Padding, border: str, value: float) -> Shape:
    """Both sides are added; a negative side is cut off."""
    check_length("padding", padding, len(input))
    check_border(border, BORDERS)
    extents = tuple(
        before + extent + after
        for extent, (before, after) in zip(input, padding, strict=True)
    )
    message = f"the padded extents must be positive, and are {list(extents)}"
    require(all(extent > 0 for extent in extents), message)
    check_reach(border, input, padding)
    return extents


@vjp("pad")
def pad_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    """The padding is cut off, and zeros come where elements were cut off. An element
    that was repeated first receives the gradients of its copies.
    """
    shape = shape_of(op.operands[0])
    padding = op.attributes["padding"]
    fold = _FOLDS.get(op.attributes["border"])
    offsets: dict[int, int] = {}
    for axis, (before, after) in enumerate(padding):
        if fold is not None and max(before, after) > 0:
            dy = fold(emit, dy, axis, before, shape[axis])
        else:
            offsets[axis] = -before
    return [place(emit, dy, offsets, shape)]


def _fold_edges(emit: Emit, dy: Tensor, axis: int, before: int, extent: int) -> Any:
    """The adjoint of border 'replicate' along an axis: the first and the last element
    receive the sums of themselves and their copies.
    """
    end = dy.shape[axis]
    after = end - before - extent
    # Where the copies of the first element end, and those of the last begin. A single
    # element is the first.
    first = min(before + 1, end) if before > 0 else 0
    last = max(before + extent - 1, first) if after > 0 else end
    if extent == 1:
        first = last = end
    parts = [
        min(max(-before, 0), extent - 1),
        _edge(emit, dy, axis, (0, first), "first"),
        _part(emit, dy, axis, (first, last), "inner"),
        _edge(emit, dy, axis, (last, end), "last"),
        min(max(-after, 0), extent - 1),
    ]
    return _concatenated(emit, parts, axis, dy.shape, hint="folded")


def _edge(emit: Emit, x: Tensor, axis: int, ends: tuple[int, int], name: str) -> Any:
    copies = _part(emit, x, axis, ends, f"{name}_copies")
    summed = ends[1] - ends[0] > 1
    return emit("sum_reduce", copies, axes=[axis], hint=name) if summed else copies


def _part(emit: Emit, x: Tensor, axis: int, ends: tuple[int, int], name: str) -> Any:
    """A section along an axis; 0 where it is empty, which joins as so many zeros."""
    return section(emit, x, {axis: ends}, hint=name) if ends[0] < ends[1] else 0


def _fold_reflection(
    left_out: int, emit: Emit, dy: Tensor, axis: int, before: int, extent: int
) -> Any:
    """The adjoint of a reflecting border along an axis: what lies outside is turned
    round and added. `left_out` is 1 where the element at the edge has no image, and
    otherwise 0.
    """
    end, last = dy.shape[axis], before + extent
    head, tail = min(before, end), max(last, 0)
    parts = [
        ("inner", _part, (max(before, 0), min(last, end)), max(-before, 0)),
        ("before", _mirrored, (0, head), before - head + left_out),
        ("after", _mirrored, (tail, end), last + extent - end - left_out),
    ]
    shape = with_extent(dy.shape, axis, extent)
    placed = (
        place(emit, take(emit, dy, axis, ends, name), {axis: offset}, shape, hint=name)
        for name, take, ends, offset in parts
        if ends[0] < ends[1]
    )
    return reduce(partial(emit, "add", hint="folded"), placed)


def _mirrored(
    emit: Emit, x: Tensor, axis: int, ends: tuple[int, int], name: str
) -> Any:
    """A section along an axis, the last element first."""
    begin, end = ends
    hint = f"mirrored_{name}"
    if end - begin == 1:
        return section(emit, x, {axis: ends}, hint=hint)
    # An end before the first element is one that stays negative.
    stop = begin - 1 if begin > 0 else -1 - x.shape[axis]
    return emit(
        "slice", x, axes=[axis], begin=[end - 1], end=[stop], stride=[-1], hint=hint
    )


# What adds the gradients of copies to that of the element, along an axis.
_FOLDS: dict[str, Callable[..., Any]] = {
    "replicate": _fold_edges,
    "reflect": partial(_fold_reflection, 1),
    "reflect-even": partial(_fold_reflection, 0),
}


@shape("tile")
def tile_shape(input: Shape, repeats: tuple[int, ...]) -> Shape:
    """The extents are multiplied."""
    check_length("repeats", repeats, len(input))
    require(
        all(count > 0 for count in repeats),
        f"'repeats' must be positive, and are {list(repeats)}",
    )
    return tuple(extent * count for extent, count in zip(input, repeats, strict=True))


@vjp("tile")
def tile_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    """The sum over the repeats. Where more than a single element is repeated, the
    repeats get an axis of their own first.
    """
    repeats = op.attributes["repeats"]
    pairs = list(zip(repeats, shape_of(op.operands[0]), strict=True))
    groups = [
        (count,) if extent == 1 else (extent,) if count == 1 else (count, extent)
        for count, extent in pairs
    ]
    starts = list(accumulate(map(len, groups), initial=0))[:-1]
    summed = [start for start, count in zip(starts, repeats, strict=True) if count > 1]
    extra = [
        start for start, group in zip(starts, groups, strict=True) if len(group) == 2
    ]
    if not summed:
        return [dy]
    separate = reshaped(emit, dy, tuple(chain.from_iterable(groups)), hint="repeats")
    sums = emit("sum_reduce", separate, axes=summed, hint="sums")
    return [emit("squeeze", sums, axes=extra) if extra else sums]


@shape("gather")
def gather_shape(input: Shape, indices: Shape, axis: int) -> Shape:
    """The shape of the indices takes the place of the axis."""
    check_axis(axis, len(input))
    return (*input[:axis], *indices, *input[axis + 1 :])


@vjp("gather")
def gather_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    """A product with a matrix of zeros and ones, which adds up the gradients of equal
    indices.
    """
    shape, indices = shape_of(op.operands[0]), op.operands[1]
    axis = op.attributes["axis"]
    before, after = prod(shape[:axis]), prod(shape[axis + 1 :])
    onehot = _onehot(emit, indices, shape[axis])
    taken = onehot.shape[0]
    if before == 1:
        rows = reshaped(emit, dy, (taken, after), hint="rows")
        sums = emit("matmul", onehot, rows, transposeA=True, hint="sums")
        return [reshaped(emit, sums, shape), None]
    rows = reshaped(
        emit,
        _turned(emit, dy, (before, taken, after)),
        (before * after, taken),
        hint="rows",
    )
    sums = emit("matmul", rows, onehot, hint="sums")
    return [
        reshaped(emit, _turned(emit, sums, (before, after, shape[axis])), shape),
        None,
    ]


def _turned(emit: Emit, x: Tensor, blocks: Shape) -> Any:
    """A tensor that stands for blocks of matrices, with each of them transposed."""
    if 1 in blocks[1:]:
        return x
    return emit(
        "transpose",
        reshaped(emit, x, blocks, hint="blocks"),
        axes=[0, 2, 1],
        hint="turned",
    )


def _onehot(emit: Emit, indices: Operand, extent: int) -> Any:
    """A row for each index, with a column for each position: 1 where the row takes the
    position, and otherwise 0.
    """
    positions = emit(
        "constant",
        shape=[1, extent],
        value=[float(i) for i in range(extent)],
        hint="positions",
    )
    if isinstance(indices, Tensor):
        indices = emit(
            "cast",
            reshaped(emit, indices, (prod(indices.shape), 1), hint="column"),
            dtype="scalar",
            hint="index",
        )
    taken = emit(
        "eq",
        float(indices) if isinstance(indices, int) else indices,
        positions,
        hint="taken",
    )
    return emit("select", taken, 1.0, 0.0, hint="onehot")
