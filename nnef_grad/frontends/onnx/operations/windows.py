"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from nnef_grad.frontends.onnx.node import Node, onnx_op
from nnef_grad.frontends.onnx.operations.shapes import sides
from nnef_grad.frontends.tract.operations import windows as expansion
from nnef_grad.frontends.values import shape_of

Pair = tuple[int, int]


class Axis(NamedTuple):
    """A window of `size` elements along one spatial axis, with the extent of the operand,
    and the padding before and after as in the file.
    """

    given: int
    size: int
    stride: int
    dilation: int
    pads: Pair

    def reach(self, windows: int) -> int:
        """The number of positions covered by so many windows."""
        return (windows - 1) * self.stride + (self.size - 1) * self.dilation + 1


def _axes(node: Node, x: Any, size: Sequence[int]) -> list[Axis]:
    ones = [1] * len(size)
    settings = [node.get(name, ones) for name in ("strides", "dilations")]
    pads = sides(node.get("pads", [0, 0] * len(ones)))
    columns = (shape_of(x)[2:], size, *settings, pads)
    return list(map(Axis._make, zip(*columns, strict=True)))


def _padding(node: Node, axes: list[Axis]) -> list[Pair]:
    """The padding as in the file, or computed for automatic padding."""
    auto_pad = node.get("auto_pad", "NOTSET")
    if auto_pad == "VALID":
        return [(0, 0)] * len(axes)
    if not auto_pad.startswith("SAME"):
        return [axis.pads for axis in axes]
    totals = [max(0, a.reach(-(-a.given // a.stride)) - a.given) for a in axes]
    return [_halves(total, auto_pad == "SAME_LOWER") for total in totals]


def _halves(total: int, is_lower: bool) -> Pair:
    """Two halves; an odd element goes to the end, or to the beginning."""
    less, more = total // 2, total - total // 2
    return (more, less) if is_lower else (less, more)


@onnx_op("Conv")
def conv(node: Node, x: Any, w: Any, b: Any = None) -> Any:
    """A convolution with groups."""
    axes = _axes(node, x, shape_of(w)[2:])
    return node(
        "conv", x, w, _bias(node, b), **_settings(node, axes, _padding(node, axes))
    )


@onnx_op("ConvTranspose")
def conv_transpose(node: Node, x: Any, w: Any, b: Any = None) -> Any:
    """A transposed convolution; the padding of the output makes it longer."""
    axes = _axes(node, x, shape_of(w)[2:])
    zeros = [0] * len(axes)
    auto_pad, more = node.get("auto_pad", "NOTSET"), node.get("output_padding", zeros)
    shape = node.get("output_shape", None)
    made: list[int] = []
    padding: list[Pair] = []
    for place, axis in enumerate(axes):
        whole = axis.reach(axis.given) + more[place]
        is_same = auto_pad.startswith("SAME")
        if shape is not None or is_same:
            extent = (
                axis.given * axis.stride
                if shape is None
                else shape[-len(axes) :][place]
            )
            total = axis.reach(axis.given) - extent
            padding.append(_halves(total, auto_pad != "SAME_UPPER"))
        else:
            extent = whole - sum(axis.pads)
            padding.append((axis.pads[0], axis.pads[1] - more[place]))
        made.append(extent)
    channels = shape_of(w)[1] * node.get("group", 1)
    return node(
        "deconv",
        *(x, w, _bias(node, b)),
        output_shape=[shape_of(x)[0], channels, *made],
        **_settings(node, axes, padding),
    )


def _bias(node: Node, b: Any) -> Any:
    return 0.0 if b is None else node.row(b)


def _settings(node: Node, axes: list[Axis], padding: list[Pair]) -> dict[str, Any]:
    return {
        "stride": [axis.stride for axis in axes],
        "dilation": [axis.dilation for axis in axes],
        "padding": padding,
        "groups": node.get("group", 1),
    }


_POOLS = {"AveragePool": "avg_pool", "LpPool": "lp_pool", "MaxPool": "max_pool"}


@onnx_op(*_POOLS)
def pool(node: Node, x: Any) -> Any:
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
    if is_apart:
        around = [(0, 0), (0, 0), *(axis.pads for axis in axes)]
        x = node("pad", x, hint="padded", padding=around, value=0.0)
    settings: dict[str, Any] = {
        "size": [1, 1, *(axis.size for axis in axes)],
        "stride": [1, 1, *(axis.stride for axis in axes)],
        "dilation": [1, 1, *(axis.dilation for axis in axes)],
        "padding": [(0, 0), (0, 0), *padding],
        "border": "constant" if counts and not rounds_up else "ignore",
    }
    if node.kind == "LpPool":
        settings = {**settings, "border": "constant"}
        return node.expand("lp_pool", x, p=float(node.get("p", 2)), **settings)
    return node(_POOLS[node.kind], x, **settings)


def _rounded_up(axis: Axis, is_apart: bool) -> Pair:
    """The padding for a size that is rounded up: more at the end, and nothing else if
    the pads of the file became a `pad`.
    """
    before, after = axis.pads
    padded = before + axis.given + after
    room = padded - axis.dilation * (axis.size - 1) - 1
    made = -(-room // axis.stride) + 1
    # A last window that begins after the end is dropped.
    made -= (made - 1) * axis.stride >= axis.given + before
    more = max(0, axis.reach(made) - padded)
    return (0, more) if is_apart else (before, after + more)


@onnx_op("Col2Im")
def sum_of_blocks(node: Node, x: Any, *_: Any) -> Any:
    """Sums of blocks at their places."""
    image, block = node.items("image_shape", 1), node.items("block_shape", 2)
    ones = [1] * len(block)
    return expansion.sum_of_blocks(
        node,
        *(x, image, block),
        padding=sides(node.get("pads", [0, 0] * len(block))),
        stride=node.get("strides", ones),
        dilation=node.get("dilations", ones),
    )
