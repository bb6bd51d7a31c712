"""Values at points between elements, and pools of regions of interest.

A row of `rois` is a region, its first corner and then its last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.graph.extents import Dimension, as_numbers
from nnef_grad.graph.ir import Shape
from nnef_grad.interpreter.elementwise import rounded
from nnef_grad.interpreter.registry import choice, evaluation, require
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
    return _between(x, axis, lower - begin, upper - begin, points - lower)


def _between(x: Array, axis: int, low: Array, high: Array, weight: Array) -> Array:
    """Sums of two elements along an axis, of which the second has the weight."""
    weight = weight.reshape([-1] + [1] * (x.ndim - axis - 1))
    return np.asarray((1.0 - weight) * x.take(low, axis) + weight * x.take(high, axis))


# ---- Pools of the cells of regions, which are of whole elements ----

# For each cell with elements, the place of its results, and that of the elements.
Cells = list[tuple[Any, Any]]


def _cells(input: Array, rois: Array, batch_index: Array, output_size: Shape) -> Cells:
    bounds = []
    for first, last, extent, count in _axes(input, rounded(rois), output_size):
        stride, length = (last - first) // count, -((first - last) // count)
        begin = first + np.arange(count) * stride
        ends = np.stack([begin, begin + length], axis=-1).clip(0, extent)
        bounds.append(ends.astype(np.int64).tolist())
    cells: Cells = []
    for region, item in enumerate(_items(input, batch_index)):
        for cell in np.ndindex(*output_size):
            pairs = zip(bounds, cell, strict=True)
            ranges = [slice(*ends[region][number]) for ends, number in pairs]
            if all(along.start < along.stop for along in ranges):
                every = slice(None)
                cells.append(((region, every, *cell), (item, every, *ranges)))
    return cells


def _content(input: Array, place: Any) -> Array:
    """The elements of a cell: [C, volume]."""
    return np.asarray(input[place].reshape(input.shape[1], -1))


def _placed(cells: Cells, values: Iterable[Array], *shape: Dimension) -> Array:
    """The results of cells in their places; 0 for those without elements."""
    output = np.zeros(shape)
    for (place, _), value in zip(cells, values, strict=True):
        output[place] = value
    return output


@choice("avg_roi_pool", _cells)
def _avg_roi_pool(
    cells: Cells, input: Array, rois: Array, *_: Array, output_size: Shape
) -> Array:
    means = (_content(input, place).mean(axis=1) for _, place in cells)
    return _placed(cells, means, len(rois), input.shape[1], *output_size)


def _maxima(
    input: Array, rois: Array, batch_index: Array, output_size: Shape
) -> tuple[Cells, list[Array]]:
    """The cells, and where the first maximum is in each."""
    cells = _cells(input, rois, batch_index, output_size)
    contents = (_content(input, place) for _, place in cells)
    return cells, [content.argmax(axis=1, keepdims=True) for content in contents]


@choice("max_roi_pool", _maxima)
def _max_roi_pool(
    maxima: tuple[Cells, list[Array]], input: Array, rois: Array, *_: Array, **to: Shape
) -> Array:
    cells, indices = maxima
    values = (
        np.take_along_axis(_content(input, place), index, axis=1)[:, 0]
        for (_, place), index in zip(cells, indices, strict=True)
    )
    return _placed(cells, values, len(rois), input.shape[1], *to["output_size"])


# ---- Interpolation in regions ----

# The batch items of the regions; and for each axis the points over each region, [N, n],
# clipped to the input, and which of them are inside.
Surroundings = tuple[Array, list[tuple[Array, Array]]]


def _region_points(
    input: Array, rois: Array, output_size: Shape, method: str
) -> list[Array]:
    """The points over each region along each axis, [N, n]."""
    axes = _axes(input, rois, output_size)
    return [_points(method, first, last - first, n) for first, last, _, n in axes]


def _surroundings(
    input: Array, rois: Array, batch_index: Array, output_size: Shape, method: str
) -> Surroundings:
    points = _region_points(input, rois, output_size, method)
    along = zip(points, input.shape[2:], strict=True)
    clipped = [(x.clip(0, n - 1), (x > 0) & (x < n - 1)) for x, n in along]
    return _items(input, batch_index), clipped


@choice("roi_resample", _surroundings)
def _roi_resample(
    surroundings: Surroundings, input: Array, rois: Array, _: Array, **to: Any
) -> Array:
    """Points over regions, as in multilinear_upsample, between the same elements: sums of
    the elements at the corners around each point.
    """
    items, clipped = surroundings
    moved = zip(clipped, _region_points(input, rois, **to), strict=True)
    ends = []
    for axis, ((base, is_inside), points) in enumerate(moved):
        lower = np.floor(base).astype(np.int64)
        weight = np.where(is_inside, points, base) - lower
        pairs = (lower, 1.0 - weight), (lower + (weight != 0.0), weight)
        shape = [len(items), *([1] * axis), -1, *([1] * (len(clipped) - axis))]
        ends.append([(i.reshape(shape[:-1]), w.reshape(shape)) for i, w in pairs])
    x = np.ascontiguousarray(np.moveaxis(input, 1, -1))
    region = items.reshape(-1, *[1] * len(ends))
    corners = (zip(*corner, strict=True) for corner in product(*ends))
    parts = (x[(region, *places)] * prod(weights) for places, weights in corners)
    return np.moveaxis(sum(parts), -1, 1)


# ---- Regions ----


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
    """For each axis the regions' bounds, [N, 1], its extent, and how many results."""
    require(np.isfinite(rois).all(), "the items of 'rois' must be finite")
    firsts, lasts = np.split(rois.astype(np.float64).T[..., np.newaxis], 2)
    return zip(firsts, lasts, input.shape[2:], as_numbers(output_size), strict=True)
