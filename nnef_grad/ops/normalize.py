"""Normalisation and quantisation: the result has the shape of the operand."""

from __future__ import annotations

from typing import Any

from nnef_grad.graph.ir import Shape
from nnef_grad.ops.elementwise import fits_into
from nnef_grad.ops.reduce import check_axes
from nnef_grad.ops.registry import require, shape
from nnef_grad.ops.shape import check_length
from nnef_grad.ops.traits import LOCAL_NORMALIZATION


def _check_operands(whole: str, shape: Shape, **operands: Shape) -> None:
    """Each further operand is broadcast to the one that is normalised."""
    for name, operand in operands.items():
        fits = fits_into(operand, shape)
        require(
            fits,
            f"'{name}' of shape {list(operand)} cannot be broadcast to '{whole}' of shape {list(shape)}",
        )


@shape("softmax")
def softmax_shape(x: Shape, axes: tuple[int, ...]) -> Shape:
    """The operand's shape."""
    check_axes(axes, len(x))
    return x


@shape("l1_normalization", "l2_normalization")
def norm_shape(input: Shape, axes: tuple[int, ...], **attributes: Any) -> Shape:
    """The operand's shape."""
    check_axes(axes, len(input))
    return input


@shape(*LOCAL_NORMALIZATION)
def local_shape(input: Shape, size: tuple[int, ...], **attributes: Any) -> Shape:
    """The operand's shape; the window has an extent for each dimension."""
    check_length("size", size, len(input))
    require(
        all(extent > 0 for extent in size),
        f"'size' must be positive, and is {list(size)}",
    )
    return input


@shape("batch_normalization")
def batch_normalization_shape(
    input: Shape,
    mean: Shape,
    variance: Shape,
    offset: Shape,
    scale: Shape,
    epsilon: float,
) -> Shape:
    """The shape of the input, to which the other operands are broadcast."""
    _check_operands(
        "input", input, mean=mean, variance=variance, offset=offset, scale=scale
    )
    return input


# ---- Quantisation ----


@shape("min_max_linear_quantize", "linear_quantize")
def min_max_shape(
    x: Shape, min: Shape, max: Shape, bits: int, **attributes: Any
) -> Shape:
    """The shape of x, to which the bounds are broadcast."""
    _check_operands("x", x, min=min, max=max)
    return _quantized(x, bits)


@shape("zero_point_linear_quantize")
def zero_point_shape(
    x: Shape, zero_point: Shape, scale: Shape, bits: int, **attributes: Any
) -> Shape:
    """The shape of x, to which zero point and scale are broadcast."""
    _check_operands("x", x, zero_point=zero_point, scale=scale)
    return _quantized(x, bits)


@shape("logarithmic_quantize")
def logarithmic_shape(x: Shape, max: Shape, bits: int) -> Shape:
    """The shape of x, to which the maximum is broadcast."""
    _check_operands("x", x, max=max)
    return _quantized(x, bits)


def _quantized(x: Shape, bits: int) -> Shape:
    require(bits > 0, f"'bits' must be positive, and is {bits}")
    return x
