"""Up-sampling along the spatial axes by interpolation; the positions of points are
shared with the regions of interest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnef_grad.graph.ir import Shape
from nnef_grad.interpreter.borders import extended
from nnef_grad.interpreter.registry import Array, evaluation


@evaluation("multilinear_upsample")
def multilinear_upsample(
    input: Array, factor: Shape, method: str, border: str
) -> Array:
    """[B, C, x...] gives [B, C, x * f...], one axis after the other."""
    output = input
    for axis, scale in enumerate(factor, 2):
        extent = input.shape[axis]
        points = POINTS[method](np.zeros(()), extent, extent * scale)
        output = _interpolate(output, axis, points, border)
    return output


def _interpolate(x: Array, axis: int, points: Array, border: str) -> Array:
    """The tensor at points along an axis, linear between its elements."""
    lower, upper = (f(points).astype(np.int64) for f in (np.floor, np.ceil))
    begin = int(lower.min())
    others = [(0, extent) for extent in x.shape[axis + 1 :]]
    x = extended(x, [(begin, int(upper.max()) + 1), *others], border)
    weight = (points - lower).reshape([-1] + [1] * (x.ndim - axis - 1))
    low, high = x.take(lower - begin, axis), x.take(upper - begin, axis)
    return np.asarray((1.0 - weight) * low + weight * high)


# ---- The positions of output points in the input ----

# `count` points over a region along an axis: from `first` on, as long as `extent`. With
# several regions these are arrays that end in an axis of extent 1, and there is a row of
# points for each.


def _symmetric(first: Array, extent: Any, count: int) -> Array:
    """The centres coincide."""
    middles = (np.arange(count) + 0.5) * extent / count
    return np.asarray(first + middles - 0.5)


def _asymmetric(first: Array, extent: Any, count: int) -> Array:
    """The first points coincide."""
    return np.asarray(first + np.arange(count) * extent / count)


def _aligned(first: Array, extent: Any, count: int) -> Array:
    """The first points coincide, and the last ones."""
    steps = np.arange(count) * (extent - 1) / max(count - 1, 1)
    return np.asarray(first + steps)


POINTS: dict[str, Callable[[Array, Any, int], Array]] = {
    "symmetric": _symmetric,
    "asymmetric": _asymmetric,
    "aligned": _aligned,
}
