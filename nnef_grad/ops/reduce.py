"""Reductions: the reduced axes stay, with extent 1."""

from __future__ import annotations

from math import prod
from typing import Any

from nnef_grad.graph.extents import Dimension
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.ops.batching import along_axes, batching_rule
from nnef_grad.ops.costs import cost_rule, each_element
from nnef_grad.ops.examples import beside_axes, place_rule
from nnef_grad.ops.linear import in_first, linearity_rule
from nnef_grad.ops.ranges import INF, Range, bounded, of_first, range_rule
from nnef_grad.ops.registry import Emit, shape, vjp
from nnef_grad.ops.shape import check_axes, number
from nnef_grad.ops.traits import REDUCTIONS


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
def sum_reduce_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor | None]:
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
) -> list[Tensor | None]:
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
    term = emit("mul", slope, deviation, hint="term")
    return [emit("add", term, *shares) if shares else term]


def _volume(op: Operation) -> Dimension:
    """How many elements are reduced to one."""
    pairs = zip(op.inputs[0].shape, op.outputs[0].shape, strict=True)
    return prod(whole for whole, reduced in pairs if whole != reduced)


def _share(emit: Emit, op: Operation, dy: Tensor) -> Tensor:
    """The gradient of each of n elements, from that of their mean."""
    return emit("div", dy, number(emit, _volume(op)), hint="share")


def _repeated(emit: Emit, op: Operation, x: Tensor) -> Tensor | None:
    """A tensor of the result's shape, repeated along the reduced axes, unless these have no
    elements.
    """
    repeats = [
        1 if n == m else n for n, m in zip(op.inputs[0].shape, x.shape, strict=True)
    ]
    if 0 in repeats:
        return None
    is_whole = {1}.issuperset(repeats)
    return x if is_whole else emit("tile", x, repeats=repeats, hint="repeated")


# ---- Batching, linearity, ranges, costs ----

batching_rule(*REDUCTIONS, "moments")(along_axes)
place_rule(*REDUCTIONS, "moments")(beside_axes)
linearity_rule("sum_reduce", "mean_reduce")(in_first)
range_rule("argmax_reduce", "argmin_reduce")(bounded(0.0, INF))
range_rule("max_reduce", "min_reduce", "mean_reduce")(of_first)
cost_rule("sum_reduce", "mean_reduce")(each_element)
cost_rule("moments")(lambda op: 2 * each_element(op))


@range_rule("sum_reduce")
def sum_reduce_range(x: Range, *, normalize: bool, **attributes: Any) -> Range:
    """A sum of positive numbers is not smaller than the smallest."""
    lower = x.lower if x.lower >= 0.0 else -INF
    return x if normalize else Range(lower, x.upper if x.upper <= 0.0 else INF)


@range_rule("moments")
def moments_range(x: Range, **attributes: Any) -> tuple[Range, Range]:
    """A mean, and a variance."""
    return x, Range(0.0)
