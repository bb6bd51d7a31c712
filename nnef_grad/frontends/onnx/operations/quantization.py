"""Quantization. Codes are numbers of the graph, so that gradients go straight through rounding,
where nothing is cut off. An operation on codes is that on the numbers that they mean, whose
result is made codes again.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.frontends.expansions.products import matmul
from nnef_grad.frontends.onnx.node import Node, onnx_op
from nnef_grad.frontends.onnx.operations.fused import (
    DOMAIN,
    attention_of,
    microsoft,
    sum_of,
)
from nnef_grad.frontends.values import is_known, shape_of
from nnef_grad.graph.extents import Dimension

_BLOCKS = "block scales are not supported"
_STRAIGHT = "gradients go straight through the rounding of quantized numbers"


@onnx_op("QuantizeLinear")
def _quantize(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    """The nearest code, half ways to the even one, as torch.fake_quantize: the gradient is
    that of x / scale, and zero beyond the first and the last code.
    """
    is_given = zero is not None or not node.get("output_dtype", 0)
    node.require(is_given, "codes of a data type need a zero point of it")
    node.require(not node.get("block_size", 0), _BLOCKS)
    return _quantized(node, x, scale, zero)


def _quantized(node: Node, x: Any, scale: Any, zero: Any) -> Any:
    offset, x = _codes(node, zero), node.scalars(x)
    kind = np.iinfo(offset.dtype)
    level = node("div", x, _along_axis(node, scale, x), hint="level")
    # One beyond all codes, lest infinity has no nearest number.
    ends = kind.min - float(offset.max()) - 1, kind.max - float(offset.min()) + 1
    rounded = _rounded(node, node("clamp", level, *ends, hint="near"))
    if offset.any():
        moved = _along_axis(node, offset.astype(float), x)
        rounded = node("add", rounded, moved, hint="moved")
    return node.expand(
        "saturated", rounded, first=float(kind.min), last=float(kind.max)
    )


def _rounded(node: Node, level: Any, mode: str = "ROUND") -> Any:
    """The nearest whole number, or the next one, through which gradients go straight."""
    nearest = f"{node.hint}_nearest"
    if mode == "ROUND":
        rounded = node.reading.library("round_even", [level], {}, nearest, node.span)
    else:
        rounded = node(mode.lower(), level, hint="nearest")
    if is_known(rounded):
        return rounded
    node.warn(_STRAIGHT, is_repeated=False)
    step = node("sub", rounded, level, hint="step")
    return node("add", level, node.reading.emitter.stop(step), hint="rounded")


# Of QONNX, which exporters of Brevitas, QKeras and FINN write.
_OF_BITS = ("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")


@onnx_op(*(f"{domain}.Quant" for domain in _OF_BITS))
def _quantized_to_bits(node: Node, x: Any, scale: Any, zero: Any, bits: Any) -> Any:
    """Numbers as codes of so many bits mean them, as in quantization-aware training."""
    width = float(np.asarray(node.known(bits, "its bit width")).item())
    is_signed, narrow = bool(node.get("signed", 1)), node.get("narrow", 0)
    mode = str(node.get("rounding_mode", "ROUND")).upper()
    is_there = mode in ("ROUND", "CEIL", "FLOOR")
    node.require(is_there, f"the rounding mode {mode} is not supported")
    last = 2.0 ** (width - is_signed) - 1.0 - (0 if is_signed else narrow)
    first = narrow - 2.0 ** (width - 1.0) if is_signed else 0.0
    level = node("div", *node.aligned(node.scalars(x), scale), hint="level")
    is_moved = not is_known(zero) or np.any(zero)
    if is_moved:
        level = node("add", *node.aligned(level, zero), hint="moved")
    # What is rounded to the first or the last code has a gradient, as in training.
    near = node("clamp", level, first - 1.0, last + 1.0, hint="near")
    code = node.expand("saturated", _rounded(node, near, mode), first=first, last=last)
    if is_moved:
        code = node("sub", *node.aligned(code, zero), hint="centered")
    return node("mul", *node.aligned(code, scale))


@onnx_op("DynamicQuantizeLinear")
def _quantize_by_range(node: Node, x: Any) -> list[Any]:
    """Codes of bytes for all numbers from the least to the greatest, and zero; the scale, and
    the code of zero. These two have no gradients.
    """
    axes = list(range(len(shape_of(x))))
    own = node.reading.emitter.stop(x) if not is_known(x) else x
    ends = (node(n, own, axes=axes, hint=n[:3]) for n in ("min_reduce", "max_reduce"))
    least, greatest = (node("squeeze", end, axes=axes) for end in ends)
    scale, zero = node.expand("range_of_bytes", least, greatest)
    level = node("div", x, scale, hint="level")
    moved = node("add", _rounded(node, level), zero, hint="moved")
    return [node.expand("saturated", moved, first=0.0, last=255.0), scale, zero]


@onnx_op("DequantizeLinear")
def _dequantize(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    """(x - zero) * scale. Of constant codes it is a variable, which can be trained."""
    node.require(not node.get("block_size", 0), _BLOCKS)
    return _meant(node, x, scale, zero, node.proto.output[0])


def _meant(
    node: Node, x: Any, scale: Any, zero: Any, name: str, axis: int | None = None
) -> Any:
    """The numbers that codes mean; of constant codes, a variable that has a name in the file."""
    if is_known(x):
        offset = _codes(node, zero)
        factor = _along_axis(node, node.known(scale, "its scale"), x, axis)
        centered = np.asarray(x, np.float64) - _along_axis(node, offset, x, axis)
        single = np.asarray(centered * np.asarray(factor), np.float32)
        if not single.ndim:
            return single
        return node.reading.variable(name, single)
    x = _centered(node, x, zero, axis)
    return node("mul", x, _along_axis(node, scale, x, axis))


def _centered(node: Node, x: Any, zero: Any, axis: int | None = None) -> Any:
    """Codes without their zero point."""
    x = node.scalars(x)
    if zero is None or (is_known(zero) and not np.any(zero)):
        return x
    offset = np.asarray(zero, np.float64) if is_known(zero) else node.scalars(zero)
    return node("sub", x, _along_axis(node, offset, x, axis), hint="centered")


def _codes(node: Node, zero: Any) -> Array:
    """The zero point, whose data type is that of codes."""
    if zero is None:
        return np.zeros((), np.uint8)
    array = np.asarray(node.known(zero, "its zero point"))
    message = f"codes of type {array.dtype} are not supported"
    node.require(array.dtype.kind in "iu", message)
    return array


def _along_axis(node: Node, values: Any, x: Any, axis: int | None = None) -> Any:
    """A number for each element along the axis, aligned with a tensor."""
    if not shape_of(values):
        return values
    shape: list[Dimension] = [1] * len(shape_of(x))
    if prod(shape_of(values)) != 1:
        along = node.along(1, x) if axis is None else axis
        shape[along] = shape_of(values)[0]
    return node.reshaped(values, shape)


# ---- Operations on codes ----


def _operand(node: Node, place: int, axis: int | None = None) -> Any:
    """The numbers of an operand, which is followed by its scale and its zero point."""
    codes, scale, zero = (node.operand(place + i) for i in range(3))
    return _meant(node, codes, scale, zero, node.proto.input[place], axis)


def _result(node: Node, y: Any, place: int) -> Any:
    """The codes of a result, whose scale and zero point are two operands."""
    return _quantized(node, y, node.operand(place), node.operand(place + 1))


def _product_of_scales(node: Node) -> Any:
    """The scale of a bias: the product of those of two operands before it."""
    scales = (node.known(node.operand(place), "a scale") for place in (1, 4))
    return np.multiply(*scales)


@onnx_op("QLinearMatMul")
def _product_of_codes(node: Node, *_: Any) -> Any:
    last = len(shape_of(node.operand(3))) - 1
    y = matmul(node, _operand(node, 0), _operand(node, 3, last))
    return _result(node, y, 6)


@onnx_op("QLinearConv")
def _convolution_of_codes(node: Node, x: Any, *_: Any) -> Any:
    w, bias = _operand(node, 3, 0), node.operand(8)
    if bias is not None:
        factor = _product_of_scales(node)
        whole = np.asarray(np.asarray(bias) * factor, np.float32)
        bias = node.reading.variable(node.proto.input[8], whole)
    return _result(node, node.other("Conv", _operand(node, 0), w, bias), 6)


@microsoft("QGemm")
def _gemm_of_codes(node: Node, a: Any, *_: Any) -> Any:
    columns = 0 if node.get("transB", 0) else 1
    product = node.other("Gemm", _operand(node, 0), _operand(node, 3, columns))
    if (bias := node.operand(6)) is not None:
        factor = node.get("alpha", 1.0) * _product_of_scales(node)
        whole = np.asarray(np.asarray(bias) * factor, np.float32)
        own = node.reading.variable(node.proto.input[6], whole)
        product = node("add", *node.aligned(product, own), hint="sum")
    return product if node.operand(7) is None else _result(node, product, 7)


_OF_TWO = {"QLinearAdd": "add", "QLinearMul": "mul"}


@microsoft(*_OF_TWO)
def _of_two(node: Node, *_: Any) -> Any:
    name = _OF_TWO[node.proto.op_type]
    operands = node.aligned(_operand(node, 0), _operand(node, 3))
    return _result(node, node(name, *operands), 6)


_OF_ONE = (
    "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearLeakyRelu",
    "QLinearSigmoid", "QLinearSoftmax",
)  # fmt: skip


@microsoft(*_OF_ONE)
def _of_one(node: Node, *_: Any) -> Any:
    kind = node.proto.op_type.removeprefix("QLinear")
    node.require(not node.get("channels_last", 0), "channels_last must be 0")
    if kind == "Softmax" and node.get("opset", 13) < 13:
        last = node.along(1, node.operand(0)) == len(shape_of(node.operand(0))) - 1
        node.require(last, "its axis must be the last one")
    return _result(node, node.other(kind, _operand(node, 0)), 3)


@microsoft("QLinearConcat")
def _joined_codes(node: Node, *operands: Any) -> Any:
    parts = [_operand(node, place) for place in range(2, len(operands), 3)]
    return _result(node, node.other("Concat", *parts), 0)


@microsoft("QEmbedLayerNormalization")
def _embedding_of_codes(node: Node, ids: Any, segments: Any, *codes: Any) -> list[Any]:
    tables = [
        None if x is None else _meant(node, x, *_settings(node, place))
        for place, x in enumerate(codes[:5])
    ]
    operands = ids, segments, *tables, node.operand(7)
    found: list[Any] = node.other(f"{DOMAIN}.EmbedLayerNormalization", *operands)
    return found


def _settings(node: Node, place: int) -> tuple[Any, Any, str]:
    """Scale, zero point and name of a table, which are in three rows."""
    scale, zero = node.operand(8 + place), node.operand(13 + place)
    return scale, zero, node.proto.input[2 + place]


# ---- Products of whole numbers ----


@onnx_op("MatMulInteger")
def _whole_product(node: Node, a: Any, b: Any, *_: Any) -> Any:
    last = len(shape_of(b)) - 1
    row = len(shape_of(a)) - 2
    x = _centered(node, a, node.operand(2), row)
    return matmul(node, x, _centered(node, b, node.operand(3), last))


@onnx_op("ConvInteger")
def _whole_convolution(node: Node, x: Any, w: Any, *_: Any) -> Any:
    operands = (
        _centered(node, x, node.operand(2)),
        _centered(node, w, node.operand(3), 0),
    )
    return node.other("Conv", *operands)


@microsoft("MatMulIntegerToFloat")
def _scaled_product(node: Node, a: Any, b: Any, *scales: Any) -> Any:
    zeros = node.operand(4), node.operand(5)
    x = _meant(node, a, scales[0], zeros[0], node.proto.input[0])
    y = _meant(node, b, scales[1], zeros[1], node.proto.input[1], len(shape_of(b)) - 1)
    return sum_of(node, matmul(node, x, y), node.operand(6))


@microsoft("DynamicQuantizeMatMul")
def _product_by_range(node: Node, x: Any, codes: Any, *_: Any) -> Any:
    y, scale, zero = _quantize_by_range(node, x)
    x = node("mul", node("sub", y, zero, hint="centered"), scale, hint="meant")
    settings = node.operand(2), node.operand(3), node.proto.input[1]
    weight = _meant(node, codes, *settings, len(shape_of(codes)) - 1)
    return sum_of(node, matmul(node, x, weight), node.operand(4))


@microsoft("QAttention")
def _attention_of_codes(node: Node, x: Any, w: Any, bias: Any, *_: Any) -> Any:
    node.require(node.operand(8) is None, "a cache of earlier steps is not supported")
    x = _meant(node, x, node.operand(3), node.operand(6), node.proto.input[0])
    settings = node.operand(4), node.operand(7), node.proto.input[1]
    weight = _meant(node, w, *settings, 1)
    product = matmul(node, x, weight)
    return attention_of(node, sum_of(node, product, bias), node.operand(5))


@microsoft("DynamicQuantizeLSTM")
def _lstm_of_codes(node: Node, x: Any, w: Any, r: Any, *_: Any) -> Any:
    """An LSTM whose weights are codes, of other shapes than in the standard. What is multiplied
    with them is not made codes here.
    """
    node.warn("what is multiplied with the weights is not rounded", is_repeated=False)
    codes = {1: (w, 8), 2: (r, 10)}
    weights = [
        node.transposed(_meant_columns(node, own, first, place), [0, 2, 1])
        for place, (own, first) in codes.items()
    ]
    return node.other("LSTM", x, *weights, *(node.operand(i) for i in range(3, 8)))


def _meant_columns(node: Node, codes: Any, first: int, place: int) -> Any:
    """Weights of codes, [directions, inputs, columns], with scales for directions or columns."""
    scale, zero = (
        np.asarray(node.known(node.operand(first + i), "its scale")) for i in (0, 1)
    )
    factor, origin = (
        x.reshape(len(x), 1, -1) if x.ndim else x for x in (scale, zero.astype(float))
    )
    node.require(is_known(codes), "its weights must be known")
    single = ((np.asarray(codes, float) - origin) * factor).astype(np.float32)
    return node.reading.variable(node.proto.input[place], single)
