"""Discrete Fourier transforms of numbers whose real and imaginary parts are along the last axis:
products with matrices of cosines and sines, and convolutions with them for windows of a signal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.frontends.expansions.products import matmul
from nnef_grad.frontends.values import shape_of
from nnef_grad.frontends.view import View
from nnef_grad.graph.extents import Dimension, OpenExtentError, as_number, has_symbols


def waves(
    size: Dimension, count: Dimension, parts: Dimension, sign: float = 1.0
) -> Array:
    """[parts, size, 2, count]: what real and imaginary numbers give to those of a frequency."""
    # Whole turns are left out, so that angles are exact.
    turns = np.outer(np.arange(as_number(size)), np.arange(as_number(count))) % size
    angles = 2.0 * np.pi / size * turns
    cos, sin = np.cos(angles), sign * np.sin(angles)
    rows = [np.stack([cos, -sin], axis=1), np.stack([sin, cos], axis=1)]
    return np.stack(rows[:parts])


def transformed(
    view: View,
    x: Any,
    along: int,
    count: Dimension,
    *,
    is_inverse: bool,
    divisor: int = 1,
) -> Any:
    """[..., n, ..., 1 or 2] to [..., count, ..., 2], along an axis."""
    shape, last = shape_of(x), len(shape_of(x)) - 1
    size, parts = shape[along], shape[last]
    if has_symbols(size):
        raise OpenExtentError(f"the transform needs the number of {size}")
    view.reading.spend(2 * parts * size * count)
    others = [axis for axis in range(last) if axis != along]
    rows = view.transposed(x, [*others, last, along], "rows")
    before = [shape[axis] for axis in others]
    flat = view.reshaped(rows, [*before, parts * size], "flat")
    table = waves(size, count, parts, -1.0 if is_inverse else 1.0)
    matrix = table.reshape(parts * size, 2 * count) / divisor
    product = matmul(view, flat, view.constant(matrix, "scalar"))
    apart = view.reshaped(product, [*before, 2, count], "apart")
    places = {axis: place for place, axis in enumerate([*others, last, along])}
    return view.transposed(apart, [places[axis] for axis in range(last + 1)])
