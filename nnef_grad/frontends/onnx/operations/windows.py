"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnef_grad.frontends.expansions import windows
from nnef_grad.frontends.expansions.windows import Axis
from nnef_grad.frontends.onnx.operations.shapes import sides
from nnef_grad.frontends.onnx.reading import Node, onnx_op
from nnef_grad.frontends.values import shape_of


def _axes(node: Node, x: Any, size: Sequence[int]) -> list[Axis]:
    """Windows along spatial axes, with the padding of the file, or an automatic one."""
    ones = [1] * len(size)
    settings = [node.get(name, ones) for name in ("strides", "dilations")]
    pads = sides(node.get("pads", [0, 0] * len(ones)))
    if _auto_pad(node) == "VALID":
        pads = [(0, 0)] * len(ones)
    columns = (shape_of(x)[2:], size, *settings, *zip(*pads, strict=True))
    return list(map(Axis._make, zip(*columns, strict=True)))


def _auto_pad(node: Node) -> str:
    return node.get("auto_pad", "NOTSET")


def _with_halves(axis: Axis, total: int, is_lower: bool) -> Axis:
    """The axis with a half of the padding at each side; an odd element goes to the end, or
    to the beginning.
    """
    less, more = total // 2, total - total // 2
    before, after = (more, less) if is_lower else (less, more)
    return axis._replace(before=before, after=after)


def _same(node: Node, axes: list[Axis]) -> list[Axis]:
    """The axes with as much padding as keeps an extent, if it is automatic."""
    auto_pad = _auto_pad(node)
    if not auto_pad.startswith("SAME"):
        return axes
    totals = [max(0, a.reach(-(-a.given // a.stride)) - a.given) for a in axes]
    is_lower = auto_pad == "SAME_LOWER"
    return [_with_halves(a, n, is_lower) for a, n in zip(axes, totals, strict=True)]


@onnx_op("Conv")
def _conv(node: Node, x: Any, w: Any, b: Any = None) -> Any:
    axes = _same(node, _axes(node, x, shape_of(w)[2:]))
    return windows.conv(node, x, w, _bias(node, b), axes, node.get("group", 1))


@onnx_op("ConvTranspose")
def _conv_transpose(node: Node, x: Any, w: Any, b: Any = None) -> Any:
    """A transposed convolution; the padding of the output makes it longer."""
    axes = _axes(node, x, shape_of(w)[2:])
    more = node.get("output_padding", [0] * len(axes))
    shape: Any = node.get("output_shape", None)
    if shape is None and _auto_pad(node).startswith("SAME"):
        shape = [axis.given * axis.stride for axis in axes]
    if shape is None:
        axes = [axis.longer(n) for axis, n in zip(axes, more, strict=True)]
    else:
        is_lower = _auto_pad(node) != "SAME_UPPER"
        pairs = zip(axes, shape[-len(axes) :], strict=True)
        axes = [_with_halves(a, a.reach(a.given) - n, is_lower) for a, n in pairs]
    return windows.deconv(node, x, w, _bias(node, b), axes, node.get("group", 1))


def _bias(node: Node, b: Any) -> Any:
    return 0.0 if b is None else node.row(b)


@onnx_op("AveragePool", "LpPool", "MaxPool")
def _pool(node: Node, x: Any) -> Any:
    node.require(node.get("storage_order", 0) == 0, "storage_order must be 0")
    node.require(not node.uses(1), "the indices must not be used")
    axes = _same(node, _axes(node, x, node.get("kernel_shape", [])))
    is_same = _auto_pad(node).startswith("SAME")
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
    return node("pow", sums, 1.0 / p)


@onnx_op("Col2Im")
def _sum_of_blocks(node: Node, x: Any, *_: Any) -> Any:
    image, block = node.items("image_shape", 1), node.items("block_shape", 2)
    ones = [1] * len(block)
    return windows.sum_of_blocks(
        node,
        *(x, image, block),
        padding=sides(node.get("pads", [0, 0] * len(block))),
        stride=node.get("strides", ones),
        dilation=node.get("dilations", ones),
    )
