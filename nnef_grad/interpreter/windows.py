"""Convolutions, box filters, pooling and sampling: windows that slide over a tensor, along
its spatial axes or, but for convolutions, along every axis, including batch and channels.
`sliding` are the attributes that determine the windows.
"""

from __future__ import annotations

from functools import reduce
from math import inf, prod
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.graph.extents import Dimension
from nnef_grad.graph.ir import Shape
from nnef_grad.interpreter.registry import choice, evaluation, require
from nnef_grad.interpreter.sliding import bordered, overlapped, window_contents
from nnef_grad.ops.conv import group_count
from nnef_grad.ops.windows import Windows, downscaling, upscaling

# ---- Convolutions ----
#
# Tensors are [batch, channels, spatial...], the filter is [c, C / groups, spatial...].
# Either direction is one matrix product for each item of the batch and each group. The
# columns of `conv` are the contents of the windows; those that `deconv` makes are added
# up where its windows overlap.

# How many elements are copied out of windows at once: they should fit in a cache.
_BAND = 1 << 20


@evaluation("conv")
def conv(
    input: Array, filter: Array, bias: Array, border: str, groups: int, **sliding: Any
) -> Array:
    """A correlation: [B, C, X...] and [c, C / groups, f...] give [B, c, x...]."""
    batch, spatial = len(input), filter.ndim - 2
    windows = downscaling(input.shape[2:], filter.shape[2:], **sliding)
    kernels = _by_group(filter, group_count(input.shape, groups))
    _, outputs, volume = kernels.shape
    # [B, C, x..., f...] to [B, C, f..., x...]
    order = (0, 1, *range(2 + spatial, 2 + 2 * spatial), *range(2, 2 + spatial))
    # Without spatial axes there is a single position: a band of one row.
    rows, *others = windows.down or (1,)
    row = prod(others)
    shape = (batch, len(kernels), outputs, rows * row)
    output = np.empty(shape, np.result_type(input, filter))
    content = window_contents(input, windows, border)
    band = max(_BAND * rows // max(content.size, 1), 1)
    for first in range(0, rows, band):
        part = content[:, :, first : first + band] if spatial else content
        columns = part.transpose(order).reshape(batch, len(kernels), volume, -1)
        places = slice(first * row, (first + band) * row)
        np.matmul(kernels, columns, out=output[..., places])
    return _with_bias(output.reshape(batch, len(filter), *windows.down), bias)


@evaluation("deconv")
def deconv(
    input: Array,
    filter: Array,
    bias: Array,
    border: str,
    output_shape: Shape,
    groups: int,
    **sliding: Any,
) -> Array:
    """The transpose of conv: [B, c, x...] and [c, C / groups, f...] give [B, C, X...].
    Each element adds the filter, times its value, to its window.
    """
    size, up = filter.shape[2:], output_shape[2:]
    windows = upscaling(input.shape[2:], size, **sliding, output_shape=up)
    kernels = _by_group(filter, group_count(input.shape, groups, output_shape))
    x, windows = bordered(input, windows, border)
    rows = x.reshape(len(x), *kernels.shape[:2], prod(windows.down))
    columns = np.matmul(kernels.swapaxes(-1, -2), rows)
    channels = len(kernels) * filter.shape[1]
    parts = columns.reshape(len(x), channels, prod(size), *windows.down)
    return _with_bias(overlapped(np.moveaxis(parts, 2, 0), windows), bias)


def _by_group(filter: Array, groups: Dimension) -> Array:
    """The filter as a matrix for each group: [groups, c / groups, C / groups * f...]."""
    filters, *volume = filter.shape
    return filter.reshape(groups, filters // groups, prod(volume))


def _with_bias(output: Array, bias: Array) -> Array:
    """The output with the bias added in place; it must not be shared."""
    output += bias.reshape(bias.shape + (1,) * (output.ndim - bias.ndim))
    return output


# ---- Sums and means ----


@evaluation("box")
def box(input: Array, border: str, normalize: bool, **sliding: Any) -> Array:
    """The sum over each window or, with normalize, the mean: [X...] gives [x...]."""
    windows = downscaling(input.shape, **sliding)
    inside = tuple(range(input.ndim, 2 * input.ndim))
    total: Array = window_contents(input, windows, border).sum(axis=inside)
    return total / _divisor(windows, border) if normalize else total


def _divisor(windows: Windows, border: str) -> Any:
    """The number of elements of a window: all, or with 'ignore' those inside."""
    if border != "ignore":
        return prod(windows.size)
    counts = [np.array(axis.counts_inside, np.float64) for axis in windows.axes]
    return reduce(np.multiply.outer, counts, np.ones(()))


@evaluation("debox")
def debox(input: Array, border: str, normalize: bool, **sliding: Any) -> Array:
    """The transpose of box: each element is added to its window; [x...] to [X...]."""
    windows = upscaling(input.shape, **sliding)
    x, windows = bordered(input, windows, border)
    volume = prod(windows.size)
    total = overlapped([x] * volume, windows)
    return total / volume if normalize else total


@evaluation("avg_pool")
def _avg_pool(input: Array, **attributes: Any) -> Array:
    return box(input, normalize=True, **attributes)


# ---- Maxima ----


@evaluation("argmax_pool")
def argmax_pool(input: Array, border: str, **sliding: Any) -> Array:
    """The row-major index of the first maximum in each window."""
    windows = downscaling(input.shape, **sliding)
    index: Array = _flat(input, windows, border).argmax(axis=-1)
    if border != "ignore":
        return index
    # Where all elements inside are equal to the border, it is the first of them.
    inside = _flat(np.ones(windows.up, np.bool_), windows, border, outside=False)
    return np.where(_taken(inside, index), index, inside.argmax(axis=-1))


@evaluation("sample")
def sample(input: Array, index: Array, border: str, **sliding: Any) -> Array:
    """The element at the index of each window."""
    windows = downscaling(input.shape, **sliding)
    volume = prod(windows.size)
    require(
        np.all((index >= 0) & (index < volume)),
        f"the items of 'index' must be in 0..{volume - 1}, the elements of a window",
    )
    return _taken(_flat(input, windows, border), index)


@evaluation("desample")
def desample(input: Array, index: Array, border: str, **sliding: Any) -> Array:
    """The transpose of sample: each element goes to its index; overlaps are added."""
    windows = upscaling(input.shape, **sliding)
    elements = range(prod(windows.size))
    parts = (np.where(index == element, input, 0.0) for element in elements)
    return overlapped(parts, windows)


# The maximum of each window; and its index.
choice("max_pool", argmax_pool)(lambda index, x, **sliding: sample(x, index, **sliding))
choice("max_pool_with_index", argmax_pool)(
    lambda index, x, **sliding: [sample(x, index, **sliding), index]
)


def _flat(x: Array, windows: Windows, border: str, outside: float = -inf) -> Array:
    """The contents of windows, [x..., volume]; `outside` is the value of 'ignore'."""
    content = window_contents(
        x, windows, border, outside if border == "ignore" else 0.0
    )
    return content.reshape(*windows.down, prod(windows.size))


def _taken(content: Array, index: Array) -> Array:
    return np.take_along_axis(content, index[..., np.newaxis], axis=-1)[..., 0]
