"""Regions of interest, as loops over regions and cells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from support.evaluations import (
    Array,
    Shape,
    close,
    model,
    run,
)

import nnef_grad
from nnef_grad.interpreter import evaluate

# ---- Regions of interest, as loops ----


def rois(seed: int, extents: Shape) -> dict[str, Array]:
    """Regions inside of the maps, across their edges, and without elements."""
    draw = np.random.default_rng(seed)
    ends = np.sort(draw.uniform(-2.0, 9.0, (12, 2, len(extents))), axis=1)
    ends[0, 0], ends[0, 1] = 0.0, extents
    ends[1, 1] = ends[1, 0]
    ends[2] = ends[2, ::-1]
    ends[3] = np.round(ends[3]) + 0.5
    return {
        "x": draw.standard_normal((3, 2, *extents)),
        "r": ends.reshape(12, -1),
        "i": draw.integers(0, 3, (12, 1)),
    }


def cell(first: float, last: float, count: int, index: int, extent: int) -> range:
    """The positions of one of the cells along an axis."""
    begin, end = math.floor(first + 0.5), math.floor(last + 0.5)
    start = begin + index * ((end - begin) // count)
    return range(max(start, 0), min(start + math.ceil((end - begin) / count), extent))


def roi_pool_loop(
    function: Callable[[list[float]], float], x: Array, r: Array, i: Array, size: Shape
) -> Array:
    axes = len(size)
    y = np.zeros((len(r), x.shape[1], *size))
    for n, channel, *place in np.ndindex(*y.shape):
        cells = [
            cell(
                r[n, axis],
                r[n, axes + axis],
                size[axis],
                place[axis],
                x.shape[2 + axis],
            )
            for axis in range(axes)
        ]
        held = [float(x[(i[n, 0], channel, *at)]) for at in itertools.product(*cells)]
        y[(n, channel, *place)] = function(held) if held else 0.0
    return y


def roi_resample_loop(x: Array, r: Array, i: Array, size: Shape, method: str) -> Array:
    axes = len(size)
    y = np.zeros((len(r), x.shape[1], *size))
    for n, channel, *place in np.ndindex(*y.shape):
        terms = []
        for axis, (index, count) in enumerate(zip(place, size, strict=True)):
            first, extent = r[n, axis], r[n, axes + axis] - r[n, axis]
            point = (
                first
                + {
                    "symmetric": (index + 0.5) * extent / count - 0.5,
                    "asymmetric": index * extent / count,
                    "aligned": index * (extent - 1) / (count - 1) if count > 1 else 0.0,
                }[method]
            )
            last = x.shape[2 + axis] - 1
            point = min(max(point, 0.0), last)
            low = math.floor(point)
            terms.append([(low, low + 1 - point), (min(low + 1, last), point - low)])
        y[(n, channel, *place)] = sum(
            math.prod(weight for _, weight in corner)
            * x[(i[n, 0], channel, *(at for at, _ in corner))]
            for corner in itertools.product(*terms)
        )
    return y


def roi_model(name: str, axes: int, attributes: str) -> nnef_grad.Graph:
    shapes = {"x": [3, 2, *[6, 5, 7][:axes]], "r": [12, 2 * axes], "i": [12, 1]}
    return nnef_grad.loads(model(f"y = {name}(x, r, i, {attributes})", **shapes))


POOLS: dict[str, Callable[[list[float]], float]] = {
    "avg_roi_pool": lambda held: sum(held) / len(held),
    "max_roi_pool": max,
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("name", POOLS)
def test_roi_pools_by_loops(name: str, axes: int, seed: int) -> None:
    size = [2, 3, 1][:axes]
    fed = rois(seed, [6, 5, 7][:axes])
    (y,) = evaluate(roi_model(name, axes, f"output_size = {size}"), fed).values()
    close(y, roi_pool_loop(POOLS[name], **fed, size=size))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("method", ["symmetric", "asymmetric", "aligned"])
def test_roi_resampling_by_loops(method: str, axes: int, seed: int) -> None:
    size = [2, 3, 1][:axes]
    fed = rois(seed, [6, 5, 7][:axes])
    attributes = f"output_size = {size}, method = '{method}'"
    (y,) = evaluate(roi_model("roi_resample", axes, attributes), fed).values()
    close(y, roi_resample_loop(**fed, size=size, method=method))


@pytest.mark.parametrize("method", ["symmetric", "asymmetric", "aligned"])
def test_the_whole_map_resampled_is_the_map_upsampled(method: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 5))
    whole = {"x": x, "r": [[0.0, 0.0, 4.0, 5.0]], "i": [0]}
    shapes = {"x": [1, 2, 4, 5], "r": [1, 4], "i": [1]}
    roi = f"y = roi_resample(x, r, i, output_size = [12, 10], method = '{method}')"
    (resampled,) = run(roi, whole, **shapes)
    up = f"y = multilinear_upsample(x, factor = [3, 2], method = '{method}', border = 'replicate')"
    (upsampled,) = run(up, {"x": x}, x=[1, 2, 4, 5])
    close(resampled, upsampled)
