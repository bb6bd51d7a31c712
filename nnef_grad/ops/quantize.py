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
    check_fits("x", x, {"min": min, "max": max})
    return _quantized(x, bits)


@shape("zero_point_linear_quantize")
def zero_point_shape(
    x: Shape, zero_point: Shape, scale: Shape, bits: int, **attributes: Any
) -> Shape:
    """The shape of x, to which zero point and scale are broadcast."""
    check_fits("x", x, {"zero_point": zero_point, "scale": scale})
    return _quantized(x, bits)


@shape("logarithmic_quantize")
def logarithmic_shape(x: Shape, max: Shape, bits: int) -> Shape:
    """The shape of x, to which the maximum is broadcast."""
    check_fits("x", x, {"max": max})
    return _quantized(x, bits)


def _quantized(x: Shape, bits: int) -> Shape:
    require(bits > 0, f"'bits' must be positive, but is {bits}")
    return x
