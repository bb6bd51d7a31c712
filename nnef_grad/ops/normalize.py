"""Normalization: the result has the shape of the operand."""

from __future__ import annotations

from typing import Any

from nnef_grad.graph.ir import Shape
from nnef_grad.ops.axes import check_axes, check_length
from nnef_grad.ops.elementwise import check_fits
from nnef_grad.ops.registry import require, shape
from nnef_grad.ops.traits import LOCAL_NORMALIZATION


@shape("softmax", "l1_normalization", "l2_normalization")
def norm_shape(input: Shape, axes: tuple[int, ...], **attributes: Any) -> Shape:
    check_axes(axes, len(input))
    return input


@shape(*LOCAL_NORMALIZATION)
def local_shape(input: Shape, size: tuple[int, ...], **attributes: Any) -> Shape:
    """The window has an extent for each dimension."""
    check_length("size", size, len(input))
    message = f"'size' must be positive, but is {list(size)}"
    require(all(extent > 0 for extent in size), message)
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
    operands = {"mean": mean, "variance": variance, "offset": offset, "scale": scale}
    check_fits("input", input, operands)
    return input
