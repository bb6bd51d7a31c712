"""How windows lie, and steps of their lowerings: tensors with the axes last that windows
slide along, the elements of windows beside each other, and elements that move apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Shape, Tensor
from nnef_grad.ops.shape import reshaped, transposed
from nnef_grad.ops.windows import REPEATING, AxisWindows, Windows, basic_outside


def still(extent: int) -> AxisWindows:
    """Windows that are the elements of an axis."""
    return AxisWindows(extent, extent, 1, (0, 0), 1, 1)


def of_columns(columns: Sequence[AxisWindows]) -> Windows:
    """The windows that are these along each axis."""
    return Windows(*zip(*columns, strict=True)) if columns else Windows(*[()] * 6)


def window_attributes(windows: Windows) -> dict[str, Any]:
    """The attributes of a pool; there are no gaps in a window of one element."""
    dilation = tuple(c.dilation if c.size > 1 else 1 for c in windows.axes)
    return {"size": windows.size, **replace(windows, dilation=dilation).attributes}


def moving_axes(windows: Windows) -> Shape:
    """The axes along which windows are more than the elements one by one."""
    return tuple(a for a, c in enumerate(windows.axes) if not c.is_still)


def skipping_axes(windows: Windows) -> Shape:
    """The axes along which windows take no elements but those from stride to stride."""
    return tuple(
        axis
        for axis, c in enumerate(windows.axes)
        if c.stride > 1 and c.padding == (0, 0)
        if c.size == 1 or c.dilation % c.stride == 0
    )


def are_dilated(windows: Windows) -> bool:
    """Whether there are gaps in the windows."""
    return any(c.size > 1 and c.dilation > 1 for c in windows.axes)


def are_side_by_side(windows: Windows) -> bool:
    """Whether each element of the up-scaled side is in one window."""
    return not are_dilated(windows) and all(
        c.padding[0] == 0
        and c.up == c.down * c.size
        and (c.size == c.stride or c.down == 1)
        for c in windows.axes
    )


def are_single(windows: Windows) -> bool:
    """Whether each window is one element, the first of as many as the stride says."""
    return all(
        c.padding[0] == 0 and c.up == c.down * c.stride and c.size == 1
        for c in windows.axes
    )


def form_blocks(windows: Windows) -> bool:
    """Whether windows lie side by side along two axes at most: each axis makes two of
    [others, x1, f1, x2, f2], and a rank of 7 is too much for most runtimes.
    """
    return len(moving_axes(windows)) <= 2 and are_side_by_side(windows)


# Next to nothing, in single precision: what a maximum finds in a border that is ignored.
LOWEST = -3e38


def surrounded(
    emit: Emitter, x: Tensor, windows: Windows, border: str, value: float = 0.0
) -> tuple[Tensor, Windows]:
    """A tensor with the border that windows read, and the windows over that."""
    first, outside = x.rank - len(windows.up), basic_outside(windows)
    if any(map(any, outside)):
        around = (*((0, 0),) * first, *outside)
        x = emit("pad", x, padding=around, **filling_of(border, value), hint="padded")
    padding = ((0, 0),) * len(windows.up)
    return x, replace(windows, up=x.shape[first:], padding=padding)


def filling_of(border: str, value: float) -> dict[str, Any]:
    """Where a border repeats something, no value is given."""
    return {"border": border} if border in REPEATING else {"value": value}


# ---- Tensors that windows slide over ----


class Layout:
    """A tensor that windows slide over, with the axes last that they slide along, or else
    its last one, and all others as one: [others, x1, x2].

    The elements of windows are [others, f1 * f2, x1, x2] or, where windows form blocks,
    [others, x1, f1, x2, f2].

    Attributes:
        windows: the windows along those axes.
        in_blocks: whether they form blocks.
    """

    def __init__(self, windows: Windows) -> None:
        self._shape, all_axes = windows.up, range(len(windows.up))
        self._last = moving_axes(windows) or tuple(all_axes)[-1:]
        self._others = [axis for axis in all_axes if axis not in self._last]
        self.windows = of_columns([windows.axes[axis] for axis in self._last])
        self.in_blocks = form_blocks(windows)

    def to_planes(
        self, emit: Emitter, x: Tensor, extents: Shape, hint: str = "planes"
    ) -> Tensor:
        """The tensor as [others, *extents], where the extents hold what is in the axes."""
        others = prod(x.shape[axis] for axis in self._others)
        ordered = transposed(emit, x, [*self._others, *self._last], hint="turned")
        return reshaped(emit, ordered, (others, *extents), hint)

    def from_planes(self, emit: Emitter, planes: Tensor, extents: Shape) -> Tensor:
        """The way back, to a tensor with these extents of the axes."""
        order = [*self._others, *self._last]
        others = (self._shape[axis] for axis in self._others)
        ordered = reshaped(emit, planes, (*others, *extents), hint="turned")
        return transposed(emit, ordered, [order.index(a) for a in range(len(order))])

    @property
    def axes(self) -> Shape:
        """The axes of the elements of one window."""
        last = 1 + 2 * len(self.windows.size)
        return tuple(range(2, last, 2)) if self.in_blocks else (1,)

    @property
    def volume(self) -> int:
        """The number of elements of a window."""
        return prod(self.windows.size)

    def take(self, emit: Emitter, x: Tensor, border: str) -> Tensor:
        """The elements of all windows: where they are, or by filters of one element."""
        windows = self.windows
        if self.in_blocks:
            extents = self._extents(windows.down, windows.size)
            return self.to_planes(emit, x, extents, hint="blocks")
        x = self.to_planes(emit, x, (1, *windows.up))
        patches = (x.shape[0], self.volume, *windows.down)
        if border != "constant":
            x, windows = surrounded(emit, x, windows, border, LOWEST)
        for step in _steps(windows):
            planes = reshaped(emit, x, (prod(x.shape[:2]), 1, *step.up), "planes")
            filters = _one_hot(emit, step.size)
            x = emit("conv", planes, filters, **step.attributes, hint="patches")
        return reshaped(emit, x, patches, hint="patches")

    def put(self, emit: Emitter, x: Tensor) -> Tensor:
        """The same steps in reverse: the elements are added where windows overlap."""
        for step in [] if self.in_blocks else reversed(_steps(self.windows)):
            volume = prod(step.size)
            planes = prod(x.shape[:2]) // volume
            x = reshaped(emit, x, (planes, volume, *step.down), hint="patches")
            shape = step.output_shape(planes, 1)
            attributes = {**step.attributes, "output_shape": shape, "hint": "planes"}
            x = emit("deconv", x, _one_hot(emit, step.size), **attributes)
        return self.from_planes(emit, x, self.windows.up)

    def to_lines(self, emit: Emitter, elements: Tensor) -> tuple[Tensor, int]:
        """The elements of each window along one axis, and which that is."""
        if not self.in_blocks:
            return elements, 1
        order = [0, *range(1, elements.rank, 2), *self.axes]
        ordered = transposed(emit, elements, order, hint="turned")
        shape = (elements.shape[0], *self.windows.down, self.volume)
        return reshaped(emit, ordered, shape, hint="lines"), len(shape) - 1

    def to_single(self, emit: Emitter, y: Tensor, hint: str) -> Tensor:
        """A tensor with one value for each window, beside the elements."""
        down = self.windows.down
        return self.to_planes(emit, y, self._extents(down, (1,) * len(down)), hint)

    def numbers(self, emit: Emitter, values: Sequence[int], hint: str) -> Tensor:
        """A number for each element of a window, the same for all windows."""
        size = self.windows.size
        shape = (1, *self._extents((1,) * len(size), size))
        return emit("constant", shape=shape, value=list(map(float, values)), hint=hint)

    def _extents(self, down: Shape, size: Shape) -> Shape:
        """The extents after the first axis, for so many windows of that size."""
        if self.in_blocks:
            return tuple(chain(*zip(down, size, strict=True)))
        return (prod(size), *down)


# The filters for n elements hold n * n numbers. More elements than this are taken axis by
# axis.
MOST_AT_ONCE = 64


def _steps(windows: Windows) -> list[Windows]:
    """The windows all at once or, if they are large, along one axis after the other."""
    if prod(windows.size) <= MOST_AT_ONCE:
        return [windows]
    done, left = ([*map(still, extents)] for extents in (windows.down, windows.up))
    return [
        of_columns([*done[:axis], column, *left[axis + 1 :]])
        for axis, column in enumerate(windows.axes)
    ]


def _one_hot(emit: Emitter, size: Shape) -> Tensor:
    """For each element of a window, in row-major order, a filter that is 1 there."""
    volume = prod(size)
    value = [float(i == j) for i in range(volume) for j in range(volume)]
    return emit("constant", shape=[volume, 1, *size], value=value, hint="one_hot")


# ---- Elements that move apart ----


def spread(
    emit: Emitter, x: Tensor, factors: Sequence[int], *, zeros: bool = False
) -> Tensor:
    """The tensor with each element repeated along its axes or, with zeros, followed by
    them: by two for a factor of 3.

    Each element gets an axis of its own, which is filled. Two axes at once make rank 5,
    the most that all runtimes pad and tile; and what they pad are axes from the third on.
    """
    axes = [axis for axis, factor in enumerate(factors) if factor > 1]
    while axes:
        chosen = axes[-2:] if axes[-1] == x.rank - 1 else axes[-1:]
        axes = axes[: -len(chosen)]
        elements = reshaped(emit, x, _elements(x.shape, chosen), hint="elements")
        counts = [1] * elements.rank
        counts[2 : 2 + 2 * len(chosen) : 2] = [factors[axis] for axis in chosen]
        if zeros:
            padding = [(0, count - 1) for count in counts]
            filled = emit("pad", elements, padding=padding, hint="padded")
        else:
            filled = emit("tile", elements, repeats=counts, hint="repeated")
        extents = (n * factors[a] if a in chosen else n for a, n in enumerate(x.shape))
        x = reshaped(emit, filled, tuple(extents), hint="spread")
    return x


def _elements(shape: Shape, chosen: Sequence[int]) -> Shape:
    """The shape with an axis of extent 1 after each chosen one: third, or fifth."""
    first, after = chosen[0], prod(shape[chosen[0] + 1 :])
    before = (prod(shape[:first]), shape[first], 1)
    if len(chosen) == 2:
        return (*before, after, 1)
    return (*before, after) if after > 1 else before
