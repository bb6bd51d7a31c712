"""Parts of a tensor, and borders around one.

    slice   the elements at some positions along each axis
    pad     the tensor in a larger one, or, where a side is negative, in a smaller one

Each is the adjoint of the other, but for borders that repeat elements: there the
gradients of the copies are added to that of the element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from nnef_grad.graph.extents import Dimension, bounds, has_symbols, may_exceed
from nnef_grad.graph.ir import Integers, Operation, Shape, Tensor
from nnef_grad.graph.learning import reaches
from nnef_grad.graph.quotients import maximum, minimum
from nnef_grad.ops.batching import along_axes, batching_rule, with_attributes
from nnef_grad.ops.examples import Place, Use, apart, beside_axes, place_rule
from nnef_grad.ops.linear import in_first, linearity_rule
from nnef_grad.ops.ranges import Range, of_first, range_rule, union
from nnef_grad.ops.registry import Emit, require, shape, vjp
from nnef_grad.ops.shape import (
    Positions,
    check_axes,
    check_length,
    reshaped,
    with_extent,
)
from nnef_grad.ops.windows import BORDERS, Padding, check_choice, check_reach

# A begin and an end along an axis.
Ends = tuple[Dimension, Dimension]


# ---- Steps ----


def section(
    emit: Emit, x: Tensor, ranges: Mapping[int, Ends], hint: str | None = None
) -> Tensor:
    """The part of x between ends along some axes; x itself where that is all of it."""
    cut = {a: ends for a, ends in sorted(ranges.items()) if ends != (0, x.shape[a])}
    if not cut:
        return x
    begin, end = zip(*cut.values(), strict=True)
    return emit("slice", x, axes=list(cut), begin=begin, end=end, hint=hint)


def mirrored(
    emit: Emit, x: Tensor, ranges: Mapping[int, Ends], hint: str = "reversed"
) -> Tensor:
    """The same part, the last element first."""
    if all(end - begin == 1 for begin, end in ranges.values()):
        return section(emit, x, ranges, hint)
    unsure = {a for a, (_, last) in ranges.items() if may_exceed(1, last)}
    if any(ranges[a] != (0, x.shape[a]) for a in unsure):
        # Nothing, for some numbers: runtimes take one element for a slice from before the
        # first one back to there.
        turned = mirrored(emit, x, {a: (0, x.shape[a]) for a in ranges}, hint)
        kept = {a: (x.shape[a] - m, x.shape[a] - n) for a, (n, m) in ranges.items()}
        return section(emit, turned, kept, hint)
    axes = list(ranges)
    begin = [-1 if a in unsure else last - 1 for a, (_, last) in ranges.items()]
    # An end before the first element is one that stays negative, and so is one that may be.
    end = [
        first - 1 - (x.shape[a] if may_exceed(1, first) else 0)
        for a, (first, _) in ranges.items()
    ]
    stride = [-1] * len(axes)
    return emit("slice", x, axes=axes, begin=begin, end=end, stride=stride, hint=hint)


def left_by(padding: Sequence[Ends], shape: Shape) -> dict[int, Ends]:
    """The part of each axis that negative padding leaves."""
    return {
        axis: (maximum(-before, 0), extent - maximum(-after, 0))
        for axis, (extent, (before, after)) in enumerate(
            zip(shape, padding, strict=True)
        )
    }


def place(
    emit: Emit,
    x: Tensor,
    offsets: Mapping[int, Dimension],
    shape: Shape,
    hint: str = "padded",
) -> Tensor | None:
    """A tensor of zeros that holds x at offsets along some axes. What would lie outside of
    the shape is left out; None where that is all of x.
    """
    padding: list[Ends] = [(0, 0)] * x.rank
    for axis, offset in offsets.items():
        padding[axis] = (offset, shape[axis] - offset - x.shape[axis])
    kept = left_by(padding, x.shape)
    if not all(may_exceed(end, begin) for begin, end in kept.values()):
        return None
    if any(may_exceed(side, 0) for sides in padding for side in sides):
        return emit("pad", x, padding=padding, hint=hint)
    return section(emit, x, kept, hint=hint)


@shape("slice")
def slice_shape(
    input: Shape, axes: Integers, begin: Shape, end: Shape, stride: Integers
) -> Shape:
    """How many positions are taken along each axis."""
    taken = slice_positions(input, axes, begin, end, stride)
    return tuple(taken[a].count if a in taken else n for a, n in enumerate(input))


def slice_positions(
    input: Shape, axes: Integers, begin: Shape, end: Shape, stride: Integers
) -> dict[int, Positions]:
    """The positions in the input that a slice takes, by axis."""
    check_axes(axes, len(input))
    for name, items in (("begin", begin), ("end", end), ("stride", stride or axes)):
        message = f"'{name}' must have an item for each of {len(axes)} axes, but has {len(items)}"
        require(len(items) == len(axes), message)
    stride = stride or (1,) * len(axes)
    message = f"the items of 'stride' must not be 0, but are {list(stride)}"
    require(0 not in stride, message)
    if set(stride) <= {1}:
        # An end of 0 is the old notation for a slice to the end.
        pairs = zip(axes, end, strict=True)
        end = tuple(input[axis] if last == 0 else last for axis, last in pairs)
    return {
        axis: _positions(axis, input[axis], first, last, step)
        for axis, first, last, step in zip(axes, begin, end, stride, strict=True)
    }


def _positions(
    axis: int, extent: Dimension, begin: Dimension, end: Dimension, stride: int
) -> Positions:
    if has_symbols((extent, begin, end)):
        return _open_positions(extent, begin, end, stride)
    # A negative offset counts from the end; what lies outside is just outside: at -1, or
    # at the extent.
    first, last = (
        max(-1, min(offset + extent if offset < 0 else offset, extent))
        for offset in (begin, end)
    )
    ordered = 0 <= first <= last if stride > 0 else last <= first < extent
    message = (
        f"there is no slice from {begin} to {end} with stride {stride}"
        f" along axis {axis} of extent {extent}"
    )
    require(ordered, message)
    return Positions(first, last, stride)


def _open_positions(
    extent: Dimension, begin: Dimension, end: Dimension, stride: int
) -> Positions:
    """The same where there are symbols. There may be none for some of their numbers."""
    first, last = (
        maximum(
            -1, minimum(offset + extent if counts_from_end(offset) else offset, extent)
        )
        for offset in (begin, end)
    )
    ends = f"there is no slice from {begin} to {end} along an extent of {extent}"
    if stride > 0:
        require(reaches(first, 0) and reaches(last - first, 0), ends)
    else:
        require(reaches(extent - 1, first) and reaches(first - last, 0), ends)
    return Positions(first, last, stride)


def counts_from_end(offset: Dimension) -> bool:
    """Whether an offset is negative."""
    return not reaches(offset, 0) if has_symbols(offset) else offset < 0


@vjp("slice")
def slice_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor | None]:
    """The gradient returns to its positions, among zeros."""
    (x,) = op.inputs
    positions = slice_positions(x.shape, **op.settings)
    if any(taken.count == 0 for taken in positions.values()):
        return [None]
    several = {axis: taken for axis, taken in positions.items() if taken.count != 1}
    backward = {a: (0, taken.count) for a, taken in several.items() if taken.step < 0}
    dy = mirrored(emit, dy, backward)
    for axis, taken in several.items():
        dy = _spread(emit, dy, axis, abs(taken.step))
    first = {axis: taken.least for axis, taken in positions.items()}
    return [place(emit, dy, first, x.shape)]


def _spread(emit: Emit, x: Tensor, axis: int, step: int) -> Tensor:
    """The elements with step - 1 zeros after each."""
    if step == 1:
        return x
    column = emit("unsqueeze", x, axes=[axis + 1], hint="column")
    padding = [(0, step - 1 if i == axis + 1 else 0) for i in range(column.rank)]
    filled = emit("pad", column, padding=padding, hint="padded")
    extents = with_extent(x.shape, axis, x.shape[axis] * step)
    return reshaped(emit, filled, extents, hint="spread")


# ---- Borders ----


def inside(padding: Operation) -> list[Positions]:
    """The positions in the result of a pad where its operand is, for each axis."""
    pairs = zip(padding.inputs[0].shape, padding.attributes["padding"], strict=True)
    return [Positions(before, before + extent) for extent, (before, _) in pairs]


@shape("pad")
def pad_shape(input: Shape, padding: Padding, border: str, value: float) -> Shape:
    """Both sides are added; a negative side is cut off."""
    check_length("padding", padding, len(input))
    check_choice("border", border, (*BORDERS, "ignore"))
    pairs = zip(input, padding, strict=True)
    extents = tuple(before + extent + after for extent, (before, after) in pairs)
    message = f"the padded extents must be positive, but are {list(extents)}"
    # There may be nothing along an axis that is not padded.
    padded = [
        extent
        for extent, sides in zip(extents, padding, strict=True)
        if not has_symbols(extent) or sides != (0, 0)
    ]
    require(all(reaches(extent, 1) for extent in padded), message)
    check_reach(border, input, padding)
    return extents


@vjp("pad")
def pad_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor | None]:
    """Repeated elements get the gradients of their copies, then padding is cropped."""
    (x,), fold = op.inputs, _FOLDS.get(op.attributes["border"])
    offsets: dict[int, int] = {}
    for axis, (before, after) in enumerate(op.attributes["padding"]):
        if fold is not None and any(may_exceed(n, 0) for n in (before, after)):
            dy = fold(emit, dy, axis, before, x.shape[axis])
        else:
            offsets[axis] = -before
    return [place(emit, dy, offsets, x.shape)]


def _fold_edges(
    emit: Emit, dy: Tensor, axis: int, before: Dimension, extent: Dimension
) -> Tensor:
    """The adjoint of 'replicate': the edges receive the sums of their copies."""
    if bounds(extent)[0] == 1 and has_symbols(extent):
        return _fold_open_edges(emit, dy, axis, before, extent)
    end = dy.shape[axis]
    # Where the copies of the first element end, and those of the last begin. A single
    # element is the first.
    after = end - before - extent
    first = minimum(before + 1, end) if may_exceed(before, 0) else 0
    last = maximum(before + extent - 1, first) if may_exceed(after, 0) else end
    if extent == 1:
        first = last = end
    sections = [("first", (0, first)), ("inner", (first, last)), ("last", (last, end))]
    parts = []
    for name, ends in sections:
        if may_exceed(ends[1], ends[0]):
            hint = name if name == "inner" else f"{name}_copies"
            part = section(emit, dy, {axis: ends}, hint=hint)
            if name != "inner" and ends[1] - ends[0] != 1:
                part = emit("sum_reduce", part, axes=[axis], hint=name)
            parts.append(part)
    several = len(parts) > 1
    folded = emit("concat", parts, axis=axis, hint="folded") if several else parts[0]
    cropped = minimum(maximum(-before, 0), extent - 1)
    return _within(emit, folded, axis, cropped, extent, "folded")


def _fold_open_edges(
    emit: Emit, dy: Tensor, axis: int, before: Dimension, extent: Dimension
) -> Tensor:
    """The same where the first element may be the last one: sums are added to both."""
    end = dy.shape[axis]
    after = end - before - extent
    folded = _within(emit, dy, axis, -before, extent, "inner")
    edges = ("first", (0, before), 0), ("last", (end - after, end), extent - 1)
    for name, ends, offset in edges:
        if may_exceed(ends[1], ends[0]):
            copies = section(emit, dy, {axis: ends}, hint=f"{name}_copies")
            if ends[1] - ends[0] != 1:
                copies = emit("sum_reduce", copies, axes=[axis], hint=name)
            placed = _within(emit, copies, axis, offset, extent, f"{name}_placed")
            folded = emit("add", folded, placed, hint="folded")
    return folded


def _fold_reflection(
    left_out: int,
    emit: Emit,
    dy: Tensor,
    axis: int,
    before: Dimension,
    extent: Dimension,
) -> Tensor:
    """The adjoint of a reflecting border: what lies outside is turned round and added.
    `left_out` is 1 where the element at the edge has no image, and otherwise 0.
    """
    end, last = dy.shape[axis], before + extent
    head, tail = minimum(before, end), maximum(last, 0)
    sections = [
        ("inner", (maximum(before, 0), minimum(last, end)), maximum(-before, 0)),
        ("before", (0, head), before - head + left_out),
        ("after", (tail, end), last + extent - end - left_out),
    ]
    folded = None
    for name, ends, offset in sections:
        if not may_exceed(ends[1], ends[0]):
            continue
        if name == "inner":
            part = section(emit, dy, {axis: ends}, hint=name)
        else:
            part = mirrored(emit, dy, {axis: ends}, hint=f"mirrored_{name}")
        part = _within(emit, part, axis, offset, extent, name)
        folded = part if folded is None else emit("add", folded, part, hint="folded")
    assert folded is not None
    return folded


def _within(
    emit: Emit, x: Tensor, axis: int, offset: Dimension, extent: Dimension, hint: str
) -> Tensor:
    """A tensor that lies inside an extent along an axis, at an offset, among zeros."""
    shape = with_extent(x.shape, axis, extent)
    placed = place(emit, x, {axis: offset}, shape, hint=hint)
    assert placed is not None
    return placed


# Adds the gradients of copies to that of the element, along an axis.
_FOLDS: dict[str, Callable[[Emit, Tensor, int, Dimension, Dimension], Tensor]] = {
    "replicate": _fold_edges,
    "reflect": partial(_fold_reflection, 1),
    "reflect-even": partial(_fold_reflection, 0),
}


# ---- Batching, linearity, ranges ----

batching_rule("slice")(along_axes)
batching_rule("pad")(with_attributes(padding=lambda padding: ((0, 0), *padding)))
place_rule("slice")(beside_axes)
linearity_rule("slice")(in_first)
range_rule("slice")(of_first)


@linearity_rule("pad")
def pad_linear(op: Operation, some: Sequence[bool], whole: Sequence[bool]) -> bool:
    """Where what stands around the elements is one of them, or zero."""
    return bool(op.settings["border"] != "constant" or op.settings["value"] == 0.0)


@range_rule("pad")
def pad_range(x: Range, border: str, value: float, **attributes: Any) -> Range:
    """The elements, and the value around them."""
    return union(x, Range(value, value)) if border == "constant" else x


@place_rule("pad")
def pad_place(use: Use) -> Place:
    """Nothing is added to the examples."""
    padded = (
        axis for axis, ends in enumerate(use.settings["padding"]) if ends != (0, 0)
    )
    return apart(use.one(), padded)
