"""Resizing, and sampling at the points of a grid, as products with the weights of elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.frontends.values import shape_of
from nnef_grad.frontends.view import View
from nnef_grad.ops import resizing
from nnef_grad.ops.resizing import Axis, Resizing


def resized(view: View, x: Any, axes: list[Axis], how: Resizing) -> Any:
    """An operation of the standard where there is one, or products with matrices."""
    matrices = {
        place: matrix
        for place, axis in enumerate(axes)
        if axis.is_resized
        and not resizing.is_identity(matrix := resizing.weights(axis, how))
    }
    name = resizing.operation(axes, how, matrices)
    if name:
        return view(name, x, **resizing.settings(name, axes, how))
    for place, matrix in matrices.items():
        x = along(view, x, matrix, place)
    return x


def axes_of(
    view: View, shape: tuple[int, ...], scales: list[float], sizes: list[int]
) -> list[Axis]:
    """All axes, with a scale or an extent for each; one with a symbol stays as it is."""
    message = f"there must be {len(shape)} scales or extents"
    view.require(len(sizes or scales) == len(shape), message)
    if sizes:
        sized = zip(shape, sizes, strict=True)
        axes = [Axis(n, new, 1.0 if new == n else new / n) for n, new in sized]
    else:
        pairs = zip(shape, scales, strict=True)
        axes = [Axis(n, n if by == 1 else int(n * by), by) for n, by in pairs]
    has_elements = all(a.new > 0 for a in axes if a.is_resized)
    view.require(has_elements, "the result must have elements")
    return axes


def along(view: View, x: Any, matrix: Array, axis: int) -> Any:
    """The product of a matrix with the elements along an axis."""
    if (matrix.max(1) == 1).all():
        return view("gather", x, matrix.argmax(1), axis=axis)
    rank = len(shape_of(x))
    if axis == rank - 1:
        return view("matmul", *view.aligned(x, matrix), transposeB=True)
    if axis == rank - 2:
        return view("matmul", *view.aligned(matrix, x))
    order = [*range(rank)]
    order[axis], order[-2] = order[-2], order[axis]
    moved = view.transposed(x, order, "moved")
    product = view("matmul", *view.aligned(matrix, moved), hint="product")
    return view.transposed(product, order)


# ---- Grids ----

_MODES = {
    "bilinear": "linear_weights", "nearest": "nearest_weights",
    "bicubic": "cubic_weights",
}  # fmt: skip
_BORDERS = ("zeros", "border", "reflection")


def grid_sample(
    view: View, x: Any, grid: Any, mode: str, border: str, is_aligned: bool
) -> Any:
    """Samples of images at the points of a grid from -1 to 1: each element has a weight
    for each point.
    """
    view.require(mode in _MODES, f"mode must be one of {', '.join(_MODES)}")
    names = ", ".join(_BORDERS)
    view.require(border in _BORDERS, f"padding_mode must be one of {names}")
    is_clear = mode != "bicubic" or border == "zeros"
    view.require(is_clear, "bicubic samples must have zeros around the image")
    return samples(view, x, grid, mode, border, is_aligned)


def samples(
    view: View, x: Any, grid: Any, mode: str, border: str, is_aligned: bool
) -> Any:
    """The same, with any border around the image."""
    (batch, channels, *extents), points = shape_of(x), shape_of(grid)
    rank = len(extents)
    fits = len(points) == rank + 2 and (points[0], points[-1]) == (batch, rank)
    wanted = f"[{batch}, {'..., ' if rank else ''}{rank}]"
    view.require(fits, f"a grid of shape {list(points)} must be {wanted}")
    count = prod(points[1:-1])
    flat = view.reshaped(grid, [batch, count, rank], "points")
    for axis in reversed(range(rank)):
        places = view.piece(flat, 2, rank - 1 - axis, rank - axis, "along")
        weights = _weights_at(view, places, extents[axis], mode, border, is_aligned)
        rows = channels * prod(extents[:axis])
        if axis == rank - 1:
            x = view.reshaped(x, [batch, rows, extents[axis]], "rows")
            x = view("matmul", x, weights, hint="across", transposeB=True)
        else:
            parts = view.reshaped(x, [batch, rows, extents[axis], count], "parts")
            x = view.expand("weighted", parts, weights)
    return view.reshaped(x, [batch, channels, *points[1:-1]])


def _weights_at(
    view: View, points: Any, extent: int, mode: str, border: str, is_aligned: bool
) -> Any:
    """The weight of each element of an axis at points, [batch, point, element]."""
    low, high = (0.0, extent - 1.0) if is_aligned else (-0.5, extent - 0.5)
    places = view.expand("along_axis", points, low=low, high=high)
    positions = view.positions(extent, 2, 3)
    # All places are those of the only element.
    reflects = border == "reflection" and high > low
    if mode == "bicubic" and border != "zeros":
        settings = {"low": low, "high": high, "last": extent - 1.0}
        name = "bordered_cubic_weights"
        return view.expand(name, places, positions, reflects=reflects, **settings)
    if reflects:
        places = view.expand("reflected", places, low=low, high=high)
    if border != "zeros":
        places = view("clamp", places, 0.0, extent - 1.0, hint="inside")
    return view.expand(_MODES[mode], places, positions)


def affine_grid(view: View, theta: Any, size: Sequence[Any], is_aligned: bool) -> Any:
    """The points [batch, ..., coordinate] of a regular grid after an affine map."""
    batch, *extents = size
    axes = [_points(n, is_aligned) for n in extents]
    # The last coordinate comes first.
    grids = np.meshgrid(*axes, indexing="ij")[::-1]
    ones = np.ones_like(grids[0])
    points = np.stack([*grids, ones], -1).reshape(-1, len(extents) + 1)
    points, theta = view.aligned(points, theta)
    mapped = view("matmul", points, theta, hint="points", transposeB=True)
    return view.reshaped(mapped, [batch, *extents, len(extents)])


def _points(extent: int, is_aligned: bool) -> Array:
    """The middles of so many parts from -1 to 1; or points that begin and end there."""
    if not is_aligned:
        return (2.0 * np.arange(extent) + 1.0) / extent - 1.0
    return np.linspace(-1.0, 1.0, extent) if extent > 1 else np.zeros(1)
