"""Reductions: the reduced axes stay, with extent 1."""

from __future__ import annotations

from math import prod
from typing import Any

from nnef_grad.graph.ir import Operation, Shape, Tensor, shape_of
from nnef_grad.ops.axes import check_axes
from nnef_grad.ops.registry import Emit, shape, vjp
from nnef_grad.ops.traits import REDUCTIONS

# ---- Shapes ----


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


# ---- Derivatives ----


@vjp("sum_reduce")
def sum_reduce_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    """Each element receives the gradient of its sum."""
    share = _mean_share(emit, op, dy) if op.attributes["normalize"] else dy
    return [_repeated(emit, share, shape_of(op.operands[0]))]


@vjp("mean_reduce")
def mean_reduce_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    """Each element receives its share of the gradient of the mean."""
    return [_repeated(emit, _mean_share(emit, op, dy), shape_of(op.operands[0]))]


@vjp("max_reduce", "min_reduce")
def extremum_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    """The elements that are the extremum share the gradient evenly."""
    (x,), (y,) = op.operands, op.results
    axes = _reduced_axes(op)
    if not axes:
        return [dy]
    mask = emit("eq", x, y, hint="mask")
    hits = emit("select", mask, 1.0, 0.0, hint="hits")
    count = emit("sum_reduce", hits, axes=axes, hint="count")
    share = emit("div", dy, count, hint="share")
    return [emit("select", mask, share, 0.0)]


@vjp("moments")
def moments_vjp(
    emit: Emit, op: Operation, dmean: Tensor | None, dvariance: Tensor | None
) -> list[Any]:
    """dmean / n + dvariance * 2 / n * (x - mean); that the variance depends on the mean
    too adds nothing.
    """
    (x,), (mean, _) = op.operands, op.results
    share = None if dmean is None else _mean_share(emit, op, dmean)
    if dvariance is None:
        return [_repeated(emit, share, shape_of(x))]
    # Half of n is exact in binary, unlike 2 / n.
    slope = emit("div", dvariance, _volume(op) / 2.0, hint="slope")
    deviation = emit("sub", x, mean, hint="deviation")
    term = emit("mul", deviation, slope, hint="term")
    return [term if share is None else emit("add", term, share)]


def _reduced_axes(op: Operation) -> list[int]:
    """The axes along which there is anything to reduce, ascending."""
    result = op.outputs[0].shape
    return [
        axis
        for axis, extent in enumerate(shape_of(op.operands[0]))
        if extent != result[axis]
    ]


def _volume(op: Operation) -> int:
    """How many elements are reduced to one."""
    shape = shape_of(op.operands[0])
    return prod(shape[axis] for axis in _reduced_axes(op))


def _mean_share(emit: Emit, op: Operation, dy: Tensor) -> Tensor:
    """What each of n elements receives from the gradient of their mean."""
    return emit("div", dy, float(_volume(op)), hint="share")


def _repeated(emit: Emit, x: Any, shape: Shape) -> Any:
    """The tensor with its singleton dimensions repeated to a shape."""
    repeats = [whole // part for whole, part in zip(shape, x.shape, strict=True)]
    return (
        x if set(repeats) <= {1} else emit("tile", x, repeats=repeats, hint="repeated")
    )
