"""Resizing, and samples at the points of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.tract.operations import resizing as expansion
from nnef_grad.frontends.values import Array, shape_of
from nnef_grad.ops.resizing import Axis, Resizing

_NEAREST = tuple(f"upsample_nearest{n}d" for n in "123")
_EXACT = tuple(f"_upsample_nearest_exact{n}d" for n in "123")
_LINEAR = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")


def _resized(
    call: Call, x: Any, sizes: Any, scales: Sequence[float | None], how: Resizing
) -> Any:
    """Spatial axes with other extents, or by factors."""
    batch, channels, *extents = shape_of(x)
    counted = list(scales) if scales and any(scales) else [None] * len(extents)
    made = sizes or [int(n * s) for n, s in zip(extents, counted, strict=True)]  # type: ignore[operator]
    axes = [
        Axis(n, to, to / n if scale is None else scale)
        for n, to, scale in zip(extents, made, counted, strict=True)
    ]
    kept = [Axis(n, n, 1.0) for n in (batch, channels)]
    return expansion.resized(call, x, [*kept, *axes], how)


@aten(*_NEAREST, *_EXACT)
def nearest(call: Call, x: Any, sizes: Any, *scales: Any) -> Any:
    """The element whose place is next, rounded down; of the exact one that of middles."""
    is_exact = "exact" in call.name
    places = "tf_half_pixel_for_nn" if is_exact else "asymmetric"
    return _resized(
        call, x, sizes, _listed(scales), Resizing(places, "nearest", "floor")
    )


@aten(*_LINEAR, "upsample_bicubic2d")
def interpolated(call: Call, x: Any, sizes: Any, is_aligned: bool, *scales: Any) -> Any:
    """Between the elements next to a place, by lines or by cubic polynomials."""
    places = "align_corners" if is_aligned else "half_pixel"
    mode = "cubic" if "bicubic" in call.name else "linear"
    return _resized(call, x, sizes, _listed(scales), Resizing(places, mode, "floor"))


def _listed(scales: Sequence[Any]) -> list[Any]:
    """The factors, which are an argument each, or one list."""
    if len(scales) == 1 and isinstance(scales[0], (list, tuple)):
        return list(scales[0])
    return list(scales)


# ---- Antialiasing ----


def _triangle(x: Array) -> Array:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _cubic(x: Array) -> Array:
    """The polynomials with the coefficient -0.5."""
    x = np.abs(x)
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


_FILTERS = {
    "_upsample_bilinear2d_aa": (_triangle, 1.0),
    "_upsample_bicubic2d_aa": (_cubic, 2.0),
}


@aten(*_FILTERS)
def antialiased(call: Call, x: Any, sizes: Any, is_aligned: bool, *scales: Any) -> Any:
    """Sums over the elements around a place, weighted by their distance; more of them where
    there are fewer new places.
    """
    name = call.node.target.overloadpacket.__name__
    extents = shape_of(x)[2:]
    factors = _listed(scales) or [None, None]
    factors = factors if any(factors) else [None, None]
    made = sizes or [int(n * s) for n, s in zip(extents, factors, strict=True)]
    for axis, (n, to, factor) in enumerate(zip(extents, made, factors, strict=True), 2):
        step = n / to if factor is None else 1.0 / factor
        if is_aligned:
            step = (n - 1) / (to - 1) if to > 1 else 0.0
        matrix = _smooth(n, to, step, *_FILTERS[name])
        x = expansion.along(call, x, matrix, axis)
    return x


def _smooth(given: int, made: int, step: float, weigh: Any, reach: float) -> Array:
    """The matrix from the given places (columns) to the new ones (rows)."""
    width = max(step, 1.0)
    matrix = np.zeros((made, given))
    for row, center in zip(matrix, step * (np.arange(made) + 0.5), strict=True):
        first = max(int(center - reach * width + 0.5), 0)
        end = min(int(center + reach * width + 0.5), given)
        places = np.arange(first, end)
        taps = weigh((places - center + 0.5) / width)
        row[first:end] = taps / taps.sum()
    return matrix


# ---- Grids ----

_MODES = ("bilinear", "nearest", "bicubic")
_BORDERS = ("zeros", "border", "reflection")


@aten("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sample(
    call: Call, x: Any, grid: Any, mode: int, border: int, is_aligned: bool
) -> Any:
    """Samples at the points of a grid from -1 to 1."""
    return expansion.grid_sample(
        call, x, grid, _MODES[mode], _BORDERS[border], is_aligned
    )


@aten("affine_grid_generator")
def affine_grid(call: Call, theta: Any, size: Sequence[int], is_aligned: bool) -> Any:
    """The points of a regular grid after an affine map."""
    batch, _, *extents = size
    return expansion.affine_grid(call, theta, [batch, *extents], is_aligned)
