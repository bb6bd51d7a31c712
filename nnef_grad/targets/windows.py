"""Steps of the lowerings of window operations: the axes that windows slide along, how
they lie, and elements that are repeated or moved apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Shape, Tensor
from nnef_grad.ops.shape import reshaped, transposed
from nnef_grad.ops.windows import REPEATING, Windows, basic_outside, counts_inside

# The size, the padding, the stride and the dilation of windows that are the elements.
STILL = (1, (0, 0), 1, 1)
# Next to nothing, in single precision: what a maximum finds in a border that is ignored.
LOWEST = -3e38

# Up-scaled and down-scaled extent, and the four of STILL.
Column = tuple[Any, ...]


# ---- The axes that windows slide along ----


def columns_of(windows: Windows) -> list[Column]:
    """The windows axis by axis."""
    w = windows
    fields = (w.up, w.down, w.size, w.padding, w.stride, w.dilation)
    return list(zip(*fields, strict=True))


def of_columns(columns: Sequence[Column]) -> Windows:
    """The windows with those along each axis."""
    return Windows(*zip(*columns, strict=True)) if columns else Windows(*[()] * 6)


def still(extent: int) -> Column:
    """Windows that are the elements of an axis."""
    return (extent, extent, *STILL)


def moving_axes(windows: Windows) -> Shape:
    """The axes along which windows are more than the elements one by one."""
    columns = zip(windows.size, windows.padding, windows.stride, strict=True)
    return tuple(axis for axis, column in enumerate(columns) if column != STILL[:3])


def window_attributes(windows: Windows) -> dict[str, Any]:
    """The attributes of a pool; there are no gaps in a window of one element."""
    pairs = zip(windows.dilation, windows.size, strict=True)
    dilation = tuple(d if f > 1 else 1 for d, f in pairs)
    return {"size": windows.size, **replace(windows, dilation=dilation).attributes}


def skipping_axes(windows: Windows) -> Shape:
    """The axes along which windows take no elements but those from stride to stride."""
    return tuple(
        axis
        for axis, (_, _, f, sides, s, d) in enumerate(columns_of(windows))
        if s > 1 and (f == 1 or d % s == 0) and sides == (0, 0)
    )


# ---- How windows lie ----


def are_side_by_side(windows: Windows) -> bool:
    """Whether each element of the up-scaled side is in one window."""
    return not are_dilated(windows) and all(
        sides[0] == 0 and up == down * f and (f == s or down == 1)
        for up, down, f, sides, s, _ in columns_of(windows)
    )


def form_blocks(windows: Windows) -> bool:
    """Whether windows lie side by side along two axes at most. Each axis makes two of
    [others, x1, f1, x2, f2]; a rank of 7 is too much for most runtimes.
    """
    return len(moving_axes(windows)) <= 2 and are_side_by_side(windows)


def are_single(windows: Windows) -> bool:
    """Whether each window is one element, the first of as many as the stride says."""
    return all(
        sides[0] == 0 and up == down * s and f == 1
        for up, down, f, sides, s, _ in columns_of(windows)
    )


def are_dilated(windows: Windows) -> bool:
    """Whether there are gaps in the windows."""
    return any(f > 1 and d > 1 for _, _, f, _, _, d in columns_of(windows))


def covers(windows: Windows) -> bool:
    """Whether no part of the up-scaled side lies before the first window, or after the
    last one.
    """
    return all(axis.begin <= 0 and axis.end >= axis.up for axis in windows.axes)


def have_empty(windows: Windows) -> bool:
    """Whether there are windows without an element inside the up-scaled side."""
    return not all(map(all, counts_inside(windows)))


# ---- Planes ----


@dataclass(frozen=True)
class Layout:
    """A tensor with the axes last that windows slide along, and all others as one.

    Attributes:
        shape: the shape of the tensor. The extents of those axes are given again where
            they are wanted: an operation changes them.
        axes: those axes, in ascending order.
    """

    shape: Shape
    axes: Shape

    def to_planes(
        self, emit: Emitter, x: Tensor, extents: Shape, hint: str = "planes"
    ) -> Tensor:
        """The tensor as [others, *extents], where the extents hold what is in the axes."""
        others = prod(x.shape[axis] for axis in self._others)
        ordered = transposed(emit, x, [*self._others, *self.axes], hint="turned")
        planes: Tensor = reshaped(emit, ordered, (others, *extents), hint=hint)
        return planes

    def from_planes(self, emit: Emitter, planes: Tensor, extents: Shape) -> Tensor:
        """The way back, to a tensor with these extents of the axes."""
        order = [*self._others, *self.axes]
        others = (self.shape[axis] for axis in self._others)
        ordered = reshaped(emit, planes, (*others, *extents), hint="turned")
        return transposed(
            emit, ordered, sorted(range(len(order)), key=order.__getitem__)
        )

    @property
    def _others(self) -> list[int]:
        return [axis for axis in range(len(self.shape)) if axis not in self.axes]


def layout_of(windows: Windows) -> tuple[Layout, Windows]:
    """The layout for the axes that windows slide along, or else for the last one, and
    the windows along those.
    """
    axes = moving_axes(windows) or tuple(range(len(windows.up)))[-1:]
    columns = columns_of(windows)
    return Layout(windows.up, axes), of_columns([columns[axis] for axis in axes])


def surrounded(
    emit: Emitter, x: Tensor, windows: Windows, border: str, value: float = 0.0
) -> tuple[Tensor, Windows]:
    """A tensor with all that windows over its last axes read outside of it, and the
    windows over that.
    """
    first, outside = x.rank - len(windows.up), basic_outside(windows)
    windows = replace(windows, padding=((0, 0),) * len(windows.up))
    if not any(map(any, outside)):
        return x, windows
    padding = (*((0, 0),) * first, *outside)
    filled = {"border": border} if border in REPEATING else {"value": value}
    padded = emit("pad", x, padding=padding, **filled, hint="padded")
    return padded, replace(windows, up=padded.shape[first:])


# ---- Elements that move apart ----

Fill = Callable[[Emitter, Tensor, Sequence[int]], Tensor]


def repeat_elements(emit: Emitter, x: Tensor, factors: Mapping[int, int]) -> Tensor:
    """The tensor with each element repeated along some axes."""
    return _spread(emit, x, factors, _tile)


def dilate(emit: Emitter, x: Tensor, factors: Mapping[int, int]) -> Tensor:
    """The tensor with zeros after each element along some axes: two for a factor of 3."""
    return _spread(emit, x, factors, _pad)


def _tile(emit: Emitter, elements: Tensor, counts: Sequence[int]) -> Tensor:
    return emit("tile", elements, repeats=counts, hint="repeated")


def _pad(emit: Emitter, elements: Tensor, counts: Sequence[int]) -> Tensor:
    padding = [(0, count - 1) for count in counts]
    return emit("pad", elements, padding=padding, hint="padded")


def _spread(emit: Emitter, x: Tensor, factors: Mapping[int, int], fill: Fill) -> Tensor:
    """Each element gets an axis of its own, which is filled.

    Two axes at once make rank 5, the most that all runtimes pad and tile; and what they
    pad are axes from the third on.
    """
    axes = [axis for axis, factor in sorted(factors.items()) if factor > 1]
    while axes:
        chosen = axes[-2:] if axes[-1] == x.rank - 1 else axes[-1:]
        axes = axes[: -len(chosen)]
        elements = reshaped(emit, x, _elements(x.shape, chosen), hint="elements")
        counts = [1] * elements.rank
        counts[2 : 2 + 2 * len(chosen) : 2] = [factors[axis] for axis in chosen]
        filled = fill(emit, elements, counts)
        extents = (n * factors[a] if a in chosen else n for a, n in enumerate(x.shape))
        x = reshaped(emit, filled, tuple(extents), hint="spread")
    return x


def _elements(shape: Shape, chosen: Sequence[int]) -> Shape:
    """The shape with an axis for each element of the chosen axes: the third and, where
    the last axis is one of two, the fifth.
    """
    first, *others = chosen
    after = prod(shape[first + 1 :])
    before = (prod(shape[:first]), shape[first], 1)
    if others:
        return (*before, after, 1)
    return (*before, after) if after > 1 else before
