"""Sliding windows that fit a tensor: along an axis with padding (p, q) and an extent X
on the larger side, x windows of (size - 1) * dilation + 1 elements, a stride apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from .draw import Draw, Rejected

# How many elements of an axis a border that repeats elements cannot reach.
REPEATING = {"replicate": None, "reflect": 1, "reflect-even": 0}
PADDING = (-1, 0, 0, 0, 1, 1, 2)
MAX_WINDOW = 18
ATTEMPTS = 20


class Axis(NamedTuple):
    """The windows along one axis; without padding it is automatic."""

    up: int
    down: int
    size: int = 1
    stride: int = 1
    dilation: int = 1
    padding: tuple[int, int] | None = None

    @property
    def reach(self) -> int:
        return (self.size - 1) * self.dilation + 1

    @property
    def before(self) -> int:
        """The padding in front, automatic or not."""
        if self.padding is not None:
            return self.padding[0]
        return max((self.down - 1) * self.stride + self.reach - self.up, 0) // 2

    @property
    def end(self) -> int:
        """Where the last window ends on the larger side."""
        return (self.down - 1) * self.stride + self.reach - self.before

    @property
    def outside(self) -> int:
        """How far a basic operation reads beyond the larger side."""
        return max(self.before, self.end - self.up)

    @property
    def reverse_outside(self) -> int:
        """How far a reverse operation reads beyond the smaller side: as far as further
        windows would lie over the larger.
        """
        front = (self.reach - 1 - self.before) // self.stride
        return max(front, (self.up - 1 - self.end + self.reach) // self.stride)


def basic(draw: Draw, extents: Sequence[int], still: int = 0) -> list[Axis]:
    """Windows over the given larger side; over the first axes they do not move."""
    return _windows(draw, extents, still, _basic_axis)


def reverse(draw: Draw, extents: Sequence[int], still: int = 0) -> list[Axis]:
    """Windows of which there are as many as the given smaller side has elements."""
    return _windows(draw, extents, still, _reverse_axis)


def _windows(draw: Draw, extents: Sequence[int], still: int, axis: Any) -> list[Axis]:
    automatic = draw.chance(0.3)
    none = None if automatic else (0, 0)
    axes = [
        axis(draw, extent, automatic)
        if index >= still
        else Axis(extent, extent, padding=none)
        for index, extent in enumerate(extents)
    ]
    if math.prod(a.size for a in axes) > MAX_WINDOW:
        raise Rejected
    return axes


def _basic_axis(draw: Draw, up: int, automatic: bool) -> Axis:
    for _ in range(ATTEMPTS):
        size, stride, dilation, padding = _setting(draw, automatic)
        reach = (size - 1) * dilation + 1
        if padding is None:
            return Axis(up, -(-up // stride), size, stride, dilation)
        before, after = padding
        room = before + up + after - reach
        # Windows lie in the border as a whole only where padding is to be wide.
        fits = draw.wide_padding or max(before, after) < reach + stride
        if room >= 0 and fits and up + min(padding) > 0:
            return Axis(up, room // stride + 1, size, stride, dilation, padding)
    raise Rejected


def _reverse_axis(draw: Draw, down: int, automatic: bool) -> Axis:
    for _ in range(ATTEMPTS):
        size, stride, dilation, padding = _setting(draw, automatic)
        remainder = draw.between(0, stride - 1)
        if padding is None:
            return Axis(down * stride - remainder, down, size, stride, dilation)
        reach = (size - 1) * dilation + 1
        up = (down - 1) * stride + reach - sum(padding) + remainder
        if up > 0:
            return Axis(up, down, size, stride, dilation, padding)
    raise Rejected


def _setting(
    draw: Draw, automatic: bool
) -> tuple[int, int, int, tuple[int, int] | None]:
    size = draw.pick((1, 2, 2, 3))
    dilation = draw.pick((1, 1, 2)) if size > 1 else 1
    sides = (_side(draw, size, dilation), _side(draw, size, dilation))
    return size, draw.pick((1, 1, 2, 3)), dilation, None if automatic else sides


def _side(draw: Draw, size: int, dilation: int) -> int:
    """Padding on one side: as wide as a window or wider, where it is to be wide."""
    if draw.wide_padding and draw.chance(0.4):
        return draw.pick((size, size, (size - 1) * dilation + 1, size + 1))
    padding = draw.pick(PADDING)
    return padding if draw.crops else max(padding, 0)


def attributes(draw: Draw, axes: Sequence[Axis]) -> dict[str, Any]:
    """Padding, stride and dilation; what is all ones is left out now and then."""
    found: dict[str, Any] = {}
    if all(axis.padding is not None for axis in axes):
        found["padding"] = [axis.padding for axis in axes]
    for name in ("stride", "dilation"):
        values = [getattr(axis, name) for axis in axes]
        if set(values) != {1} or draw.chance(0.3):
            found[name] = values
    return found


def output_shape(draw: Draw, axes: Sequence[Axis], *before: int) -> dict[str, Any]:
    """The extents of the larger side, where the smaller does not tell them."""
    natural = all(axis.up == _natural(axis) for axis in axes)
    if natural and draw.chance(0.6):
        return {}
    return {"output_shape": [*before, *(axis.up for axis in axes)]}


def _natural(axis: Axis) -> int:
    if axis.padding is None:
        return axis.down * axis.stride
    return (axis.down - 1) * axis.stride + axis.reach - sum(axis.padding)


def border(
    draw: Draw, usual: Sequence[str], outside: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """A border; one that repeats elements only in a graph that has such.

    `outside` are the extents of the input, and how far each is read beyond: there is
    one reflection on each side.
    """
    if draw.odd_borders and draw.chance(0.7):
        fitting = [
            name
            for name, lacking in REPEATING.items()
            if lacking is None or all(far <= n - lacking for n, far in outside)
        ]
        return {"border": draw.pick(fitting)}
    chosen = draw.pick(usual)
    return {} if chosen == "constant" and draw.chance(0.5) else {"border": chosen}


ANY = ("constant", "ignore")
ZEROS = ("constant",)


def basic_attributes(
    draw: Draw, axes: Sequence[Axis], usual: Sequence[str]
) -> dict[str, Any]:
    """The attributes of an operation that reads the larger side."""
    outside = [(axis.up, axis.outside) for axis in axes]
    return {**attributes(draw, axes), **border(draw, usual, outside)}


def reverse_attributes(
    draw: Draw, axes: Sequence[Axis], usual: Sequence[str]
) -> dict[str, Any]:
    """The attributes of an operation that reads the smaller side."""
    outside = [(axis.down, axis.reverse_outside) for axis in axes]
    return {**attributes(draw, axes), **border(draw, usual, outside)}
