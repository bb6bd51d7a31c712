"""Quantization: the result has the shape of the operand."""

from __future__ import annotations

from typing import Any

from nnef_grad.graph.ir import Shape
from nnef_grad.ops.elementwise import check_fits
from nnef_grad.ops.registry import require, shape


@shape("min_max_linear_quantize", "linear_quantize")
def min_max_shape(
    x: Shape, min: Shape, max: Shape, bits: int, **attributes: Any
) -> Shape:
    """The shape of x, to which the bounds are broadcast."""
    return _quantized(x, bits, min=min, max=max)


@shape("zero_point_linear_quantize")
def zero_point_shape(
    x: Shape, zero_point: Shape, scale: Shape, bits: int, **attributes: Any
) -> Shape:
    """The shape of x, to which zero point and scale are broadcast."""
    return _quantized(x, bits, zero_point=zero_point, scale=scale)


@shape("logarithmic_quantize")
def logarithmic_shape(x: Shape, max: Shape, bits: int) -> Shape:
    """The shape of x, to which the maximum is broadcast."""
    return _quantized(x, bits, max=max)


def _quantized(x: Shape, bits: int, **operands: Shape) -> Shape:
    check_fits("x", x, operands)
    require(bits > 0, f"'bits' must be positive, but is {bits}")
    return x
