"""Maxima of small windows: `sample` and `desample` at the index of a maximum. A window is
looked at along one axis after the other, the last one first: the first maximum of its first
line that has it is the first maximum of all. Along an axis it is looked at place by place:

    hit = eq(element, largest)                  whether it is the maximum
    kept = select(hit, left, 0.0)               what it receives of the gradient
    left = select(hit, 0.0, left)               what is left for the places after it

What the places receive goes back along each axis: places that are a stride apart are
added, others lie between each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from math import prod
from typing import NamedTuple

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import DefUse
from nnef_grad.graph.ir import Graph, Integers, Operation, Shape, Tensor
from nnef_grad.graph.quotients import maximum, minimum
from nnef_grad.language.library import STDLIB
from nnef_grad.language.types import LARGEST
from nnef_grad.ops.shape import Positions, reshaped, transposed, with_extent
from nnef_grad.ops.windows import (
    REPEATING,
    AxisWindows,
    Windows,
    of_columns,
    still,
    windows_of,
)
from nnef_grad.targets.shape import MOST_AXES, take
from nnef_grad.targets.windows import (
    filling_of,
    moving_axes,
    window_attributes,
)

# As many as a cube of three has.
MOST_PLACES = 27


def finds_maxima(source: Operation, windows: Windows) -> bool:
    """Whether an operation makes an index of the maxima in these windows."""
    is_maximum = source.name in ("argmax_pool", "max_pool_with_index")
    return is_maximum and windows_of(source) == windows


def finds_small_maxima(source: Operation, windows: Windows) -> bool:
    """Whether it does, in windows that are small enough to be looked at place by place."""
    # An open extent is compared for what is a maximum alone.
    if not finds_maxima(source, windows) or len(windows.size) > MOST_AXES:
        return False
    return prod(windows.size) <= MOST_PLACES


def around_indices(
    graph: Graph, lacks: Callable[[Operation], bool]
) -> Iterator[Operation]:
    """The operations that make the index of a maximum, and those that read it, where
    these are `sample` and `desample` in windows in which the runtimes have the maximum.
    """
    near = DefUse(graph)
    for op in near.named("argmax_pool"):
        (index,), pool = op.outputs, replace(op, definition=STDLIB["max_pool"])
        readers = near.readers.get(index, [])
        is_read = index not in graph.outputs and all(_reads(r, op) for r in readers)
        if is_read and not lacks(pool):
            yield from (op, *readers)


def _reads(reader: Operation, source: Operation) -> bool:
    is_index = reader.operands[1:] == source.outputs
    is_reader = reader.name in ("sample", "desample") and is_index
    return is_reader and windows_of(reader) == windows_of(source)


# ---- Lines ----


class _Level(NamedTuple):
    """An axis that windows move along: of tensors, or of lines, which are tensors with the
    axes first that windows move along, and all others as one, so that what is side by side
    stays so.
    """

    axis: int
    in_lines: bool
    column: AxisWindows
    # For each place, whether its element is as large as the largest one.
    hits: list[Tensor]


def _to_lines(emit: Emitter, x: Tensor, axes: Integers) -> Tensor:
    if not axes:
        return x
    others = [axis for axis in range(x.rank) if axis not in axes]
    moved = transposed(emit, x, [*axes, *others], "moved")
    extents = moved.shape[: len(axes)]
    return reshaped(emit, moved, (*extents, prod(moved.shape[len(axes) :])), "lines")


def _from_lines(emit: Emitter, lines: Tensor, axes: Integers, shape: Shape) -> Tensor:
    """The way back, to a shape with other extents of these axes."""
    if not axes:
        return lines
    order = [*axes, *(axis for axis in range(len(shape)) if axis not in axes)]
    extents = (*lines.shape[:-1], *(shape[axis] for axis in order[len(axes) :]))
    apart = reshaped(emit, lines, extents, "apart")
    return transposed(emit, apart, [order.index(axis) for axis in range(len(order))])


def _levels(emit: Emitter, source: Operation, first: Integers = ()) -> list[_Level]:
    """The axes that the windows move along, the last one first; in lines, or not."""
    (x,), windows, border = source.inputs, windows_of(source), source.settings["border"]
    value, axes = -LARGEST if border == "ignore" else 0.0, moving_axes(windows)
    lines, levels = _to_lines(emit, x, first), list[_Level]()
    for place, axis in reversed([*enumerate(axes)]):
        where = (place, True) if first else (axis, False)
        level = _Level(*where, windows.axes[axis], [])
        elements = [*_elements(emit, lines, level, border, value)]
        if place > 0 and level.column.outside == (0, 0):
            lines = reduce(partial(emit, "max", hint="largest"), elements)
        else:
            lines = _to_lines(emit, _largest(emit, source, axes[:place]), first)
        level.hits.extend(emit("eq", e, lines, hint="hit") for e in elements)
        levels.append(level)
    return levels


def _largest(emit: Emitter, source: Operation, still_along: Shape) -> Tensor:
    """The maximum, as the network has it, but along some axes."""
    windows, settings = windows_of(source), source.settings
    if still_along:
        columns = enumerate(windows.axes)
        kept = [still(c.up) if axis in still_along else c for axis, c in columns]
        settings = {**settings, **window_attributes(of_columns(kept))}
    return emit("max_pool", *source.inputs, **settings, hint="largest")


def _elements(
    emit: Emitter, lines: Tensor, level: _Level, border: str, value: float = 0.0
) -> Iterator[Tensor]:
    """The elements at each place; in lines, of phases that are a stride apart."""
    axis, column, (before, after) = level.axis, level.column, level.column.outside
    first = [before + column.begin + i * column.dilation for i in range(column.size)]
    if not level.in_lines:
        around = _padded(emit, lines, axis, level.column.outside, border, value)
        for begin in first:
            end = begin + (column.down - 1) * column.stride + 1
            yield take(emit, around, {axis: Positions(begin, end, column.stride)})
        return
    count = first[-1] // column.stride + column.down
    length = count * column.stride
    if border not in REPEATING:
        after = maximum(length - before - column.up, 0)
    around = _padded(emit, lines, axis, (before, after), border, value)
    inside = Positions(0, minimum(around.shape[axis], length))
    kept = take(emit, around, {axis: inside})
    whole = _padded(emit, kept, axis, (0, length - inside.count))
    extents = with_extent(whole.shape, axis, count)
    apart = (*extents[: axis + 1], column.stride, *extents[axis + 1 :])
    phases = reshaped(emit, whole, apart, "phases")
    for begin, phase in (divmod(i, column.stride) for i in first):
        one = take(emit, phases, {axis + 1: Positions(phase, phase + 1)})
        met = {axis: Positions(begin, begin + column.down)}
        yield take(emit, reshaped(emit, one, extents, "phase"), met)


def _padded(
    emit: Emitter,
    x: Tensor,
    axis: int,
    sides: tuple[int, int],
    border: str = "constant",
    value: float = 0.0,
) -> Tensor:
    """A tensor with so many elements before it and after it along an axis."""
    if sides == (0, 0):
        return x
    padding = [sides if i == axis else (0, 0) for i in range(x.rank)]
    return emit("pad", x, padding=padding, **filling_of(border, value), hint="padded")


# ---- The maxima, and where they are ----


def maxima_by_place(emit: Emitter, x: Tensor, windows: Windows) -> Tensor:
    """The maxima themselves, of windows in which no element of the border is one."""
    for axis in moving_axes(windows):
        level = _Level(axis, False, windows.axes[axis], [])
        elements = _elements(emit, x, level, "ignore", -LARGEST)
        x = reduce(partial(emit, "max", hint="largest"), elements)
    return x


def sample_maxima(emit: Emitter, x: Tensor, source: Operation, border: str) -> Tensor:
    """The elements of a tensor, with its border, where the maxima of another are."""
    for level in _levels(emit, source):
        elements = [*_elements(emit, x, level, border)]
        sampled: Tensor | float = 0.0
        for hit, element in zip(level.hits[::-1], elements[::-1], strict=True):
            sampled = emit("select", hit, element, sampled, hint="sampled")
        assert isinstance(sampled, Tensor)
        x = sampled
    return x


def desample_maxima(
    emit: Emitter, x: Tensor, source: Operation, first: Integers = ()
) -> Tensor:
    """The elements of a tensor, each at the maximum of its window; maybe in lines."""
    lines = _to_lines(emit, x, first)
    for level in reversed(_levels(emit, source, first)):
        left, kept = lines, list[Tensor]()
        for hit in level.hits:
            kept.append(emit("select", hit, left, 0.0, hint="kept"))
            left = emit("select", hit, 0.0, left, hint="left")
        lines = _joined(emit, kept, level)
    return _from_lines(emit, lines, first, x.shape)


def _joined(emit: Emitter, parts: Sequence[Tensor], level: _Level) -> Tensor:
    """The sum of the places along an axis, each where its elements are."""
    axis, column = level.axis, level.column
    count = -(-(column.up + sum(level.column.outside)) // column.stride)
    phases: list[list[Tensor]] = [[] for _ in range(column.stride)]
    for place, part in enumerate(parts):
        before, phase = divmod(place * column.dilation, column.stride)
        sides = before, count - before - part.shape[axis]
        phases[phase].append(_padded(emit, part, axis, sides))
    shape = with_extent(parts[0].shape, axis, count)
    line = interleaved(emit, [_sum(emit, phase, shape) for phase in phases], axis)
    first = max(-column.begin, 0)
    return take(emit, line, {axis: Positions(first, first + column.up)})


def _sum(emit: Emitter, parts: Sequence[Tensor], shape: Shape) -> Tensor:
    if not parts:
        return emit("constant", shape=shape, value=[0.0], hint="zeros")
    return reduce(partial(emit, "add", hint="sum"), parts)


def interleaved(emit: Emitter, parts: Sequence[Tensor], axis: int) -> Tensor:
    """The first elements of all parts along an axis, then the second ones, and so on."""
    if len(parts) == 1:
        return parts[0]
    shape = parts[0].shape
    apart = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    each = [reshaped(emit, part, apart, "apart") for part in parts]
    joined = emit("concat", each, axis=axis + 1, hint="between")
    return reshaped(emit, joined, with_extent(shape, axis, shape[axis] * len(parts)))
