"""Down- and up-sampling by integer factors, and regions of interest.

Spatial axes change, batch and channels stay. A region of interest has a row in `rois`,
its first corner and then its last.
"""

from __future__ import annotations

from nnef_grad.ir import Shape
from nnef_grad.ops.registry import require, shape
from nnef_grad.ops.windows import check_border, check_positive

METHODS = ("symmetric", "asymmetric", "aligned")
BORDERS = ("constant", "replicate", "reflect", "reflect-even")


@shape("nearest_downsample", "area_downsample")
def downsample_shape(input: Shape, factor: Shape) -> Shape:
    """[B, C, x * f...] gives [B, C, x...]."""
    _check_spatial("factor", factor, input)
    spatial = input[2:]
    divides = all(extent % f == 0 for extent, f in zip(spatial, factor))
    require(
        divides,
        f"'factor' must divide the spatial extents, and they are {list(factor)} and {list(spatial)}",
    )
    return (*input[:2], *(extent // f for extent, f in zip(spatial, factor)))


@shape("nearest_upsample")
def upsample_shape(input: Shape, factor: Shape) -> Shape:
    """[B, C, x...] gives [B, C, x * f...]."""
    _check_spatial("factor", factor, input)
    return (*input[:2], *(extent * f for extent, f in zip(input[2:], factor)))


@shape("multilinear_upsample")
def multilinear_upsample_shape(
    input: Shape, factor: Shape, method: str, border: str
) -> Shape:
    """[B, C, x...] gives [B, C, x * f...]."""
    _check_method("method", method)
    check_border(border, BORDERS)
    return upsample_shape(input, factor)


# ---- Regions of interest ----


@shape("avg_roi_pool", "max_roi_pool", "roi_resample")
def roi_shape(
    input: Shape,
    rois: Shape,
    batch_index: Shape,
    output_size: Shape,
    method: str = "symmetric",
) -> Shape:
    """[B, C, M spatial axes], [N, 2 * M] and [N, 1] give [N, C, *output_size]."""
    _check_method("method", method)
    _check_spatial("output_size", output_size, input)
    width = 2 * (len(input) - 2)
    rows = len(rois) == 2 and rois[1] == width
    require(
        rows,
        f"'rois' must have {width} columns, two for each spatial dimension, and has the shape {list(rois)}",
    )
    # The specification says [N, 1], the Khronos tools want [N].
    fits = batch_index in ((rois[0],), (rois[0], 1))
    require(
        fits,
        f"'batch_index' must have the shape [{rois[0]}, 1] or [{rois[0]}], and has {list(batch_index)}",
    )
    return (rois[0], input[1], *output_size)


@shape("avg_roi_align", "max_roi_align")
def roi_align_shape(
    input: Shape,
    rois: Shape,
    batch_index: Shape,
    output_size: Shape,
    sampling_rate: Shape,
    resize_method: str,
) -> Shape:
    """As for `roi_shape`: the samples of a cell are pooled."""
    _check_method("resize_method", resize_method)
    _check_spatial("sampling_rate", sampling_rate, input)
    return roi_shape(input, rois, batch_index, output_size)


# ---- Checks ----


def _check_spatial(name: str, values: Shape, input: Shape) -> None:
    require(
        len(input) >= 2,
        f"the input must have batch and channels, and has the shape {list(input)}",
    )
    spatial = len(input) - 2
    require(
        len(values) == spatial,
        f"'{name}' must have an item for each of {spatial} spatial dimensions, and is {list(values)}",
    )
    check_positive(name, values)


def _check_method(name: str, method: str) -> None:
    choices = ", ".join(f"'{choice}'" for choice in METHODS)
    require(method in METHODS, f"'{name}' must be one of {choices}, and is '{method}'")
