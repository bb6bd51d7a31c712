"""Quantization. Codes are numbers of the graph, so that the gradient of what lies between
QuantizeLinear and DequantizeLinear goes straight through rounding, where nothing is cut off.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.frontends.onnx.reading import Node, onnx_op
from nnef_grad.frontends.values import is_known, shape_of


@onnx_op("QuantizeLinear")
def _quantize(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    """The nearest code, half ways to the even one, as torch.fake_quantize: the gradient is
    that of x / scale, and zero beyond the first and the last code.
    """
    offset = _codes(node, zero)
    is_given = zero is not None or not node.get("output_dtype", 0)
    node.require(is_given, "codes of a data type need a zero point of it")
    kind, x = np.iinfo(offset.dtype), node.scalars(x)
    first, last = float(kind.min), float(kind.max)
    level = node("div", x, _along_axis(node, scale, x), hint="level")
    nearest = f"{node.hint}_nearest"
    rounded = node.reading.library("round_even", [level], {}, nearest, node.span)
    if not is_known(rounded):
        step = node("sub", rounded, level, hint="step")
        rounded = node("add", level, node.reading.emitter.stop(step), hint="rounded")
    if offset.any():
        moved = _along_axis(node, offset.astype(float), x)
        rounded = node("add", rounded, moved, hint="moved")
    return node.expand("saturated", rounded, first=first, last=last)


@onnx_op("DequantizeLinear")
def _dequantize(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    """(x - zero) * scale. Of constant codes it is a variable, which can be trained."""
    offset = _codes(node, zero)
    if is_known(x):
        factor = np.asarray(_along_axis(node, node.known(scale, "its scale"), x))
        centered = np.asarray(x, np.float64) - _along_axis(node, offset, x)
        single = (centered * factor).astype(np.float32)
        return node.reading.variable(node.hint, single) if single.ndim else single
    x = node.scalars(x)
    if offset.any():
        moved = _along_axis(node, offset.astype(float), x)
        x = node("sub", x, moved, hint="centered")
    return node("mul", x, _along_axis(node, scale, x))


def _codes(node: Node, zero: Any) -> Array:
    """The zero point, whose data type is that of codes."""
    node.require(not node.get("block_size", 0), "block scales are not supported")
    if zero is None:
        return np.zeros((), np.uint8)
    array = np.asarray(node.known(zero, "its zero point"))
    message = f"codes of type {array.dtype} are not supported"
    node.require(array.dtype.kind in "iu", message)
    return array


def _along_axis(node: Node, values: Any, x: Any) -> Any:
    """A number for each element along the axis, aligned with a tensor."""
    if not shape_of(values):
        return values
    shape = [1] * len(shape_of(x))
    if np.prod(shape_of(values)) != 1:
        shape[node.along(1, x)] = shape_of(values)[0]
    return node.reshaped(values, shape)
