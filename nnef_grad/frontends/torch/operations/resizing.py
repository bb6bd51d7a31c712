"""Resizing, and samples at the points of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nnef_grad.frontends.expansions import resizing as expansion
from nnef_grad.frontends.expansions.resizing import Axis, Resizing
from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.values import shape_of
from nnef_grad.graph.extents import Dimension, has_symbols

_NEAREST = tuple(f"upsample_nearest{n}d" for n in "123")
_EXACT = tuple(f"_upsample_nearest_exact{n}d" for n in "123")
_LINEAR = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")


def _resized(call: Call, x: Any, scales: Sequence[Any], how: Resizing) -> Any:
    """Spatial axes with other extents, or by factors."""
    batch, channels, *extents = shape_of(x)
    factors, wanted = _factors(extents, scales), call.result_shape[2:]
    axes = [
        Axis(n, to, _factor(call, how, n, to, scale))
        for n, to, scale in zip(extents, wanted, factors, strict=True)
    ]
    kept = [Axis(n, n, 1.0) for n in (batch, channels)]
    return expansion.resized(call, x, [*kept, *axes], how)


def _factor(
    call: Call, how: Resizing, before: Dimension, after: Dimension, scale: float | None
) -> float | None:
    """The factor that PyTorch takes: for lines, and the nearest elements of images, that of
    extents that are alike, or of images that are twice as large.
    """
    if has_symbols((before, after)):
        is_known = scale is not None and expansion.scaled(before, scale) == after
        return scale if is_known else expansion.ratio(after, before)
    is_image = call.packet == "upsample_nearest2d"
    is_copied = before == after and (how.mode == "linear" or is_image)
    is_doubled = 2 * before == after and is_image
    return after / before if scale is None or is_copied or is_doubled else scale


def _factors(extents: Sequence[Any], scales: Sequence[Any]) -> list[float | None]:
    """The factor of each axis, which is an argument each, or one list; if there are any."""
    listed = scales[0] if len(scales) == 1 and isinstance(scales[0], list) else scales
    numbers = list(listed or ())
    return numbers if any(numbers) else [None] * len(extents)


@aten(*_NEAREST, *_EXACT, *_LINEAR, "upsample_bicubic2d")
def resized(call: Call, x: Any, _sizes: Any, *settings: Any) -> Any:
    """The nearest elements, or what is between, by lines or by cubic polynomials."""
    if "nearest" in call.name:
        places = "tf_half_pixel_for_nn" if "exact" in call.name else "asymmetric"
        return _resized(call, x, settings, Resizing(places, "nearest", "floor"))
    _refuse_bytes(call)
    is_aligned, *scales = settings
    places = "align_corners" if is_aligned else "half_pixel"
    mode = "cubic" if "bicubic" in call.name else "linear"
    return _resized(call, x, scales, Resizing(places, mode, "floor"))


def _refuse_bytes(call: Call) -> None:
    """Refuses sums of bytes, which PyTorch computes with rounded weights."""
    is_scalar = call.result_dtype == "scalar"
    call.require(is_scalar, "bytes are rounded: convert them with float() before")


# ---- Antialiasing ----


@aten(*(f"_upsample_{how}2d_aa" for how in ("lanczos", "bilinear", "bicubic")))
def antialiased(call: Call, x: Any, sizes: Any, is_aligned: bool, *scales: Any) -> Any:
    """Sums over the elements around a place, weighted by their distance; more of them where
    there are fewer new places. The weights are what PyTorch makes of single elements.
    """
    resize = getattr(torch.ops.aten, call.packet).default
    extents, wanted = shape_of(x)[2:], call.result_shape[2:]
    call.require_known(extents, wanted)
    _refuse_bytes(call)
    factors = _factors(extents, scales)
    for axis, (n, to, factor) in enumerate(
        zip(extents, wanted, factors, strict=True), 2
    ):
        if n != to:
            units = torch.eye(n, dtype=torch.float64)[None, None]
            weights = resize(units, [n, to], is_aligned, None, factor)[0, 0].T
            x = expansion.apply_along(call, x, weights.numpy(), axis)
    return x


# ---- Grids ----

_MODES = ("bilinear", "nearest", "bicubic")
_BORDERS = ("zeros", "border", "reflection")


@aten("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sample(
    call: Call, x: Any, grid: Any, mode: int, border: int, is_aligned: bool
) -> Any:
    return expansion.samples(call, x, grid, _MODES[mode], _BORDERS[border], is_aligned)


@aten("affine_grid_generator")
def _affine_grid(call: Call, theta: Any, size: Sequence[int], is_aligned: bool) -> Any:
    batch, _, *extents = size
    return expansion.affine_grid(call, theta, [batch, *extents], is_aligned)
