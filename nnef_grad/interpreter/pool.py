"""Box filters, pooling and sampling: windows that slide along every axis, including
batch and channels.
"""

from __future__ import annotations

from functools import reduce
from math import inf, prod
from typing import Any

import numpy as np

from nnef_grad.graph.ir import Shape
from nnef_grad.interpreter.registry import Array, evaluation, require
from nnef_grad.interpreter.sliding import contents, overlapped, summed, with_border
from nnef_grad.ops.windows import (
    Padding,
    Windows,
    counts_inside,
    downscaling,
    upscaling,
)

# ---- Sums and means ----


@evaluation("box")
def box(
    input: Array,
    size: Shape,
    border: str = "constant",
    padding: Padding = (),
    stride: Shape = (),
    dilation: Shape = (),
    normalize: bool = False,
) -> Array:
    """The sum over each window or, with normalize, the mean: [X...] gives [x...]."""
    windows = downscaling(input.shape, size, padding, stride, dilation)
    total = summed(input, windows, border)
    return total / _divisor(windows, border) if normalize else total


def _divisor(windows: Windows, border: str) -> Any:
    """The number of elements of a window: all, or with 'ignore' those inside."""
    if border != "ignore":
        return prod(windows.size)
    counts = [np.array(along, np.float64) for along in counts_inside(windows)]
    return reduce(np.multiply.outer, counts, np.ones(()))


@evaluation("debox")
def debox(
    input: Array,
    size: Shape,
    border: str = "constant",
    padding: Padding = (),
    stride: Shape = (),
    dilation: Shape = (),
    output_shape: Shape = (),
    normalize: bool = False,
) -> Array:
    """The transpose of box: each element is added to its whole window; [x...] gives
    [X...].
    """
    windows = upscaling(input.shape, size, padding, stride, dilation, output_shape)
    x, windows = with_border(input, windows, border)
    volume = prod(size)
    total = overlapped([x] * volume, windows)
    return total / volume if normalize else total


@evaluation("avg_pool")
def avg_pool(input: Array, **attributes: Any) -> Array:
    """The mean of each window."""
    return box(input, **attributes, normalize=True)


# ---- Maxima ----


@evaluation("argmax_pool")
def argmax_pool(
    input: Array,
    size: Shape,
    border: str,
    padding: Padding,
    stride: Shape,
    dilation: Shape,
) -> Array:
    """The row-major index of the first maximum in each window."""
    windows = downscaling(input.shape, size, padding, stride, dilation)
    index = _flat(input, windows, border).argmax(axis=-1)
    return _inside(index, windows) if border == "ignore" else index


def _inside(index: Array, windows: Windows) -> Array:
    """The index; if it is outside the input, that of the first element inside, as all
    of those are equal to the border then.
    """
    inside = _flat(np.ones(windows.up, np.bool_), windows, "ignore", outside=False)
    return np.where(_taken(inside, index), index, inside.argmax(axis=-1))


@evaluation("sample")
def sample(
    input: Array,
    index: Array,
    size: Shape,
    border: str,
    padding: Padding,
    stride: Shape,
    dilation: Shape,
) -> Array:
    """The element at the index of each window."""
    volume = prod(size)
    require(
        np.all((index >= 0) & (index < volume)),
        f"the items of 'index' must be in 0..{volume - 1}, the elements of a window",
    )
    windows = downscaling(input.shape, size, padding, stride, dilation)
    return _taken(_flat(input, windows, border), index)


@evaluation("desample")
def desample(
    input: Array,
    index: Array,
    size: Shape,
    border: str,
    padding: Padding,
    stride: Shape,
    dilation: Shape,
    output_shape: Shape,
) -> Array:
    """The transpose of sample: each element goes to its index; overlaps are added."""
    windows = upscaling(input.shape, size, padding, stride, dilation, output_shape)
    parts = (np.where(index == element, input, 0.0) for element in range(prod(size)))
    return overlapped(parts, windows)


@evaluation("max_pool_with_index")
def max_pool_with_index(input: Array, **attributes: Any) -> list[Array]:
    """The maximum of each window, and its index."""
    index = argmax_pool(input, **attributes)
    return [sample(input, index, **attributes), index]


@evaluation("max_pool")
def max_pool(input: Array, **attributes: Any) -> Array:
    """The maximum of each window."""
    return max_pool_with_index(input, **attributes)[0]


def _flat(
    x: Array, windows: Windows, border: str, outside: float | None = None
) -> Array:
    """The contents of the windows, in row-major order: [x..., volume of a window]. With
    'ignore' the border is minus infinity, the maximum of nothing.
    """
    if outside is None:
        outside = -inf if border == "ignore" else 0.0
    content = contents(x, windows, border, outside)
    return content.reshape(*windows.down, prod(windows.size))


def _taken(content: Array, index: Array) -> Array:
    return np.take_along_axis(content, index[..., np.newaxis], axis=-1)[..., 0]
