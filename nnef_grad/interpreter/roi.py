"""Regions of interest: a row of `rois` is a region, its first corner and then its last.

The first axis is that of the regions: positions along a spatial axis of the input are
[N, n], for n points or cells in each of N regions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import product
from math import inf

import numpy as np

from nnef_grad.graph.ir import Shape
from nnef_grad.interpreter.elementwise import rounded
from nnef_grad.interpreter.registry import (
    Array,
    Evaluation,
    evaluation,
    require,
)
from nnef_grad.interpreter.sampling import POINTS, neighbours

# ---- Pooling over cells of whole elements ----


@evaluation("avg_roi_pool")
def avg_roi_pool(
    input: Array, rois: Array, batch_index: Array, output_size: Shape
) -> Array:
    """The mean of each cell; 0 for an empty one."""
    items = _items(input, batch_index)
    cells = _cells(input, rois, output_size)
    total, count = _pool(np.add, 0.0, input, items, cells)
    return np.where(count > 0, total / count, 0.0)


@evaluation("max_roi_pool")
def max_roi_pool(
    input: Array, rois: Array, batch_index: Array, output_size: Shape
) -> Array:
    """The maximum of each cell; 0 for an empty one."""
    items = _items(input, batch_index)
    cells = _cells(input, rois, output_size)
    highest, count = _pool(np.maximum, -inf, input, items, cells)
    return np.where(count > 0, highest, 0.0)


Cells = list[tuple[Array, Array]]


def _cells(input: Array, rois: Array, output_size: Shape) -> Cells:
    """The bounds of the cells along each axis, clipped to the input."""
    corners = _corners(rounded(rois))
    cells = []
    for (first, last), extent, count in zip(
        corners, input.shape[2:], output_size, strict=True
    ):
        stride, length = (last - first) // count, -((first - last) // count)
        begin = first + np.arange(count) * stride
        ends = begin, begin + length
        cells.append(tuple(end.clip(0, extent).astype(np.int64) for end in ends))
    return cells


def _pool(
    function: Callable[[Array, Array], Array],
    neutral: float,
    input: Array,
    items: Array,
    cells: Cells,
) -> tuple[Array, Array]:
    """The function over the elements of each cell, and their number: [N, C, ...] and
    [N, 1, ...]. The loop is over the elements of the largest cell.
    """
    shape = (len(items), input.shape[1], *(begin.shape[1] for begin, _ in cells))
    pooled, count = np.full(shape, neutral), np.zeros((shape[0], 1, *shape[2:]))
    largest = [int((end - begin).max(initial=0)) for begin, end in cells]
    for offset in np.ndindex(*largest):
        positions = [
            begin + step for (begin, _), step in zip(cells, offset, strict=True)
        ]
        inside = _grid(
            [place < end for place, (_, end) in zip(positions, cells, strict=True)],
            np.logical_and,
        )
        values = _elements(input, items, positions)
        pooled = np.where(inside, function(pooled, values), pooled)
        count += inside
    return pooled, count


# ---- Interpolation ----


@evaluation("roi_resample")
def roi_resample(
    input: Array, rois: Array, batch_index: Array, output_size: Shape, method: str
) -> Array:
    """Points over each region, as in multilinear_upsample with border 'replicate'."""
    ways = [
        _weighted_neighbours(points.clip(0, extent - 1))
        for points, extent in _points(input, rois, output_size, method)
    ]
    return _interpolate(input, _items(input, batch_index), ways)


def _points(
    input: Array, rois: Array, output_size: Shape, method: str
) -> Iterator[tuple[Array, int]]:
    """The points over each region along each axis, and the extent of the axis."""
    columns = zip(_corners(rois), input.shape[2:], output_size, strict=True)
    for (first, last), extent, count in columns:
        yield POINTS[method](first, last - first, count), extent


# For each point along an axis the position of a neighbouring element, and its weight.
Neighbours = list[tuple[Array, Array]]


def _weighted_neighbours(points: Array) -> Neighbours:
    lower, upper = neighbours(points)
    return [(lower, 1.0 - (points - lower)), (upper, points - lower)]


def _interpolate(input: Array, items: Array, ways: Sequence[Neighbours]) -> Array:
    """The weighted sum of the elements around each point."""
    terms = (
        _grid([weight for _, weight in corner], np.multiply)
        * _elements(input, items, [position for position, _ in corner])
        for corner in product(*ways)
    )
    return reduce(np.add, terms)


# ---- With decisions held ----


def held_maxima(
    input: Array, rois: Array, batch_index: Array, output_size: Shape
) -> Evaluation:
    """`max_roi_pool` with fixed cells and fixed positions of their maxima, the first of
    equal ones.
    """
    items, cells = _items(input, batch_index), _cells(input, rois, output_size)

    def held(moved: Array, *_: Array) -> Array:
        # The channels that decide, and after them those that are taken.
        both = np.concatenate([input, moved], axis=1)
        highest, count = _pool(_first_larger, -inf, both, items, cells)
        taken = np.split(highest, 2, axis=1)[1]
        return np.where(count > 0, taken, 0.0)

    return held


def _first_larger(pooled: Array, values: Array) -> Array:
    deciding, channels = values.shape[1] // 2, values.shape[1]
    is_larger = values[:, :deciding] > pooled[:, :deciding]
    return np.where(is_larger.take(range(channels), 1, mode="wrap"), values, pooled)


def held_resampling(
    input: Array, rois: Array, batch_index: Array, output_size: Shape, method: str
) -> Evaluation:
    """`roi_resample` where each point stays between the same elements, an element and
    the one after it for a point on an element, and a point at the edge stays there.
    """
    items = _items(input, batch_index)
    cells = [
        (points.clip(0, extent - 1), (points > 0) & (points < extent - 1))
        for points, extent in _points(input, rois, output_size, method)
    ]

    def held(input: Array, rois: Array, _: Array) -> Array:
        columns = zip(cells, _points(input, rois, output_size, method), strict=True)
        ways = [_held_neighbours(*cell, points) for cell, (points, _) in columns]
        return _interpolate(input, items, ways)

    return held


def _held_neighbours(base: Array, is_inside: Array, points: Array) -> Neighbours:
    lower = np.floor(base)
    fraction = np.where(is_inside, points, base) - lower
    places = lower.astype(np.int64)
    return [(places, 1.0 - fraction), (places + 1, fraction)]


# ---- Elements at positions ----


def _items(input: Array, batch_index: Array) -> Array:
    """The batch item of each region: [N]."""
    require(
        np.all((batch_index >= 0) & (batch_index < len(input))),
        f"the items of 'batch_index' must be in 0..{len(input) - 1}",
    )
    return batch_index.reshape(len(batch_index))


def _corners(rois: Array) -> list[tuple[Array, Array]]:
    """The bounds of the regions along each axis: [N, 1] each."""
    require(np.isfinite(rois).all(), "the items of 'rois' must be finite")
    columns = rois.astype(np.float64)[:, :, np.newaxis]
    axes = rois.shape[1] // 2
    return [(columns[:, axis], columns[:, axes + axis]) for axis in range(axes)]


def _elements(input: Array, items: Array, positions: Sequence[Array]) -> Array:
    """The elements at the grid of some positions along each axis: [N, C, n...].

    Positions after the input are read at its end; their values are not used.
    """
    axes = len(positions)
    places = [
        place.clip(0, extent - 1)
        for place, extent in zip(positions, input.shape[2:], strict=True)
    ]
    grid = [_on_axis(place, axis, axes) for axis, place in enumerate(places)]
    batch = items.reshape(-1, *(1,) * axes)
    taken = np.moveaxis(input, 1, -1)[(batch, *grid)]
    return np.moveaxis(taken, -1, 1)


def _grid(factors: Sequence[Array], combine: Callable[..., Array]) -> Array:
    """The values at the points of a grid, from those at its coordinates: [N, 1, n...]."""
    axes = len(factors)
    aligned = [_on_axis(factor, axis, axes) for axis, factor in enumerate(factors)]
    return reduce(combine, aligned)[:, np.newaxis]


def _on_axis(x: Array, axis: int, axes: int) -> Array:
    """[N, n] with n on one of the axes of a grid: [N, 1, ..., n, ..., 1]."""
    regions, count = x.shape
    return x.reshape(regions, *(1,) * axis, count, *(1,) * (axes - axis - 1))
