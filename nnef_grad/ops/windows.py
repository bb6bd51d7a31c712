"""The arithmetic of sliding windows, which convolutions and poolings share.

A window operation relates two sides, whichever way it computes:

    up      the extents of the up-scaled side: the input of conv, box, sample;
            the output of deconv, debox, desample
    down    the extents of the down-scaled side, with one element for each window

Along an axis with padding (p, q), element j of window i lies at position i * stride + j
* dilation - p of the up-scaled side. An operation and its adjoint have the same
windows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from nnef_grad.graph.extents import (
    Dimension,
    OpenExtentError,
    as_number,
    has_symbols,
    may_exceed,
)
from nnef_grad.graph.ir import Integers, Operation, Shape, shape_of
from nnef_grad.graph.learning import all_equal, reaches
from nnef_grad.graph.quotients import maximum, minimum
from nnef_grad.ops.registry import require
from nnef_grad.ops.shape import Positions

Padding = tuple[tuple[Dimension, Dimension], ...]


class AxisWindows(NamedTuple):
    """The windows along one axis."""

    up: Dimension
    down: Dimension
    size: Dimension
    padding: tuple[Dimension, Dimension]
    stride: int
    dilation: int

    @property
    def is_still(self) -> bool:
        """Whether the windows are the elements one by one."""
        return (self.size, self.padding, self.stride) == (1, (0, 0), 1)

    @property
    def reach(self) -> Dimension:
        """How many elements lie from the first to the last of a window."""
        return _reach(self.size, self.dilation)

    @property
    def begin(self) -> Dimension:
        """Where the first window begins on the up-scaled side."""
        return -self.padding[0]

    @property
    def end(self) -> Dimension:
        """Where the last window ends: inside, where the stride leaves a remainder."""
        return self.begin + (self.down - 1) * self.stride + self.reach

    @property
    def outside(self) -> tuple[int, int]:
        """How many elements before and after the up-scaled side are read."""
        return maximum(-self.begin, 0), maximum(self.end - self.up, 0)

    @property
    def outside_down(self) -> tuple[int, int]:
        """How many elements before and after its input, the down-scaled side, a reverse
        operation reads: the windows before the first, and after the last, that would lie
        over the output, be it with a gap of the dilation.
        """
        sides = self.begin, self.up - self.end
        before, after = (maximum((n + self.reach - 1) // self.stride, 0) for n in sides)
        return before, after

    @property
    def counts_inside(self) -> Integers:
        """How many elements of each window lie inside; (1,) if still."""
        if self.is_still:
            return (1,)
        gap = self.dilation
        firsts = [
            self.begin + window * self.stride for window in range(as_number(self.down))
        ]
        # Of each window the first element that is inside, and the one after the last.
        pairs = [
            (max(-(f // gap), 0), min(-((f - self.up) // gap), self.size))
            for f in firsts
        ]
        return tuple([max(end - begin, 0) for begin, end in pairs])

    @property
    def has_empty(self) -> bool:
        """Whether there is a window without an element inside."""
        if not has_symbols((self.up, self.down)):
            return not all(self.counts_inside)
        if not (may_exceed(0, self.begin) or may_exceed(self.end, self.up)):
            return False
        first, last = self.begin + self.reach, self.end - self.reach
        is_beside = may_exceed(1, first) or may_exceed(last + 1, self.up)
        if is_beside or may_exceed(self.least_without_gaps, self.up):
            what = f"whether all windows have one of {self.up} elements is not known"
            raise OpenExtentError(what)
        return False

    @property
    def least_without_gaps(self) -> int:
        """The least extent from which on no window steps over it: at most the dilation."""
        least = self.dilation
        while least > 1 and self._are_filled(least - 1):
            least -= 1
        return least

    def _are_filled(self, up: int) -> bool:
        """Whether each window over so many elements has one; as many as do not fit have none."""
        padding = self.padding
        if has_symbols(padding):
            # That of automatic padding follows from the extent.
            sliding: Any = (self.size,), (self.stride,), (self.dilation,)
            if automatic_padding((self.up,), *sliding) != (padding,):
                return False
            (padding,) = automatic_padding((up,), *sliding)
        down = maximum((sum(padding) + up - self.reach) // self.stride + 1, 0)
        return all(self._replace(up=up, down=down, padding=padding).counts_inside)

    def positions(self, window: int) -> Positions:
        """Where the elements of a window lie on the up-scaled side."""
        first = self.begin + window * self.stride
        return Positions(first, first + self.reach, self.dilation)


@dataclass(frozen=True)
class Windows:
    """Sliding windows without defaults: an item for each axis that they slide along."""

    up: Shape
    down: Shape
    size: Shape
    padding: Padding
    stride: Integers
    dilation: Integers

    @cached_property
    def axes(self) -> tuple[AxisWindows, ...]:
        """The windows along each axis."""
        fields = self.up, self.down, self.size, self.padding, self.stride, self.dilation
        return tuple([AxisWindows(*column) for column in zip(*fields, strict=True)])

    @property
    def outside(self) -> Padding:
        """How many elements before and after the up-scaled side are read."""
        return tuple([axis.outside for axis in self.axes])

    @property
    def read_outside(self) -> bool:
        """Whether elements outside of the up-scaled side may be read."""
        return has_border(self.outside)

    @property
    def outside_down(self) -> Padding:
        """How many elements a reverse operation reads before and after its input."""
        return tuple([axis.outside_down for axis in self.axes])

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of these windows, without those that are all ones."""
        stride = () if set(self.stride) <= {1} else self.stride
        dilation = () if set(self.dilation) <= {1} else self.dilation
        return {"padding": self.padding, "stride": stride, "dilation": dilation}

    @property
    def has_natural_extents(self) -> bool:
        """Whether a reverse operation needs no `output_shape`."""
        return all(axis.up == axis.end - axis.padding[1] for axis in self.axes)

    def output_shape(self, *before: Dimension) -> Shape:
        """That of a reverse operation, after extents before; empty where not needed."""
        return () if self.has_natural_extents else (*before, *self.up)

    @property
    def pairing(self) -> Windows:
        """The windows that pair the two sides, so as to correlate them: the down-scaled
        side is one, stretched by the stride, and moves by the dilation to as many places
        as a window has elements. What a stride leaves over is cropped.
        """
        padding = tuple((axis.padding[0], axis.end - axis.up) for axis in self.axes)
        return Windows(
            self.up, self.size, self.down, padding, self.dilation, self.stride
        )

    @property
    def touch_data(self) -> bool:
        """Whether some window reads data: wide padding can keep all of them out."""
        return all(
            may_exceed(minimum(axis.end, axis.up), maximum(axis.begin, 0))
            for axis in self.axes
        )


