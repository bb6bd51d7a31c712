"""Values at points between elements, and pools of regions of interest.

A row of `rois` is a region, its first corner and then its last. Each result is computed
from a few elements of a plane of the input: of l positions along each axis, [N, l, n]
for n results in each of N regions, or volume = l * ... positions in the plane,
[N, volume, n...].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from math import inf, prod
from typing import Any

import numpy as np

from nnef_grad.graph.ir import Shape
from nnef_grad.interpreter.elementwise import rounded
from nnef_grad.interpreter.registry import Array, choice, evaluation, require
from nnef_grad.interpreter.sliding import extended

# ---- Points along an axis ----


def _points(method: str, first: Any, extent: Any, count: int) -> Array:
    """So many points over a region along an axis: from `first` on, as long as `extent`.
    With several regions these are arrays that end in an axis of extent 1, and there is a
    row of points for each.
    """
    steps = np.arange(count)
    match method:
        case "symmetric":  # The centres coincide.
            return np.asarray(first + (steps + 0.5) * extent / count - 0.5)
        case "asymmetric":  # The first points coincide.
            return np.asarray(first + steps * extent / count)
        case _:  # The first points coincide, and the last ones.
            return np.asarray(first + steps * (extent - 1) / max(count - 1, 1))


@evaluation("multilinear_upsample")
def _multilinear_upsample(
    input: Array, factor: Shape, method: str, border: str
) -> Array:
    """[B, C, x...] gives [B, C, x * f...], one axis after the other."""
    output = input
    for axis, scale in enumerate(factor, 2):
        extent = input.shape[axis]
        points = _points(method, 0, extent, extent * scale)
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


# ---- Pooling over cells of whole elements ----

# The batch items of the regions; the positions of the elements of cells of the largest
# size; and which of them are inside their cell.
Cells = tuple[Array, Array, Array]


def _cells(input: Array, rois: Array, batch_index: Array, output_size: Shape) -> Cells:
    items, places, inside = _items(input, batch_index), [], []
    for first, last, extent, count in _axes(input, rounded(rois), output_size):
        stride, length = (last - first) // count, -((first - last) // count)
        start = first + np.arange(count) * stride
        begin, end = start.clip(0, extent), (start + length).clip(0, extent)
        size = int((end - begin).max(initial=1.0))
        places.append(begin[:, np.newaxis] + np.arange(size)[:, np.newaxis])
        inside.append(places[-1] < end[:, np.newaxis])
    return items, _positions(input, places), _grid(inside, np.logical_and)


@choice("avg_roi_pool", _cells)
def _avg_roi_pool(cells: Cells, input: Array, *_: Array, output_size: Shape) -> Array:
    """The mean of each cell; 0 for an empty one."""
    total = _pooled(lambda x, inside: np.where(inside, x, 0.0).sum(1), input, *cells)
    counts: Array = np.maximum(cells[-1].sum(axis=1, keepdims=True), 1)
    return total / counts


def _maxima(
    input: Array, rois: Array, batch_index: Array, output_size: Shape
) -> tuple[Array, ...]:
    """The batch items of the regions, and the positions of the elements of their cells; the
    first maximum of each cell; and which cells have one.
    """

    def first(x: Array, inside: Array) -> Any:
        return np.where(inside, x, -inf).argmax(axis=1, keepdims=True)

    items, positions, inside = _cells(input, rois, batch_index, output_size)
    elements = _pooled(first, input, items, positions, inside)
    return items, positions, elements, inside[:, :1]


@choice("max_roi_pool", _maxima)
def _max_roi_pool(
    maxima: tuple[Array, ...], input: Array, *_: Array, output_size: Shape
) -> Array:
    """The maximum of each cell; 0 for an empty one."""

    def taken(content: Array, element: Array) -> Array:
        return np.take_along_axis(content, element, axis=1)[:, 0]

    *elements, exists = maxima
    return np.where(exists, _pooled(taken, input, *elements), 0.0)


# ---- Interpolation in regions ----

# The batch items of the regions; and for each axis the points over each region, [N, n],
# clipped to the input, and which of them are inside.
Surroundings = tuple[Array, list[tuple[Array, Array]]]


def _region_points(
    input: Array, rois: Array, output_size: Shape, method: str
) -> Iterator[tuple[Array, int]]:
    """The points over each region along each axis, [N, n], and the extent of the axis."""
    for first, last, extent, count in _axes(input, rois, output_size):
        yield _points(method, first, last - first, count), extent


def _surroundings(
    input: Array, rois: Array, batch_index: Array, output_size: Shape, method: str
) -> Surroundings:
    clipped = [
        (points.clip(0, extent - 1), (points > 0) & (points < extent - 1))
        for points, extent in _region_points(input, rois, output_size, method)
    ]
    return _items(input, batch_index), clipped


@choice("roi_resample", _surroundings)
def _roi_resample(
    surroundings: Surroundings, input: Array, rois: Array, _: Array, **to: Any
) -> Array:
    """Points over each region, as in multilinear_upsample with border 'replicate'. Each
    stays between the same elements, an element and the one after it for a point on an
    element, and a point at the edge stays there.
    """
    items, clipped = surroundings
    places, weights = [], []
    moved = _region_points(input, rois, **to)
    for (base, is_inside), (points, _extent) in zip(clipped, moved, strict=True):
        lower = np.floor(base)
        fraction = np.where(is_inside, points, base) - lower
        places.append(np.stack([lower, lower + (fraction != 0.0)], axis=1))
        weights.append(np.stack([1.0 - fraction, fraction], axis=1))
    positions, products = _positions(input, places), _grid(weights, np.multiply)
    weighted_sum = partial(np.einsum, "cv...,v...->c...")
    return _pooled(weighted_sum, input, items, positions, products)


# ---- Elements of regions ----


def _items(input: Array, batch_index: Array) -> Array:
    """The batch item of each region: [N]."""
    require(
        np.all((batch_index >= 0) & (batch_index < len(input))),
        f"the items of 'batch_index' must be in 0..{len(input) - 1}",
    )
    return batch_index.reshape(len(batch_index))


def _axes(
    input: Array, rois: Array, output_size: Shape
) -> Iterator[tuple[Array, Array, int, int]]:
    """For each axis the bounds of the regions, [N, 1] each, its extent, and the number
    of results along it.
    """
    require(np.isfinite(rois).all(), "the items of 'rois' must be finite")
    firsts, lasts = np.split(rois.astype(np.float64).T[..., np.newaxis], 2)
    return zip(firsts, lasts, input.shape[2:], output_size, strict=True)


def _positions(input: Array, places: Sequence[Array]) -> Array:
    """The positions in a plane, in row-major order. Places after the input are read at
    its end; their values are not used.
    """
    spatial = input.shape[2:]
    grids = [
        place.clip(0, extent - 1).astype(np.int64) * prod(spatial[axis + 1 :])
        for axis, (place, extent) in enumerate(zip(places, spatial, strict=True))
    ]
    return _grid(grids, np.add)


def _grid(along: Sequence[Array], combine: Callable[..., Any]) -> Array:
    """[N, volume, n...] from [N, l, n] for each axis."""
    aligned, axes = [], len(along)
    for axis, x in enumerate(along):
        shape = [1] * (2 * axes)
        shape[axis], shape[axes + axis] = x.shape[1:]
        aligned.append(x.reshape(-1, *shape))
    grid: Array = reduce(combine, aligned)
    return grid.reshape(len(grid), -1, *grid.shape[1 + axes :])


def _pooled(
    pool: Callable[[Array, Array], Any],
    input: Array,
    items: Array,
    positions: Array,
    factors: Array,
) -> Array:
    """The pool of the elements at the positions for each region, [C, volume, n...], and
    of a factor: [N, C, n...].
    """
    planes = input.reshape(*input.shape[:2], -1)
    regions = zip(items, positions, factors, strict=True)
    return np.array([pool(planes[i].take(p, axis=1), f) for i, p, f in regions])
