"""Resizing by whole factors, which the standard has."""

from __future__ import annotations

from typing import Any

from nnef_grad.dialects.tract.step import Step, expansion
from nnef_grad.dialects.tract.values import shape_of

# The methods of multilinear_upsample by the coordinates that tract transforms.
_METHODS = {
    "align_corners": "aligned",
    "asymmetric": "asymmetric",
    "half_pixel": "symmetric",
    "pytorch_half_pixel": "symmetric",
}


@expansion("tract_core_resize")
def resize(
    step: Step,
    x: Any,
    scales: list[float],
    sizes: list[int],
    coordinates: str,
    interpolator: str,
    nearest_mode: str,
) -> Any:
    """Upsampling of the spatial axes, by a whole factor each."""
    shape = shape_of(x)
    given = f"there must be {len(shape)} scales or extents"
    step.require(len(sizes or scales) == len(shape), given)
    if not sizes:
        sizes = [int(n * scale) for n, scale in zip(shape, scales, strict=True)]
    pairs = list(zip(shape, sizes, strict=True))
    if all(given == made for given, made in pairs):
        return x
    is_spatial = all(given == made for given, made in pairs[:2])
    is_whole = all(made % given == 0 for given, made in pairs)
    advice = "scale the spatial axes by whole numbers"
    kind = f"from {list(shape)} to {list(sizes)}"
    step.require(is_spatial and is_whole, f"it cannot resize {kind}: {advice}")
    factor = [made // given for given, made in pairs[2:]]
    if interpolator == "nearest":
        return _nearest(step, x, factor, coordinates, nearest_mode)
    step.require(interpolator == "linear", f"there is no interpolator '{interpolator}'")
    method = _METHODS.get(coordinates)
    if method is None:
        step.refuse(f"there are no coordinates '{coordinates}'")
    settings = {"method": method, "border": "replicate"}
    return step("multilinear_upsample", x, factor=factor, **settings)


@expansion("tract_onnx_resize")
def onnx_resize(
    step: Step, x: Any, scales: list[float], roi: list[float], *settings: Any
) -> Any:
    """The older name, which cannot give extents."""
    step.require(not roi, "the coordinates must not be cropped")
    return resize(step, x, scales, [], *settings)


# How coordinates are rounded where every element is repeated.
_REPEATING = {
    ("asymmetric", "floor"),
    ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"),
    ("pytorch_half_pixel", "round_prefer_floor"),
    ("pytorch_half_pixel", "round_prefer_ceil"),
}


def _nearest(
    step: Step, x: Any, factor: list[int], coordinates: str, rounding: str
) -> Any:
    known = (coordinates, rounding) in _REPEATING
    step.require(known, f"nearest {rounding} of {coordinates} is not upsampling")
    return step("nearest_upsample", x, factor=factor)
