"""Steps of the lowerings of window operations: which axes windows slide along, what lies
outside of a tensor, and elements that move apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from math import prod
from typing import Any

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Shape, Tensor
from nnef_grad.ops.parts import section
from nnef_grad.ops.shape import reshaped
from nnef_grad.ops.windows import (
    REPEATING,
    Padding,
    Windows,
    basic_outside,
    counts_inside,
    reaches,
)
from nnef_grad.targets.registry import Inexpressible

# Convolutions and pools have that many spatial axes at most, wherever they run.
MOST_AXES = 3
STILL = (1, 1, (0, 0))
# Next to nothing, in single precision: what a maximum finds in a border that is ignored.
LOWEST = -3e38


# ---- The axes that windows slide along ----


def moving_axes(windows: Windows) -> Shape:
    """The axes along which windows are more than the elements one by one."""
    columns = zip(windows.size, windows.stride, windows.padding, strict=True)
    return tuple(axis for axis, column in enumerate(columns) if column != STILL)


def one_by_one(extents: Shape) -> Windows:
    """Windows that are the elements."""
    ones, zeros = (1,) * len(extents), ((0, 0),) * len(extents)
    return Windows(extents, extents, ones, zeros, ones, ones)


def along(windows: Windows, axes: Sequence[int]) -> Windows:
    """The windows along some axes, in that order."""
    names = [field.name for field in fields(windows)]
    return Windows(*(tuple(getattr(windows, n)[axis] for axis in axes) for n in names))


def joined(first: Windows, second: Windows) -> Windows:
    """The windows along the axes of the first, and then along those of the second."""
    names = [field.name for field in fields(first)]
    return Windows(*(getattr(first, name) + getattr(second, name) for name in names))


def partly(windows: Windows, axes: Sequence[int], extents: Shape) -> Windows:
    """The windows along some axes; along the others the elements one by one, as many as
    the extents say.
    """
    still = one_by_one(extents)
    columns = (windows if axis in axes else still for axis in range(len(extents)))
    return reduce(joined, (along(w, [axis]) for axis, w in enumerate(columns)))


def in_parts(windows: Windows) -> tuple[Windows, Windows]:
    """The windows along as many axes as can be had at once, and along the others
    after that.
    """
    chosen = moving_axes(windows)[:MOST_AXES]
    others = [axis for axis in range(len(windows.up)) if axis not in chosen]
    return partly(windows, chosen, windows.up), partly(windows, others, windows.down)


def basic_attributes(windows: Windows) -> dict[str, Any]:
    """The attributes of a basic operation; there are no gaps in a window of one element."""
    columns = zip(windows.dilation, windows.size, strict=True)
    dilation = tuple(d if f > 1 else 1 for d, f in columns)
    return {"size": windows.size, **replace(windows, dilation=dilation).attributes}


def lie_side_by_side(windows: Windows) -> bool:
    """Whether each element of the up-scaled side is in one window."""
    columns = zip(windows.size, windows.stride, windows.down, strict=True)
    is_next = all(f == s or count == 1 for f, s, count in columns)
    covered = tuple(
        extent * f for extent, f in zip(windows.down, windows.size, strict=True)
    )
    return is_next and _fill(windows, covered)


def lie_apart(windows: Windows) -> bool:
    """Whether each window is one element, the first of as many as the stride says."""
    covered = tuple(
        extent * s for extent, s in zip(windows.down, windows.stride, strict=True)
    )
    return prod(windows.size) == 1 and _fill(windows, covered)


def covers(windows: Windows) -> bool:
    """Whether no part of the up-scaled side lies before the first window, or after the
    last one.
    """
    columns = zip(windows.begin, windows.end, windows.up, strict=True)
    return all(first <= 0 and last >= extent for first, last, extent in columns)


def are_dilated(windows: Windows) -> bool:
    """Whether there are gaps in the windows."""
    return any(
        f > 1 and d > 1 for f, d in zip(windows.size, windows.dilation, strict=True)
    )


def skipping_axes(windows: Windows) -> Shape:
    """The axes along which windows take no elements but those from stride to stride."""
    columns = zip(
        windows.size, windows.stride, windows.dilation, windows.padding, strict=True
    )
    return tuple(
        axis
        for axis, (f, s, d, sides) in enumerate(columns)
        if s > 1 and (f == 1 or d % s == 0) and sides == (0, 0)
    )


def have_empty(windows: Windows) -> bool:
    """Whether there are windows without an element inside the up-scaled side."""
    return not all(map(all, counts_inside(windows)))


def idle_windows(windows: Windows) -> Padding:
    """How many windows lie before the up-scaled side as a whole, and how many after it,
    along each axis.
    """
    reach = reaches(windows.size, windows.dilation)
    columns = zip(
        windows.begin, windows.stride, reach, windows.up, windows.down, strict=True
    )
    return tuple(
        (_within(-((first + r - 1) // s), n), _within(n + (first - extent) // s, n))
        for first, s, r, extent, n in columns
    )


def _within(count: int, most: int) -> int:
    return min(max(count, 0), most)


def without_idle(windows: Windows) -> Windows:
    """The windows without those that lie before or after the up-scaled side as a whole:
    for the others less padding will do, or a negative one.
    """
    idle = idle_windows(windows)
    down = tuple(n - sum(sides) for n, sides in zip(windows.down, idle, strict=True))
    begin = (
        first + before * s
        for first, s, (before, _) in zip(
            windows.begin, windows.stride, idle, strict=True
        )
    )
    front = tuple((-first, 0) for first in begin)
    found = replace(windows, down=down, padding=front)
    sides = zip(idle, windows.padding, front, found.end, windows.up, strict=True)
    padding = tuple(
        (before, end - extent) if any(left_out) else whole
        for left_out, whole, (before, _), end, extent in sides
    )
    return replace(found, padding=padding)


def check_inside(windows: Windows, border: str) -> None:
    """Raises `Inexpressible` where a border is ignored and all of a window lies in it."""
    if border == "ignore" and have_empty(windows):
        raise Inexpressible("with windows that have no element inside")


def _fill(windows: Windows, covered: Shape) -> bool:
    """Whether that is all of the up-scaled side, and windows without gaps begin there."""
    begins = not any(before for before, _ in windows.padding)
    return begins and covered == windows.up and not are_dilated(windows)


@dataclass(frozen=True)
class Layout:
    """A tensor with the axes after that windows slide along, and all others as one.

    Attributes:
        shape: the shape of the tensor. The extents of those axes are given again where
            they are wanted: an operation changes them.
        axes: those axes, in ascending order.
    """

    shape: Shape
    axes: Shape

    def apart(
        self, emit: Emitter, x: Tensor, shape: Shape, hint: str = "planes"
    ) -> Any:
        """The tensor as [others, *shape], where the shape holds what is in those axes."""
        others = prod(x.shape[axis] for axis in self._others)
        ordered = transposed(emit, x, self._order, hint="turned")
        return reshaped(emit, ordered, (others, *shape), hint=hint)

    def together(self, emit: Emitter, planes: Tensor, extents: Shape) -> Any:
        """The way back, to a tensor with these extents of those axes."""
        others = (self.shape[axis] for axis in self._others)
        ordered = reshaped(emit, planes, (*others, *extents), hint="turned")
        places = range(len(self.shape))
        return transposed(emit, ordered, sorted(places, key=self._order.__getitem__))

    @property
    def _others(self) -> list[int]:
        return [axis for axis in range(len(self.shape)) if axis not in self.axes]

    @property
    def _order(self) -> list[int]:
        return [*self._others, *self.axes]


def transposed(
    emit: Emitter, x: Tensor, axes: Sequence[int], hint: str | None = None
) -> Any:
    """The tensor with its axes in another order; itself where they have it already."""
    is_ordered = list(axes) == sorted(axes)
    return x if is_ordered else emit("transpose", x, axes=axes, hint=hint)


# ---- Around the data ----


def cropped(emit: Emitter, x: Tensor, windows: Windows) -> tuple[Any, Windows]:
    """What negative padding leaves of a tensor, and the windows over its last axes."""
    first = x.rank - len(windows.up)
    columns = zip(windows.padding, windows.up, strict=True)
    ranges = {
        axis: (max(-before, 0), extent - max(-after, 0))
        for axis, ((before, after), extent) in enumerate(columns, start=first)
    }
    inside = section(emit, x, ranges, hint="cropped")
    padding = tuple(
        (max(before, 0), max(after, 0)) for before, after in windows.padding
    )
    return inside, replace(windows, up=inside.shape[first:], padding=padding)


def surrounded(
    emit: Emitter, x: Tensor, windows: Windows, border: str, value: float = 0.0
) -> tuple[Any, Windows]:
    """A tensor with all that windows over its last axes read outside of it, and the
    windows over that. Negative padding stays: what it crops may be what is repeated.
    """
    first, outside = x.rank - len(windows.up), basic_outside(windows)
    inner = tuple((min(before, 0), min(after, 0)) for before, after in windows.padding)
    windows = replace(windows, padding=inner)
    if not any(map(any, outside)):
        return x, windows
    padding = (*((0, 0),) * first, *outside)
    filled = {"border": border} if border in REPEATING else {"value": value}
    padded = emit("pad", x, padding=padding, **filled, hint="padded")
    return padded, replace(windows, up=padded.shape[first:])


# ---- Elements that move apart ----

Fill = Callable[[Emitter, Tensor, Sequence[int]], Any]


def repeated(emit: Emitter, x: Tensor, factors: Mapping[int, int]) -> Any:
    """The tensor with each element repeated along some axes."""

    def fill(emit: Emitter, blocks: Tensor, counts: Sequence[int]) -> Any:
        return emit("tile", blocks, repeats=counts, hint="repeated")

    return _spread(emit, x, factors, fill)


def stuffed(emit: Emitter, x: Tensor, factors: Mapping[int, int]) -> Any:
    """The tensor with zeros after each element along some axes: with a factor of 3 they
    are two.
    """

    def fill(emit: Emitter, blocks: Tensor, counts: Sequence[int]) -> Any:
        padding = [(0, count - 1) for count in counts]
        return emit("pad", blocks, padding=padding, hint="padded")

    return _spread(emit, x, factors, fill)


def _spread(emit: Emitter, x: Tensor, factors: Mapping[int, int], fill: Fill) -> Any:
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
