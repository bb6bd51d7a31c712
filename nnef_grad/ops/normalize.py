"""Normalization and quantization: the result has the shape of the first operand."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from nnef_grad.graph.ir import Operation, Shape
from nnef_grad.ops.batching import along_axes, batching_rule, over_windows
from nnef_grad.ops.costs import cost_rule, each_element, elements
from nnef_grad.ops.elementwise import check_fits
from nnef_grad.ops.examples import Use, beside_axes, beside_windows, place_rule
from nnef_grad.ops.ranges import bounded, range_rule
from nnef_grad.ops.registry import require, shape
from nnef_grad.ops.shape import check_axes, check_length
from nnef_grad.ops.traits import LOCAL_NORMALIZATION

_NORMS = ("softmax", "l1_normalization", "l2_normalization")


@shape(*_NORMS)
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


def _fitted_shape(
    names: tuple[str, ...], /, *operands: Shape, bits: int = 1, **attributes: Any
) -> Shape:
    """The shape of the first operand, to which the others of these are broadcast."""
    first, *others = zip(names, operands, strict=True)
    check_fits(*first, dict(others))
    require(bits > 0, f"'bits' must be positive, but is {bits}")
    return operands[0]


for _operation, *_operands in (
    ("batch_normalization", "input", "mean", "variance", "offset", "scale"),
    ("min_max_linear_quantize", "x", "min", "max"),
    ("linear_quantize", "x", "min", "max"),
    ("zero_point_linear_quantize", "x", "zero_point", "scale"),
    ("logarithmic_quantize", "x", "max"),
):
    _fitted = partial(_fitted_shape, tuple(_operands))
    _fitted.__module__ = __name__
    shape(_operation)(_fitted)


# ---- Batching, linearity, ranges, costs ----

batching_rule(*_NORMS)(along_axes)
batching_rule(*LOCAL_NORMALIZATION)(over_windows)
place_rule(*_NORMS)(beside_axes)
place_rule(*LOCAL_NORMALIZATION)(beside_windows)
place_rule("batch_normalization")(Use.aligned)
range_rule("softmax")(bounded(0.0, 1.0))
cost_rule(*_NORMS)(each_element)


@cost_rule(*(LOCAL_NORMALIZATION - {"local_contrast_normalization"}))
def _around(op: Operation) -> Any:
    """A window around each element."""
    return elements(op) * prod(op.attributes["size"])


cost_rule("local_contrast_normalization")(lambda op: 2 * _around(op))
