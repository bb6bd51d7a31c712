"""Regions of interest: parts of feature maps, brought to one size.

A region has a row in `rois`: its first corner and then its last, each with a coordinate
for each spatial axis. The same row of `batch_index` says in which item of the batch it
lies. They are put together from other operations in emit/regions.py.
"""

from __future__ import annotations

from nnef_grad.graph.ir import Shape
from nnef_grad.ops.registry import require, shape
from nnef_grad.ops.sampling import METHODS, check_spatial
from nnef_grad.ops.windows import check_choice


@shape("avg_roi_pool", "max_roi_pool", "roi_resample")
def roi_shape(
    input: Shape,
    rois: Shape,
    batch_index: Shape,
    output_size: Shape,
    method: str = "symmetric",
) -> Shape:
    """[B, C, M spatial axes], [N, 2 * M] and [N, 1] give [N, C, *output_size]."""
    check_choice("method", method, METHODS)
    check_spatial("output_size", output_size, input)
    width = 2 * (len(input) - 2)
    message = (
        f"'rois' must have {width} columns, two for each spatial dimension,"
        f" but has the shape {list(rois)}"
    )
    require(len(rois) == 2 and rois[1] == width, message)
    message = (
        f"'batch_index' must have the shape [{rois[0]}, 1] or [{rois[0]}],"
        f" but has {list(batch_index)}"
    )
    # The specification says [N, 1], the Khronos tools want [N].
    require(batch_index in ((rois[0],), (rois[0], 1)), message)
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
    check_choice("resize_method", resize_method, METHODS)
    check_spatial("sampling_rate", sampling_rate, input)
    return roi_shape(input, rois, batch_index, output_size)
