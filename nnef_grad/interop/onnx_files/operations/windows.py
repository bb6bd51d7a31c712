"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

import numpy as np

from nnef_grad.interop.onnx_files.node import Node, Tensor, conversion
from nnef_grad.interop.onnx_files.operations.shapes import sides

Pair = tuple[int, int]


class Axis(NamedTuple):
    """A window of `size` elements along one spatial axis, with the extents of the
    operand and of the result, and the padding before and after as in the file.
    """

    given: int
    made: int
    size: int
    stride: int
    dilation: int
    pads: Pair

    def reach(self, windows: int) -> int:
        """The number of positions covered by so many windows."""
        return (windows - 1) * self.stride + (self.size - 1) * self.dilation + 1


def _axes(node: Node, x: Tensor, size: Iterable[int]) -> list[Axis]:
    ones = [1] * (x.rank - 2)
    settings = [node.get(name, ones) for name in ("strides", "dilations")]
    pads = sides(node.get("pads", [0, 0] * len(ones)))
    extents = (x.shape[2:], node.result.shape[2:], size)
    return list(map(Axis._make, zip(*extents, *settings, pads, strict=True)))


def _padding(node: Node, axes: list[Axis]) -> list[Pair]:
    """The padding as in the file, or computed for automatic padding."""
    auto_pad = node.get("auto_pad", "NOTSET")
    if not auto_pad.startswith("SAME"):
        return [axis.pads for axis in axes]
    totals = [max(0, axis.reach(axis.made) - axis.given) for axis in axes]
    return [_halves(total, auto_pad == "SAME_LOWER") for total in totals]


def _halves(total: int, is_lower: bool) -> Pair:
    """Two halves; an odd element goes to the end, or to the beginning."""
    less, more = total // 2, total - total // 2
    return (more, less) if is_lower else (less, more)


def _transposed_padding(node: Node, axes: list[Axis]) -> list[Pair]:
    """The difference between the extents that the windows cover and the result, which
    accounts for the padding of the output.
    """
    auto_pad = node.get("auto_pad", "NOTSET")
    is_halved = node.get("output_shape", None) or auto_pad.startswith("SAME")
    padding = []
    for axis in axes:
        total, (before, _) = axis.reach(axis.given) - axis.made, axis.pads
        halves = _halves(total, auto_pad != "SAME_UPPER")
        padding.append(halves if is_halved else (before, total - before))
    return padding


@conversion("Conv", "ConvTranspose")
def conv(node: Node, x: Tensor, w: Tensor, b: Tensor | None = None) -> None:
    """A convolution, or a transposed one, with groups."""
    axes, is_transposed = _axes(node, x, w.shape[2:]), node.kind == "ConvTranspose"
    padding = _transposed_padding if is_transposed else _padding
    node.emit(
        "deconv" if is_transposed else "conv",
        *(x, w, None if b is None else node.row(b)),
        stride=[axis.stride for axis in axes],
        dilation=[axis.dilation for axis in axes],
        padding=padding(node, axes),
        groups=node.get("group", 1),
    )


_POOLS = {"AveragePool": "avg_pool", "LpPool": "lp_pool", "MaxPool": "max_pool"}


@conversion(*_POOLS)
def pool(node: Node, x: Tensor) -> None:
    """Pooling. If a size is rounded up, padding that counts in averages becomes a
    `pad`: positions beyond it in the last windows do not count.
    """
    node.require(node.get("storage_order", 0) == 0, "storage_order must be 0")
    node.require(not node.uses(1), "the indices must not be used")
    axes = _axes(node, x, node.get("kernel_shape", []))
    rounds_up, counts = node.get("ceil_mode", 0), node.get("count_include_pad", 0)
    is_apart = bool(rounds_up and counts and any(node.get("pads", [])))
    padding = _padding(node, axes)
    if rounds_up and not node.get("auto_pad", "").startswith("SAME"):
        padding = [_rounded_up(axis, is_apart) for axis in axes]
    node.emit(
        _POOLS[node.kind],
        _zeros_around(node, x, axes) if is_apart else x,
        size=[1, 1, *(axis.size for axis in axes)],
        stride=[1, 1, *(axis.stride for axis in axes)],
        dilation=[1, 1, *(axis.dilation for axis in axes)],
        padding=[(0, 0), (0, 0), *padding],
        border="constant" if counts and not rounds_up else "ignore",
        p=float(node.get("p", 2)) if node.kind == "LpPool" else None,
    )


def _rounded_up(axis: Axis, is_apart: bool) -> Pair:
    """The padding for a size that is rounded up: more at the end, and nothing else if
    the pads of the file became a `pad`.
    """
    before, after = axis.pads
    # A last window that begins after the end is dropped.
    is_none = (axis.made - 1) * axis.stride >= axis.given + before
    more = axis.reach(axis.made - is_none) - (before + axis.given + after)
    return (0, max(0, more)) if is_apart else (before, after + max(0, more))


def _zeros_around(node: Node, x: Tensor, axes: list[Axis]) -> Tensor:
    padding = [(0, 0), (0, 0), *(axis.pads for axis in axes)]
    extents = zip(x.shape, padding, strict=True)
    made = node.tensor([n + sum(pair) for n, pair in extents], x.dtype)
    node.emit("pad", x, results=(made,), padding=padding, border="constant", value=0.0)
    return made


@conversion("Col2Im")
def sum_of_blocks(node: Node, x: Tensor, *_: Tensor) -> None:
    """Sums of blocks at their places: each element of a block has a filter of its own,
    with a one at its place.
    """
    image, block = node.items("image_shape", 1), node.items("block_shape", 2)
    ones = [1] * len(block)
    strides, dilations = (node.get(name, ones) for name in ("strides", "dilations"))
    pads = sides(node.get("pads", [0, 0] * len(block)))
    columns = zip(image, block, strides, dilations, pads, strict=True)
    counts = [
        (n + sum(pad) - dilation * (size - 1) - 1) // stride + 1
        for n, size, stride, dilation, pad in columns
    ]
    size, (batch, channels) = prod(block), node.result.shape[:2]
    filters = node.literal(np.eye(size).reshape(size, 1, *block), np.int64)
    made = node.step(
        "deconv",
        node.reshaped(x, [batch * channels, size, *counts]),
        filters,
        to=[batch * channels, 1, *image],
        stride=strides,
        dilation=dilations,
        padding=pads,
        output_shape=[batch * channels, 1, *image],
    )
    node.emit("reshape", made, shape=[batch, channels, *image])
