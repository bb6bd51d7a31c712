"""Convolutions: tensors are [batch, channels, spatial...], the filter is [c, C /
groups, spatial...]. `sliding` are the attributes that determine the windows.

Either direction is one matrix product for each item of the batch and each group. The
columns of `conv` are the contents of the windows; those that `deconv` makes are added
up where its windows overlap.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nnef_grad.graph.ir import Shape
from nnef_grad.interpreter.registry import Array, evaluation
from nnef_grad.interpreter.sliding import contents, overlapped, with_border
from nnef_grad.ops.conv import group_count
from nnef_grad.ops.windows import downscaling, upscaling

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
    content = contents(input, windows, border)
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
    x, windows = with_border(input, windows, border)
    rows = x.reshape(len(x), *kernels.shape[:2], prod(windows.down))
    columns = np.matmul(kernels.swapaxes(-1, -2), rows)
    channels = len(kernels) * filter.shape[1]
    parts = columns.reshape(len(x), channels, prod(size), *windows.down)
    return _with_bias(overlapped(np.moveaxis(parts, 2, 0), windows), bias)


def _by_group(filter: Array, groups: int) -> Array:
    """The filter as a matrix for each group: [groups, c / groups, C / groups * f...]."""
    filters, *volume = filter.shape
    return filter.reshape(groups, filters // groups, prod(volume))


def _with_bias(output: Array, bias: Array) -> Array:
    """The output with the bias added in place; it must not be shared."""
    output += bias.reshape(bias.shape + (1,) * (output.ndim - bias.ndim))
    return output
