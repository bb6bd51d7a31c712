"""Resizing, and samples at the points of a grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.frontends.expansions import resizing as expansion
from nnef_grad.frontends.onnx.reading import Node, onnx_op
from nnef_grad.frontends.values import shape_of
from nnef_grad.graph.ir import Shape
from nnef_grad.ops.resizing import Axis, Resizing


@onnx_op("Resize", "Upsample")
def _resize(node: Node, x: Any, *_: Any) -> Any:
    """Resizing. Before version 11 there are no coordinate modes: it is asymmetric."""
    is_old = node.version < 11
    places = node.get("coordinate_transformation_mode", "half_pixel")
    places = "asymmetric" if is_old else places
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    node.require(places != "tf_crop_and_resize", "the coordinates must not be cropped")
    node.require(node.get("antialias", 0) == 0, "antialias must be 0")
    node.require(policy == "stretch", "the aspect ratio must not be kept")
    how = Resizing(
        places,
        node.get("mode", "nearest"),
        "floor" if is_old else node.get("nearest_mode", "round_prefer_floor"),
        node.get("cubic_coeff_a", -0.75),
        bool(node.get("exclude_outside", 0)),
    )
    return expansion.resized(node, x, _axes(node, shape_of(x)), how)


def _axes(node: Node, shape: Shape) -> list[Axis]:
    """All axes, with the scales of the file, or the ratios if it gives extents."""
    rank = len(shape)
    along = [node.axis(a, rank) for a in node.get("axes", range(rank))]
    scales = node.items("scales", 1 if node.version < 11 else 2, [])
    sizes = [] if scales else node.items("sizes", 3)
    still: list[Any] = [1.0] * rank if scales else list(shape)
    for axis, given in zip(along, scales or sizes, strict=True):
        still[axis] = given
    return expansion.axes_of(node, shape, *((still, []) if scales else ([], still)))


@onnx_op("GridSample")
def _grid_sample(node: Node, x: Any, grid: Any) -> Any:
    names = {"linear": "bilinear", "cubic": "bicubic"}
    mode, border = node.get("mode", "linear"), node.get("padding_mode", "zeros")
    how = names.get(mode, mode), border, bool(node.get("align_corners", 0))
    return expansion.grid_sample(node, x, grid, *how)


@onnx_op("AffineGrid")
def _affine_grid(node: Node, theta: Any, _: Any) -> Any:
    batch, _channels, *extents = node.items("size", 1)
    return expansion.affine_grid(
        node, theta, [batch, *extents], bool(node.get("align_corners", 0))
    )


@onnx_op("CenterCropPad")
def _center(node: Node, x: Any, _: Any) -> Any:
    """The middle, or zeros around."""
    shape, rank = shape_of(x), len(shape_of(x))
    axes = [node.axis(a, rank) for a in node.get("axes", range(rank))]
    padding = [(0, 0)] * rank
    for axis, made in zip(axes, node.items("shape", 1), strict=True):
        more = made - shape[axis]
        if more < 0:
            first = -more // 2
            x = node.piece(x, axis, first, first + made, "middle")
        else:
            padding[axis] = (more // 2, more - more // 2)
    return node("pad", x, padding=padding, value=0.0) if np.any(padding) else x
