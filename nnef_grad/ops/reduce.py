"""Reductions: the reduced axes stay, with extent 1. Normalization and quantization, by what
is reduced: the result has the shape of the first operand.
"""

from __future__ import annotations

from math import prod
from typing import Any

from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.ops.elementwise import check_fits
from nnef_grad.ops.registry import Emit, ShapeFunction, require, shape, vjp
from nnef_grad.ops.shape import check_axes, check_length, number
from nnef_grad.ops.traits import LOCAL_NORMALIZATION, REDUCTIONS


@shape(*REDUCTIONS)
def reduce_shape(input: Shape, axes: tuple[int, ...], **attributes: Any) -> Shape:
    """The reduced extents become 1."""
    check_axes(axes, len(input))
    reduced = set(axes)
    return tuple(1 if axis in reduced else n for axis, n in enumerate(input))


@shape("moments")
def moments_shape(input: Shape, axes: tuple[int, ...]) -> list[Shape]:
    """Mean and variance, each with the reduced extents 1."""
    return [reduce_shape(input, axes)] * 2


@vjp("sum_reduce", "mean_reduce")
def sum_reduce_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor]:
    """Each element receives the gradient of its sum, or its share of that of a mean."""
    is_mean = op.settings.get("normalize", True)
    return [_repeated(emit, op, _share(emit, op, dy) if is_mean else dy)]


@vjp("max_reduce", "min_reduce")
def extremum_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor]:
    """The elements that are the extremum share the gradient evenly."""
    (x,), (y,) = op.inputs, op.outputs
    if x.shape == y.shape:
        return [dy]
    mask = emit("eq", x, y, hint="mask")
    hits = emit("select", mask, 1.0, 0.0, hint="hits")
    # The axes along which there is anything to reduce, ascending.
    axes = [axis for axis, extent in enumerate(x.shape) if extent != y.shape[axis]]
    count = emit("sum_reduce", hits, axes=axes, hint="count")
    share = emit("div", dy, count, hint="share")
    return [emit("select", mask, share, 0.0)]


@vjp("moments")
def moments_vjp(
    emit: Emit, op: Operation, dmean: Tensor | None, dvariance: Tensor | None
) -> list[Tensor]:
    """dmean / n + dvariance * 2 / n * (x - mean)"""
    (x,), (mean, _) = op.inputs, op.outputs
    shares = [] if dmean is None else [_share(emit, op, dmean)]
    if dvariance is None:
        return [_repeated(emit, op, *shares)]
    # Half of n is exact in binary, unlike 2 / n.
    count = number(emit, _volume(op))
    half = emit("mul", count, 0.5) if isinstance(count, Tensor) else count / 2.0
    slope = emit("div", dvariance, half, hint="slope")
    deviation = emit("sub", x, mean, hint="deviation")
    term = emit("mul", deviation, slope, hint="term")
    return [emit("add", term, *shares) if shares else term]


def _volume(op: Operation) -> int:
    """How many elements are reduced to one."""
    return prod(op.inputs[0].shape) // prod(op.outputs[0].shape)


def _share(emit: Emit, op: Operation, dy: Tensor) -> Tensor:
    """The gradient of each of n elements, from that of their mean."""
    return emit("div", dy, number(emit, _volume(op)), hint="share")


def _repeated(emit: Emit, op: Operation, x: Tensor) -> Tensor:
    """A tensor of the result's shape, repeated along the reduced axes."""
    repeats = [n // m for n, m in zip(op.inputs[0].shape, x.shape, strict=True)]
    is_whole = {1}.issuperset(repeats)
    return x if is_whole else emit("tile", x, repeats=repeats, hint="repeated")


# ---- Normalization and quantization ----


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


def _fitted(*names: str) -> ShapeFunction:
    """The shape of the first operand, to which the others of these are broadcast."""

    def fitted_shape(*operands: Shape, bits: int = 1, **attributes: Any) -> Shape:
        first, *others = zip(names, operands, strict=True)
        check_fits(*first, dict(others))
        require(bits > 0, f"'bits' must be positive, but is {bits}")
        return operands[0]

    return fitted_shape


for _operation, *_operands in (
    ("batch_normalization", "input", "mean", "variance", "offset", "scale"),
    ("min_max_linear_quantize", "x", "min", "max"),
    ("linear_quantize", "x", "min", "max"),
    ("zero_point_linear_quantize", "x", "zero_point", "scale"),
    ("logarithmic_quantize", "x", "max"),
):
    shape(_operation)(_fitted(*_operands))
