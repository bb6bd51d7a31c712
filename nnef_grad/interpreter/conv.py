"""Convolutions: tensors are [batch, channels, spatial...], the filter is [c, C /
groups, spatial...].

Either direction is one matrix product for each item of the batch and each group. The
columns of `conv` are the contents of the windows; those that `deconv` makes are added
up where its windows overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from nnef_grad.graph.ir import Shape
from nnef_grad.interpreter.registry import Array, evaluation
from nnef_grad.interpreter.sliding import contents, overlapped, with_border
from nnef_grad.ops.conv import conv_groups, deconv_groups
from nnef_grad.ops.windows import Padding, downscaling, upscaling


@evaluation("conv")
def conv(
    input: Array,
    filter: Array,
    bias: Array,
    border: str = "constant",
    padding: Padding = (),
    stride: Shape = (),
    dilation: Shape = (),
    groups: int = 1,
) -> Array:
    """A correlation: [B, C, X...] and [c, C / groups, f...] give [B, c, x...]."""
    size = filter.shape[2:]
    windows = downscaling(input.shape[2:], size, padding, stride, dilation)
    kernels = _by_group(filter, conv_groups(input.shape, groups))
    content = _elements_first(contents(input, windows, border), len(size))
    elements = (slice(None),) * (2 + len(size))
    # Without spatial axes there is a single position: a band of one row.
    rows, *others = windows.down or (1,)
    shape = (len(input), *_outputs(kernels), rows * prod(others))
    output = np.empty(shape, np.result_type(input, filter))
    for first, last in _bands(content, rows):
        band = content[(*elements, slice(first, last))] if size else content
        columns = band.reshape(len(input), *_inputs(kernels), -1)
        places = slice(first * prod(others), last * prod(others))
        np.matmul(kernels, columns, out=output[..., places])
    return _with_bias(output.reshape(len(input), len(filter), *windows.down), bias)


@evaluation("deconv")
def deconv(
    input: Array,
    filter: Array,
    bias: Array,
    border: str = "constant",
    padding: Padding = (),
    stride: Shape = (),
    dilation: Shape = (),
    output_shape: Shape = (),
    groups: int = 1,
) -> Array:
    """The transpose of conv: [B, c, x...] and [c, C / groups, f...] give [B, C, X...].
    Each element adds the filter, times its value, to its window.
    """
    size, shape = filter.shape[2:], output_shape[2:]
    windows = upscaling(input.shape[2:], size, padding, stride, dilation, shape)
    kernels = _by_group(filter, deconv_groups(input.shape, output_shape, groups))
    x, windows = with_border(input, windows, border)
    rows = x.reshape(len(x), *_outputs(kernels), prod(windows.down))
    columns = np.matmul(kernels.swapaxes(-1, -2), rows)
    channels = kernels.shape[0] * filter.shape[1]
    parts = columns.reshape(len(x), channels, prod(size), *windows.down)
    return _with_bias(overlapped(np.moveaxis(parts, 2, 0), windows), bias)


def _by_group(filter: Array, groups: int) -> Array:
    """The filter as a matrix for each group: [groups, c / groups, C / groups * f...]."""
    filters, *volume = filter.shape
    return filter.reshape(groups, filters // groups, prod(volume))


def _inputs(kernels: Array) -> tuple[int, int]:
    groups, _, volume = kernels.shape
    return groups, volume


def _outputs(kernels: Array) -> tuple[int, int]:
    groups, filters, _ = kernels.shape
    return groups, filters


def _elements_first(content: Array, spatial: int) -> Array:
    """[B, C, x..., f...] to [B, C, f..., x...]."""
    windows, elements = range(2, 2 + spatial), range(2 + spatial, 2 + 2 * spatial)
    return content.transpose(0, 1, *elements, *windows)


# How many elements are copied out of windows at once: they should fit in a cache.
_BAND = 1 << 20


def _bands(content: Array, rows: int) -> Iterator[tuple[int, int]]:
    """The bounds of parts of the first axis of the windows."""
    step = max(_BAND * rows // max(content.size, 1), 1)
    return ((first, min(first + step, rows)) for first in range(0, rows, step))


def _with_bias(output: Array, bias: Array) -> Array:
    """The output with the bias added in place; it must not be shared."""
    output += bias.reshape(bias.shape + (1,) * (output.ndim - bias.ndim))
    return output
