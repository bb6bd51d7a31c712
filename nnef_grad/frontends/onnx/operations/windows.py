"""Convolutions, pooling, resizing, and samples at the points of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnef_grad.frontends.expansions import resizing, windows
from nnef_grad.frontends.expansions.windows import Axis
from nnef_grad.frontends.onnx.node import Node, onnx_op
from nnef_grad.frontends.onnx.operations.shapes import sides
from nnef_grad.frontends.values import shape_of
from nnef_grad.graph.extents import Dimension, may_exceed
from nnef_grad.graph.ir import Shape
from nnef_grad.graph.quotients import maximum


def _axes(node: Node, x: Any, size: Sequence[Dimension]) -> list[Axis]:
    """Windows along spatial axes, with the padding of the file."""
    ones, zeros = [1] * len(size), [0, 0] * len(size)
    settings = [node.get(name, ones) for name in ("strides", "dilations")]
    pads = sides(zeros if _auto_pad(node) == "VALID" else node.get("pads", zeros))
    columns = (shape_of(x)[2:], size, *settings, *zip(*pads, strict=True))
    return list(map(Axis._make, zip(*columns, strict=True)))


def _auto_pad(node: Node) -> str:
    return node.get("auto_pad", "NOTSET")


def _with_halves(axes: list[Axis], totals: list[int], is_lower: bool) -> list[Axis]:
    """The axes with a half of the padding at each side, or an element more at one. What is
    missing, not padded, is so at the end.
    """
    halves = [
        (n // 2, n - n // 2)[:: -1 if is_lower else 1] if may_exceed(n, 0) else (0, n)
        for n in totals
    ]
    pairs = zip(axes, halves, strict=True)
    return [axis._replace(before=n, after=m) for axis, (n, m) in pairs]


def _same(node: Node, axes: list[Axis]) -> list[Axis]:
    """The axes with as much padding as keeps an extent, if it is automatic."""
    auto_pad = _auto_pad(node)
    if not auto_pad.startswith("SAME"):
        return axes
    totals = [maximum(0, a.reach(-(-a.given // a.stride)) - a.given) for a in axes]
    return _with_halves(axes, totals, auto_pad == "SAME_LOWER")


@onnx_op("Conv")
def _conv(node: Node, x: Any, w: Any, b: Any = None) -> Any:
    axes = _same(node, _axes(node, x, shape_of(w)[2:]))
    return windows.conv(node, x, w, node.row(b), axes, node.get("group", 1))


@onnx_op("ConvTranspose")
def _conv_transpose(node: Node, x: Any, w: Any, b: Any = None) -> Any:
    """A transposed convolution; the padding of the output makes it longer."""
    axes = _axes(node, x, shape_of(w)[2:])
    more = node.get("output_padding", [0] * len(axes))
    shape: Any = node.get("output_shape", None)
    is_same = shape is None and _auto_pad(node).startswith("SAME")
    if is_same:
        what = "auto_pad must not be SAME with output_padding: runtimes disagree"
        node.require(not any(more), what)
        shape = [axis.given * axis.stride for axis in axes]
    if shape is not None:
        columns = zip(axes, more, shape[-len(axes) :], strict=True)
        totals = [axis.reach(axis.given) + n - extent for axis, n, extent in columns]
        # Runtimes differ in where they put what is missing.
        is_long = not any(may_exceed(0, n) for n in totals)
        what = "auto_pad must not be SAME where the kernel is shorter than the stride"
        node.require(is_long or not is_same, what)
        axes = _with_halves(axes, totals, _auto_pad(node) != "SAME_UPPER")
    axes = [axis.longer(n) for axis, n in zip(axes, more, strict=True)]
    return windows.deconv(node, x, w, node.row(b), axes, node.get("group", 1))


@onnx_op("AveragePool", "LpPool", "MaxPool")
def _pool(node: Node, x: Any) -> Any:
    node.require(node.get("storage_order", 0) == 0, "storage_order must be 0")
    node.require(not node.uses(1), "the indices must not be used")
    plain = _axes(node, x, node.get("kernel_shape", []))
    axes, is_same = _same(node, plain), _auto_pad(node).startswith("SAME")
    is_dense = all(
        a.dilation == 1 and not may_exceed(a.given, a.reach(-(-a.given // a.stride)))
        for a in plain
    )
    # Runtimes differ in how they pad these.
    what = (
        "auto_pad must not be SAME where windows have dilations or leave elements out"
    )
    node.require(is_dense or not is_same, what)
    rounds_up = bool(node.get("ceil_mode", 0)) and not is_same
    if node.kind == "AveragePool":
        counts = bool(node.get("count_include_pad", 0))
        return windows.averages(node, x, axes, counts=counts, rounds_up=rounds_up)
    axes = [axis.rounded_up() for axis in axes] if rounds_up else axes
    if node.kind == "MaxPool":
        return windows.pool(node, "max_pool", x, axes, border="ignore")
    p = float(node.get("p", 2))
    powers = node("pow", node("abs", x, hint="sizes"), p, hint="powers")
    sums = windows.pool(node, "box", powers, axes, border="constant", hint="sums")
    return node.expand("root", sums) if p == 2 else node("pow", sums, 1.0 / p)


@onnx_op("Col2Im")
def _sum_of_blocks(node: Node, x: Any, *_: Any) -> Any:
    image, block = node.items("image_shape", 1), node.items("block_shape", 2)
    ones = [1] * len(block)
    settings = [node.get(name, ones) for name in ("strides", "dilations")]
    pads = sides(node.get("pads", [0, 0] * len(block)))
    columns = (image, block, *settings, *zip(*pads, strict=True))
    axes = list(map(Axis._make, zip(*columns, strict=True)))
    return windows.sum_of_blocks(node, x, axes)


# ---- Resizing ----


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
    how = resizing.Resizing(
        places,
        node.get("mode", "nearest"),
        "unspecified" if is_old else node.get("nearest_mode", "round_prefer_floor"),
        node.get("cubic_coeff_a", -0.75),
        bool(node.get("exclude_outside", 0)),
    )
    return resizing.resized(node, x, _resized_axes(node, shape_of(x)), how)


def _resized_axes(node: Node, shape: Shape) -> list[resizing.Axis]:
    """All axes, with the scales of the file, or the ratios if it gives extents."""
    rank = len(shape)
    along = [node.axis(a, rank) for a in node.get("axes", range(rank))]
    scales = node.items("scales", 1 if node.version < 11 else 2, [])
    sizes = [] if scales else node.items("sizes", 3)
    still: list[Any] = [1.0] * rank if scales else list(shape)
    for axis, given in zip(along, scales or sizes, strict=True):
        still[axis] = given
    return resizing.resized_axes(node, shape, *((still, []) if scales else ([], still)))


@onnx_op("GridSample")
def _grid_sample(node: Node, x: Any, grid: Any) -> Any:
    mode, border = node.get("mode", "linear"), node.get("padding_mode", "zeros")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    is_aligned = bool(node.get("align_corners", 0))
    return resizing.grid_sample(node, x, grid, mode, border, is_aligned)


@onnx_op("AffineGrid")
def _affine_grid(node: Node, theta: Any, _: Any) -> Any:
    batch, _channels, *extents = node.items("size", 1)
    is_aligned = bool(node.get("align_corners", 0))
    return resizing.affine_grid(node, theta, [batch, *extents], is_aligned)


@onnx_op("CenterCropPad")
def _center(node: Node, x: Any, _: Any) -> Any:
    """The middle, or zeros around."""
    shape, rank = shape_of(x), len(shape_of(x))
    axes = [node.axis(a, rank) for a in node.get("axes", range(rank))]
    padding = [(0, 0)] * rank
    for axis, extent in zip(axes, node.items("shape", 1), strict=True):
        more = extent - shape[axis]
        if more < 0:
            first = -more // 2
            x = node.piece(x, axis, first, first + extent, "middle")
        else:
            padding[axis] = (more // 2, more - more // 2)
    return node("pad", x, padding=padding, value=0.0) if np.any(padding) else x
