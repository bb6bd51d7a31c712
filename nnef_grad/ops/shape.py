"""Shapes: what moves elements about, joins tensors and takes parts of them."""

from __future__ import annotations

from math import prod

from nnef_grad.ir import Shape
from nnef_grad.ops.reduce import check_axes
from nnef_grad.ops.registry import require, shape

Padding = tuple[tuple[int, int], ...]

BORDERS = ("constant", "replicate", "reflect", "reflect-even", "ignore")


def check_axis(axis: int, rank: int) -> None:
    """One axis of a tensor.

    Raises:
        ShapeError: it is out of range.
    """
    require(rank > 0, f"a tensor of rank 0 has no axis, and 'axis' is {axis}")
    require(0 <= axis < rank, f"'axis' must be in 0..{rank - 1} for rank {rank}, and is {axis}")


def check_length(name: str, items: tuple[object, ...], rank: int) -> None:
    """An attribute that has an item for each dimension.

    Raises:
        ShapeError: it has another number of items.
    """
    require(len(items) == rank, f"'{name}' must have an item for each of {rank} dimensions, and has {len(items)}")


def with_extent(shape: Shape, axis: int, extent: int) -> Shape:
    """The shape with another extent along an axis."""
    return (*shape[:axis], extent, *shape[axis + 1 :])


# ---- The same elements in another shape ----


@shape("reshape")
def reshape_shape(input: Shape, shape: tuple[int, ...], axis_start: int, axis_count: int) -> Shape:
    rank = len(input)
    require(0 <= axis_start <= rank, f"'axis_start' must be in 0..{rank} for rank {rank}, and is {axis_start}")
    most = rank - axis_start
    require(-1 <= axis_count <= most, f"'axis_count' must be in -1..{most} from axis {axis_start} on, and is {axis_count}")
    axis_end = rank if axis_count == -1 else axis_start + axis_count
    replaced = _resolve(shape, input[axis_start:axis_end])
    return (*input[:axis_start], *replaced, *input[axis_end:])


