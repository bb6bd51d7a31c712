"""Convolutions and pools, from windows along each spatial axis: what formats have in common
that say extents and padding in other ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.frontends.values import shape_of
from nnef_grad.frontends.view import View
from nnef_grad.graph.extents import Dimension, as_numbers, may_exceed


class Axis(NamedTuple):
    """Windows along an axis, with the extent of the operand, and what is added around."""

    given: Dimension
    size: Dimension
    stride: int
    dilation: int
    before: int
    after: Dimension

    @property
    def whole(self) -> Dimension:
        """The extent of the operand with what is added."""
        return self.before + self.given + self.after

    def reach(self, windows: Dimension) -> Dimension:
        """The number of positions covered by so many windows."""
        return (windows - 1) * self.stride + (self.size - 1) * self.dilation + 1

    def rounded_up(self) -> Axis:
        """The axis with as much after it as a last window needs that is not full; one that
        begins after the end is dropped.
        """
        room = self.whole - self.reach(1)
        windows = (room + self.stride - 1) // self.stride + 1
        windows -= (windows - 1) * self.stride >= self.given + self.before
        over = self.reach(windows) - self.whole
        return self._replace(after=self.after + over) if may_exceed(over, 0) else self

    def longer(self, more: int) -> Axis:
        """The axis of a transposed convolution whose result has more at its end."""
        return self._replace(after=self.after - more)

    def without_padding(self) -> Axis:
        """The axis of an operand that has the padding."""
        return self._replace(given=self.whole, before=0, after=0)


def _sliding(axes: Sequence[Axis], first: int = 0) -> dict[str, Any]:
    """The attributes of windows that slide along the axes from the first one."""
    ones = [1] * first
    return {
        "padding": [*[(0, 0)] * first, *((a.before, a.after) for a in axes)],
        "stride": [*ones, *(a.stride for a in axes)],
        "dilation": [*ones, *(a.dilation for a in axes)],
    }


def conv(
    view: View, x: Any, weight: Any, bias: Any, axes: Sequence[Axis], groups: int
) -> Any:
    """A convolution; the bias is a row of channels."""
    return view("conv", x, weight, bias, groups=groups, **_sliding(axes))


def deconv(
    view: View,
    x: Any,
    weight: Any,
    bias: Any,
    axes: Sequence[Axis],
    groups: int,
) -> Any:
    """The transposition of a convolution: padding is what is left out of its result."""
    extents = [axis.reach(axis.given) - axis.before - axis.after for axis in axes]
    shape = [shape_of(x)[0], shape_of(weight)[1] * groups, *extents]
    settings = {**_sliding(axes), "output_shape": shape, "groups": groups}
    return view("deconv", x, weight, bias, **settings)


def pool(view: View, name: str, x: Any, axes: Sequence[Axis], **settings: Any) -> Any:
    """A pool over the last axes."""
    first = len(shape_of(x)) - len(axes)
    size = [*[1] * first, *(axis.size for axis in axes)]
    return view(name, x, size=size, **_sliding(axes, first), **settings)


def unpool(view: View, x: Any, index: Any, axes: Sequence[Axis]) -> Any:
    """Each element at its index in a window, and zeros elsewhere."""
    first = len(shape_of(x)) - len(axes)
    shape: list[Any] = [*shape_of(x)[:first], *(axis.given for axis in axes)]
    settings: dict[str, Any] = {**_sliding(axes, first), "output_shape": shape}
    size = [*[1] * first, *(axis.size for axis in axes)]
    return view("desample", x, index, size=size, **settings)


def averages(
    view: View, x: Any, axes: Sequence[Axis], *, counts: bool, rounds_up: bool
) -> Any:
    """The means of windows. Padding counts as zeros, or not at all, and what a window that
    is rounded up has beyond it never counts.
    """
    wide = [axis.rounded_up() for axis in axes] if rounds_up else list(axes)
    counts = counts and any(may_exceed(n, 0) for a in axes for n in a[-2:])
    if not counts or wide == list(axes):
        border = "constant" if counts else "ignore"
        return pool(view, "avg_pool", x, wide, border=border)
    still = [(0, 0)] * (len(shape_of(x)) - len(axes))
    around = [*still, *((axis.before, axis.after) for axis in axes)]
    whole = view("pad", x, hint="padded", padding=around, value=0.0)
    inner = [axis.without_padding() for axis in axes]
    # The last window may begin in the padding, if it did before.
    pairs = zip(wide, inner, axes, strict=True)
    inner = [i._replace(after=w.after - a.after) for w, i, a in pairs]
    return pool(view, "avg_pool", whole, inner, border="ignore")


# ---- Blocks of images ----


def block_elements(view: View, x: Any, axes: Sequence[Axis]) -> Any:
    """The elements of each block of an image, [batch, channels * elements, blocks]: each
    element has a filter of its own, with a one at its place.
    """
    batch, channels, *image = shape_of(x)
    filters, sliding = _ones(view, axes), _sliding(axes)
    images = view.reshaped(x, [batch * channels, 1, *image], "images")
    elements = view("conv", images, filters, 0.0, hint="elements", **sliding)
    count = prod(shape_of(elements)[2:])
    return view.reshaped(elements, [batch, channels * len(filters), count])


def sum_of_blocks(view: View, x: Any, axes: Sequence[Axis]) -> Any:
    """Sums of blocks at their places in an image: what `blocks` does, transposed."""
    filters = _ones(view, axes)
    image: list[Any] = [axis.given for axis in axes]
    counts = [(axis.whole - axis.reach(1)) // axis.stride + 1 for axis in axes]
    batch, elements = shape_of(x)[0], len(filters)
    channels = shape_of(x)[1] // elements
    columns = view.reshaped(x, [batch * channels, elements, *counts], "columns")
    settings = {**_sliding(axes), "output_shape": [batch * channels, 1, *image]}
    sums = view("deconv", columns, filters, 0.0, hint="sums", **settings)
    return view.reshaped(sums, [batch, channels, *image])


def _ones(view: View, axes: Sequence[Axis]) -> Array:
    """A filter for each element of a block."""
    block = [axis.size for axis in axes]
    view.reading.spend(prod(block) ** 2)
    return np.eye(prod(as_numbers(block))).reshape(-1, 1, *block)
