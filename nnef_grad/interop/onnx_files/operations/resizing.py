"""Resizing, and sampling at the points of a grid.

Both are products with matrices that have a row of weights for each new position.
"""

from __future__ import annotations

import numpy as np

from nnef_grad.interop.khronos import Array
from nnef_grad.interop.onnx_files.node import (
    Node,
    Tensor,
    constant,
    conversion,
    moved_last,
    positive,
)
from nnef_grad.ops import resizing
from nnef_grad.ops.resizing import Axis, Resizing


@conversion("Resize", "Upsample")
def resize(node: Node, x: Tensor, *_: Tensor | None) -> None:
    """Resizing. Before version 11 there are no coordinate modes: it is asymmetric."""
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    node.require(
        _places(node) != "tf_crop_and_resize", "the coordinates must not be cropped"
    )
    node.require(node.get("antialias", 0) == 0, "antialias must be 0")
    node.require(policy == "stretch", "the aspect ratio must not be kept")
    if node.refusals:
        return
    axes, how = _axes(node, x), _how(node)
    found = enumerate(resizing.weights(axis, how) for axis in axes)
    matrices = {n: m for n, m in found if not resizing.is_identity(m)}
    name = resizing.operation(axes, how, matrices)
    if name:
        node.emit(name, x, **resizing.settings(name, axes, how))
        return
    for place, matrix in matrices.items():
        x = _multiplied(node, x, matrix, place)
    node.emit("copy", x)


def _how(node: Node) -> Resizing:
    is_old = node.version < 11
    return Resizing(
        _places(node),
        node.get("mode", "nearest"),
        "floor" if is_old else node.get("nearest_mode", "round_prefer_floor"),
        node.get("cubic_coeff_a", -0.75),
        bool(node.get("exclude_outside", 0)),
    )


def _places(node: Node) -> str:
    if node.version < 11:
        return "asymmetric"
    return node.get("coordinate_transformation_mode", "half_pixel")


def _axes(node: Node, x: Tensor) -> list[Axis]:
    """All axes, with the scales of the file, or the ratios if it gives extents."""
    operand = node.operand(1 if node.version < 11 else 2)
    value = node.get("scales", None) if operand is None else constant(operand)
    pairs = list(zip(x.shape, node.result.shape, strict=True))
    scales = [made / given for given, made in pairs]
    if value is not None and np.size(value):
        along = positive(node.get("axes", range(x.rank)), x.rank)
        for axis, scale in zip(along, np.ravel(value).tolist(), strict=True):
            scales[axis] = scale
    return [Axis(*pair, scale) for pair, scale in zip(pairs, scales, strict=True)]


def _multiplied(node: Node, x: Tensor, weights: Array, axis: int) -> Tensor:
    """The product of a matrix and an axis."""
    made, given = weights.shape
    if (weights.max(1) == 1).all():
        index = node.literal(weights.argmax(1), np.int64)
        shape = [made if a == axis else n for a, n in enumerate(x.shape)]
        return node.step("gather", x, index, to=shape, axis=axis)
    count = max(int(n) for n in np.count_nonzero(weights, 1))
    # The elements that are not zero come first.
    columns = np.argsort(weights == 0, axis=1, kind="stable")[:, :count]
    taps = np.take_along_axis(weights, columns, 1)
    matrix = node.step(
        "interpolation",
        node.literal(columns[:, np.newaxis], np.int64),
        node.positions(given, 1, 3),
        to=[made, given],
        dtype=np.float32,
        shape=[made, 1, count],
        weights=taps.ravel().tolist(),
    )
    order = moved_last(axis, x.rank)
    rows = node.transposed(x, order)
    wide = node.of_rank(matrix, x.rank)
    shape = [*rows.shape[:-1], made]
    product = node.step("matmul", rows, wide, to=shape, transposeB=True)
    return node.transposed(product, np.argsort(order).tolist())


# ---- Grids ----


@conversion("GridSample")
def grid_sample(node: Node, x: Tensor, grid: Tensor) -> None:
    """Samples of images at the points of a grid from -1 to 1."""
    mode = node.get("mode", "linear").removeprefix("bi")
    node.require(
        mode != "cubic" or node.get("padding_mode", "zeros") == "zeros",
        "cubic samples must have zeros around the image",
    )
    node.require(x.rank == 4, "it must have two spatial axes")
    batch, channels, *extents = x.shape
    count = grid.shape[1] * grid.shape[2]
    points = node.reshaped(grid, [batch, count, 2])
    # The last coordinate comes first.
    rows, columns = (
        _at_points(node, points, 1 - place, extent, f"{mode}_weights")
        for place, extent in enumerate(extents)
    )
    flat = node.reshaped(x, [batch, channels * extents[0], extents[1]])
    shape = [batch, channels * extents[0], count]
    across = node.step("matmul", flat, columns, to=shape, transposeB=True)
    parts = node.reshaped(across, [batch, channels, extents[0], count])
    made = node.step("weighted", parts, rows, to=[batch, channels, count])
    node.emit("reshape", made, shape=list(node.result.shape))


def _at_points(
    node: Node, points: Tensor, place: int, extent: int, name: str
) -> Tensor:
    """The weights of the positions along an axis, a row for each point."""
    shape = [*points.shape[:2], 1]
    given = node.step(
        "slice", points, to=shape, axes=[2], begin=[place], end=[place + 1]
    )
    last = extent - 1.0
    ends = (0.0, last) if node.get("align_corners", 0) else (-0.5, last + 0.5)
    low, high = ends
    made = node.step("along_axis", given, to=shape, low=low, high=high)
    outside = node.get("padding_mode", "zeros")
    if outside == "reflection":
        node.require(high > low, "an axis of extent 1 has no reflection")
        made = node.step("reflected", made, to=shape, low=low, high=high)
    if outside != "zeros":
        bounds = (node.literal(0.0), node.literal(last))
        made = node.step("clamp", made, *bounds, to=shape)
    positions = node.positions(extent, 2, 3)
    return node.step(name, made, positions, to=[*points.shape[:2], extent])


@conversion("AffineGrid")
def affine_grid(node: Node, theta: Tensor, size: Tensor) -> None:
    """The points of a regular grid after an affine map."""
    node.require(theta.shape[1] == 2, "it must have two spatial axes")
    height, width = node.result.shape[1:3]
    is_aligned = node.get("align_corners", 0)
    is_clear = min(height, width) > 1 or not is_aligned
    node.require(is_clear, "the corners of an axis of extent 1 cannot be aligned")
    steps = [2 / max(n - 1, 1) if is_aligned else 2 / n for n in (height, width)]
    begins = [-1.0 if is_aligned else step / 2 - 1.0 for step in steps]
    node.emit(
        "affine_grid",
        *(theta, node.positions(height, 2, 5), node.positions(width, 3, 5)),
        begins=begins,
        steps=steps,
    )