def _resolve(items: tuple[int, ...], input: Shape) -> Shape:
    """The extents that the items of a reshape stand for: 0 keeps an extent of the input, -1 takes what remains."""
    require(all(item >= -1 for item in items), f"the items of 'shape' must be at least -1, and are {list(items)}")
    require(items.count(-1) <= 1, f"'shape' may have one item -1, and is {list(items)}")
    kept = all(item != 0 or axis < len(input) for axis, item in enumerate(items))
    require(kept, f"an item 0 of 'shape' keeps the extent of the input, {list(input)} has none for each 0 in {list(items)}")
    extents = tuple(input[axis] if item == 0 else item for axis, item in enumerate(items))
    volume, known = prod(input), prod(extent for extent in extents if extent != -1)
    message = f"'shape' {list(items)} does not fit the extents {list(input)} of volume {volume}"
    require(known > 0 and volume % known == 0 if -1 in extents else volume == known, message)
    return tuple(volume // known if extent == -1 else extent for extent in extents)


@shape("transpose")
def transpose_shape(input: Shape, axes: tuple[int, ...]) -> Shape:
    rank, count = len(input), len(axes)
    require(count <= rank, f"'axes' may have {rank} items for rank {rank}, and has {count}")
    require(sorted(axes) == list(range(count)), f"'axes' must be a permutation of 0..{count - 1}, and is {list(axes)}")
    return (*(input[axis] for axis in axes), *input[count:])


@shape("squeeze")
def squeeze_shape(input: Shape, axes: tuple[int, ...]) -> Shape:
    check_axes(axes, len(input))
    extents = [input[axis] for axis in axes]
    require(all(extent == 1 for extent in extents), f"only extents of 1 can be squeezed, and those of {list(axes)} are {extents}")
    return tuple(extent for axis, extent in enumerate(input) if axis not in axes)


@shape("unsqueeze")
def unsqueeze_shape(input: Shape, axes: tuple[int, ...]) -> Shape:
    rank = len(input) + len(axes)
    check_axes(axes, rank)
    extents = iter(input)
    return tuple(1 if axis in axes else next(extents) for axis in range(rank))


# ---- Joining and dividing ----


@shape("concat")
def concat_shape(values: tuple[Shape, ...], axis: int) -> Shape:
    require(len(values) > 0, "there is nothing to concatenate")
    check_axis(axis, len(values[0]))
    fits = all(len(v) == len(values[0]) and with_extent(v, axis, 0) == with_extent(values[0], axis, 0) for v in values)
    require(fits, f"the shapes must agree in all dimensions but {axis}, and are {_listed(values)}")
    return with_extent(values[0], axis, sum(value[axis] for value in values))


@shape("split")
def split_shape(value: Shape, axis: int, ratios: tuple[int, ...]) -> list[Shape]:
    check_axis(axis, len(value))
    require(len(ratios) > 0, "'ratios' must not be empty")
    require(all(ratio > 0 for ratio in ratios), f"'ratios' must be positive, and are {list(ratios)}")
    unit, rest = divmod(value[axis], sum(ratios))
    require(rest == 0, f"the sum {sum(ratios)} of 'ratios' must divide the extent of axis {axis}, which is {value[axis]}")
    return [with_extent(value, axis, unit * ratio) for ratio in ratios]


@shape("stack")
def stack_shape(values: tuple[Shape, ...], axis: int) -> Shape:
    require(len(values) > 0, "there is nothing to stack")
    check_axis(axis, len(values[0]) + 1)
    require(len(set(values)) == 1, f"the shapes must be equal, and are {_listed(values)}")
    return (*values[0][:axis], len(values), *values[0][axis:])


@shape("unstack")
def unstack_shape(value: Shape, axis: int) -> list[Shape]:
    check_axis(axis, len(value))
    return [value[:axis] + value[axis + 1 :]] * value[axis]


def _listed(shapes: tuple[Shape, ...]) -> str:
    return ", ".join(str(list(s)) for s in shapes)


# ---- Parts and borders ----


@shape("slice")
def slice_shape(
    input: Shape, axes: tuple[int, ...], begin: tuple[int, ...], end: tuple[int, ...], stride: tuple[int, ...]
) -> Shape:
    output = list(input)
    for axis, positions in slice_positions(input, axes, begin, end, stride).items():
        output[axis] = len(positions)
    return tuple(output)


def slice_positions(
    input: Shape, axes: tuple[int, ...], begin: tuple[int, ...], end: tuple[int, ...], stride: tuple[int, ...]
) -> dict[int, range]:
    """The positions in the input that a slice takes, by axis.

    Raises:
        ShapeError: the attributes do not fit each other, or the input.
    """
    check_axes(axes, len(input))
    for name, items in (("begin", begin), ("end", end), ("stride", stride or axes)):
        require(len(items) == len(axes), f"'{name}' must have an item for each of {len(axes)} axes, and has {len(items)}")
    strides = stride or (1,) * len(axes)
    require(0 not in strides, f"the items of 'stride' must not be 0, and are {list(strides)}")
    # The old notation for a slice to the end.
    open_ended = all(step == 1 for step in strides)
    ends = [input[axis] if open_ended and last == 0 else last for axis, last in zip(axes, end)]
    return {a: _positions(a, input[a], first, last, step) for a, first, last, step in zip(axes, begin, ends, strides)}


def _positions(axis: int, extent: int, begin: int, end: int, stride: int) -> range:
    first, last = _clamped(begin, extent), _clamped(end, extent)
    ordered = 0 <= first <= last if stride > 0 else last <= first < extent
    message = f"there is no slice from {begin} to {end} with stride {stride} along axis {axis} of extent {extent}"
    require(ordered, message)
    return range(first, last, stride)


def _clamped(offset: int, extent: int) -> int:
    """A negative offset counts from the end; what lies outside is just outside: at -1, or at the extent."""
    return max(-1, min(offset + extent if offset < 0 else offset, extent))


@shape("pad")
def pad_shape(input: Shape, padding: Padding, border: str, value: float) -> Shape:
    check_length("padding", padding, len(input))
    require(border in BORDERS, f"'border' must be one of {', '.join(BORDERS)}, and is '{border}'")
    extents = tuple(before + extent + after for extent, (before, after) in zip(input, padding))
    message = f"the padded extents must be positive, and are {list(extents)}"
    require(all(extent > 0 for extent in extents), message)
    return extents


@shape("tile")
def tile_shape(input: Shape, repeats: tuple[int, ...]) -> Shape:
    check_length("repeats", repeats, len(input))
    require(all(count > 0 for count in repeats), f"'repeats' must be positive, and are {list(repeats)}")
    return tuple(extent * count for extent, count in zip(input, repeats))


@shape("gather")
def gather_shape(input: Shape, indices: Shape, axis: int) -> Shape:
    check_axis(axis, len(input))
    return (*input[:axis], *indices, *input[axis + 1 :])