def still(extent: Dimension) -> AxisWindows:
    """Windows that are the elements of an axis."""
    return AxisWindows(extent, extent, 1, (0, 0), 1, 1)


def of_columns(columns: Iterable[AxisWindows]) -> Windows:
    """The windows that are these along each axis."""
    fields = [*zip(*columns, strict=True)] or [()] * len(AxisWindows._fields)
    return Windows(*fields)


# ---- The windows of an operation ----


def is_reverse(op: Operation) -> bool:
    """Whether the result of a window operation is the up-scaled side."""
    return "output_shape" in op.attributes


def up_side(op: Operation) -> Shape:
    """The whole shape of the up-scaled side."""
    return shape_of(op.results[0] if is_reverse(op) else op.operands[0])


def windows_of(op: Operation) -> Windows:
    """The windows of an operation: of a filter, after batch and channels, or of a size."""
    settings, up = op.settings, up_side(op)
    has_size = "size" in settings
    extents = (up, settings["size"]) if has_size else (up[2:], op.inputs[1].shape[2:])
    sliding = settings["padding"], settings["stride"], settings["dilation"]
    return _shared_downscaling(*extents, *sliding)


# ---- The two directions ----


def downscaling(
    up: Shape,
    size: Shape,
    padding: Padding = (),
    stride: Integers = (),
    dilation: Integers = (),
    border: str = "constant",
) -> Windows:
    """The windows of a basic operation, with padding, stride and dilation as in the text.
    It raises `ShapeError` where these are not allowed, the windows do not fit in, or the
    border does not reach so far.
    """
    _check(len(up), size, padding=padding, stride=stride, dilation=dilation)
    stride, dilation = stride or (1,) * len(up), dilation or (1,) * len(up)
    padding = padding or automatic_padding(up, size, stride, dilation)
    padded = [p + extent + q for extent, (p, q) in zip(up, padding, strict=True)]
    reach = [_reach(f, d) for f, d in zip(size, dilation, strict=True)]
    message = (
        f"windows over {reach} elements do not fit in the padded extents"
        f" {padded}, with 'padding' = {list(padding)}"
    )
    columns = list(zip(padded, reach, stride, strict=True))
    require(all(reaches(extent, r) for extent, r, _ in columns), message)
    down = tuple((extent - r) // s + 1 for extent, r, s in columns)
    windows = Windows(up, down, size, padding, stride, dilation)
    check_reach(border, up, windows.outside)
    return windows


# Passes ask for the windows of the same operations, and many operations have the same.
_shared_downscaling = lru_cache(maxsize=1024)(downscaling)


def upscaling(
    down: Shape,
    size: Shape,
    padding: Padding = (),
    stride: Integers = (),
    dilation: Integers = (),
    output_shape: Shape = (),
    border: str = "constant",
) -> Windows:
    """The windows of a reverse operation. It raises `ShapeError` as `downscaling` does, or
    where `output_shape`, the up-scaled extents if not empty, is not down-scaled to `down`.
    """
    sliding: Any = {"padding": padding, "stride": stride, "dilation": dilation}
    _check(len(down), size, **sliding, output_shape=output_shape)
    up = output_shape or up_scaled(down, size, **sliding)
    message = f"the up-scaled extents must be positive, but are {list(up)}, with 'padding' = {list(padding)}"
    require(all(reaches(extent, 1) for extent in up), message)
    windows = downscaling(up, size, **sliding)
    message = (
        f"'output_shape' with extents {list(up)} is down-scaled to"
        f" {list(windows.down)}, and the input has {list(down)}"
    )
    require(all_equal(windows.down, down), message)
    check_reach(border, down, windows.outside_down)
    return windows


def up_scaled(
    down: Shape, size: Shape, padding: Padding, stride: Integers, dilation: Integers
) -> Shape:
    """The up-scaled extents that down-scaled ones have if nothing else is said."""
    ones = (1,) * len(down)
    if not padding:
        return tuple(x * s for x, s in zip(down, stride or ones, strict=True))
    columns = zip(down, size, padding, stride or ones, dilation or ones, strict=True)
    return tuple((x - 1) * s + _reach(f, d) - (p + q) for x, f, (p, q), s, d in columns)


def _reach(size: Dimension, dilation: int) -> Dimension:
    return (size - 1) * dilation + 1


def automatic_padding(
    up: Shape, size: Shape, stride: Integers, dilation: Integers
) -> Padding:
    """That for which a window begins at every stride; an odd element goes after."""
    columns = zip(up, size, stride, dilation, strict=True)
    totals = [
        maximum((-(-extent // s) - 1) * s + _reach(f, d) - extent, 0)
        for extent, f, s, d in columns
    ]
    return tuple((total // 2, total - total // 2) for total in totals)


# ---- Borders ----


def has_border(padding: Padding) -> bool:
    """Whether there may be elements on some side, or some be cropped there."""
    return any(n != 0 for sides in padding for n in sides)


def added_border(padding: Padding) -> Padding:
    """A padding without the sides that crop."""
    return tuple((maximum(before, 0), maximum(after, 0)) for before, after in padding)


# Borders that repeat elements of the input, and how many elements of an axis each cannot
# reach: 'reflect' leaves out the one that it reflects at. None where any width will do.
REPEATING: dict[str, int | None] = {"replicate": None, "reflect": 1, "reflect-even": 0}
BORDERS = ("constant", *REPEATING)


def check_reach(border: str, input: Shape, outside: Padding) -> None:
    """Raises `ShapeError` where more is read outside than one reflection on each side, or
    where there is nothing to repeat.
    """
    if border not in REPEATING:
        return
    left_out = REPEATING[border]
    for extent, sides in zip(input, outside, strict=True):
        if left_out is None:
            message = f"with border '{border}' an extent of 0 cannot be padded"
            require(extent != 0 or maximum(*sides) <= 0, message)
            continue
        message = (
            f"with border '{border}' an extent of {extent} can be padded by"
            f" {extent - left_out} on each side, and is padded by {sides}"
        )
        require(all(reaches(extent - left_out, side) for side in sides), message)


# ---- Checks ----


def check_choice(name: str, choice: str, allowed: tuple[str, ...]) -> None:
    """Raises `ShapeError` unless an attribute is a string that the operation allows."""
    choices = ", ".join(f"'{item}'" for item in allowed)
    one_of = "one of " if len(allowed) > 1 else ""
    message = f"'{name}' must be {one_of}{choices}, but is '{choice}'"
    require(choice in allowed, message)


def check_positive(name: str, values: Shape) -> None:
    """Raises `ShapeError` unless all items of an attribute are positive."""
    message = f"the items of '{name}' must be positive, and '{name}' is {list(values)}"
    require(all(reaches(value, 1) for value in values), message)


def _check(rank: int, size: Shape, **sliding: Any) -> None:
    message = f"'size' must have an item for each of the {rank} dimensions of a window, but is {list(size)}"
    require(len(size) == rank, message)
    for name, values in sliding.items():
        message = (
            f"'{name}' must have an item for each of the {rank} dimensions of a window,"
            f" or none, but is {list(values)}"
        )
        require(len(values) in (0, rank), message)
    for name, values in {"size": size, **sliding}.items():
        if name != "padding":
            check_positive(name, values)
