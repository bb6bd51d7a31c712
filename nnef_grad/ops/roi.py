"""Regions of interest: parts of feature maps, brought to one size.

A region has a row in `rois`: its first corner and then its last, each with a coordinate
for each spatial axis. The same row of `batch_index` says in which item of the batch it
lies.

A region is a box, so its axes are apart: along each of them a matrix for each region,
computed from the corners by element-wise operations, says what an element of the output
takes from the elements of the feature map.

    N       how many regions there are
    p, E    the extents of output and feature map along an axis
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Any, NamedTuple

from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.ops.parts import section
from nnef_grad.ops.registry import Emit, decomposition, require, shape
from nnef_grad.ops.sampling import METHODS, check_spatial
from nnef_grad.ops.shape import reshaped, transposed
from nnef_grad.ops.tensors import line
from nnef_grad.ops.windows import check_choice

# ---- Shapes ----


@shape("avg_roi_pool", "max_roi_pool", "roi_resample")
def roi_shape(
    input: Shape,
    rois: Shape,
    batch_index: Shape,
    output_size: Shape,
    method: str = "symmetric",
) -> Shape:
    """[B, C, M spatial axes], [N, 2 * M] and [N, 1] give [N, C, *output_size]."""
    check_choice("method", method, METHODS)
    check_spatial("output_size", output_size, input)
    width = 2 * (len(input) - 2)
    message = (
        f"'rois' must have {width} columns, two for each spatial dimension,"
        f" but has the shape {list(rois)}"
    )
    require(len(rois) == 2 and rois[1] == width, message)
    message = (
        f"'batch_index' must have the shape [{rois[0]}, 1] or [{rois[0]}],"
        f" but has {list(batch_index)}"
    )
    # The specification says [N, 1], the Khronos tools want [N].
    require(batch_index in ((rois[0],), (rois[0], 1)), message)
    return (rois[0], input[1], *output_size)


@shape("avg_roi_align", "max_roi_align")
def roi_align_shape(
    input: Shape,
    rois: Shape,
    batch_index: Shape,
    output_size: Shape,
    sampling_rate: Shape,
    resize_method: str,
) -> Shape:
    """As for `roi_shape`: the samples of a cell are pooled."""
    check_choice("resize_method", resize_method, METHODS)
    check_spatial("sampling_rate", sampling_rate, input)
    return roi_shape(input, rois, batch_index, output_size)


# ---- Decompositions ----


@decomposition("roi_resample")
def roi_resample_decomposition(emit: Emit, op: Operation) -> list[Tensor]:
    """A product with interpolation weights along each axis."""
    rois, method, axes = op.inputs[1], op.attributes["method"], _axes(op)
    matrices = [_interpolation(emit, axis, rois, method) for axis in axes]
    return [_product(emit, op, axes, matrices)]


@decomposition("avg_roi_pool")
def avg_roi_pool_decomposition(emit: Emit, op: Operation) -> list[Tensor]:
    """A product with the shares of elements in a mean, along each axis."""
    corners, axes = emit("round", op.inputs[1], hint="corners"), _axes(op)
    matrices = [_shares(emit, axis, corners) for axis in axes]
    return [_product(emit, op, axes, matrices)]


@decomposition("max_roi_pool")
def max_roi_pool_decomposition(emit: Emit, op: Operation) -> list[Tensor]:
    """The maxima of the cells along each axis, from the last to the first, so that the
    first of equal maxima wins, row by row, as in max_pool.

    The elements of a cell are not known before the run. They are found among all
    elements of the axis, which takes p times the memory of N feature maps.
    """
    corners = emit("round", op.inputs[1], hint="corners")
    values, shape = _items(emit, op)
    if prod(values.shape) < prod(shape):
        repeats = [shape[0]] + [1] * (len(shape) - 1)
        values = emit("tile", values, repeats=repeats, hint="items")
    for axis in reversed(_axes(op)):
        values = _maxima(emit, axis, values, shape, corners)
        shape = values.shape
    return [values]


# ---- Steps ----


class _Axis(NamedTuple):
    """A spatial axis: its number and extent in the feature map, how many elements the
    output has along it, and which columns of `rois` have its coordinates.
    """

    number: int
    extent: int
    size: int
    first: int
    last: int


def _axes(op: Operation) -> list[_Axis]:
    extents, counts = op.inputs[0].shape[2:], op.outputs[0].shape[2:]
    return [
        _Axis(2 + i, extent, count, i, i + len(extents))
        for i, (extent, count) in enumerate(zip(extents, counts, strict=True))
    ]


def _along(emit: Emit, axis: _Axis) -> Emit:
    """Emits what belongs to an axis, under names that end in its number."""

    def emit_along(
        name: str, *operands: Any, hint: str | None = None, **attributes: Any
    ) -> Tensor:
        named = f"{hint or name}_{axis.number}"
        return emit(name, *operands, hint=named, **attributes)

    return emit_along


def _items(emit: Emit, op: Operation) -> tuple[Tensor, Shape]:
    """The feature maps in which the regions lie, with the elements of [N, C, E...]; or
    the only one that there is. And that shape.
    """
    maps, rois, batch_index = op.inputs
    is_one, shape = maps.shape[0] == 1, (rois.shape[0], *maps.shape[1:])
    items = maps if is_one else emit("gather", maps, batch_index, hint="items")
    return items, shape


def _product(
    emit: Emit, op: Operation, axes: Sequence[_Axis], matrices: Sequence[Tensor]
) -> Tensor:
    """The feature maps, multiplied by a matrix [N, p, E] along each axis.

    A product takes away the last axis and puts the new one in front, so that the axes
    take turns and are transposed once, in the end.
    """
    x, (count, *extents) = _items(emit, op)
    for axis, matrix in reversed(list(zip(axes, matrices, strict=True))):
        *rows, _ = extents
        x = _multiplied(_along(emit, axis), matrix, x, prod(rows))
        extents = [axis.size, *rows]
    after = reshaped(emit, x, (count, *extents), hint="channels_after")
    last = len(extents)
    return emit("transpose", after, axes=[0, last, *range(1, last)])


def _multiplied(emit: Emit, matrix: Tensor, x: Tensor, rows: int) -> Tensor:
    """[N, p, E] and the elements of [N, rows, E] give those of [N, p, rows].

    Where all regions lie in one feature map, their matrices are one with more rows.
    """
    count, size, extent = matrix.shape
    groups: Shape = (count,)
    if prod(x.shape) < count * rows * extent:
        groups = ()
        matrix = reshaped(emit, matrix, (count * size, extent), hint="stacked")
    x = reshaped(emit, x, (*groups, rows, extent), hint="rows")
    return emit("matmul", matrix, x, transposeB=True, hint="product")


# ---- Interpolation ----


def _sampling(method: str, count: int) -> tuple[list[float], list[float], float]:
    """Where along an axis a region is sampled, for `count` elements of the output: for
    each of them a weight and an offset, and the divisor in

        coordinate = (first * (divisor - weight) + last * weight - offset) / divisor

    Nothing but the quotient is rounded, for corners in whole numbers, so that it meets
    elements exactly.
    """
    elements = [float(i) for i in range(count)]
    if method == "symmetric":
        # first + (i + 0.5) / count * (last - first) - 0.5
        return [i + 0.5 for i in elements], [count / 2.0] * count, float(count)
    if method == "asymmetric":
        # first + i / count * (last - first)
        return elements, [0.0] * count, float(count)
    # first + i / (count - 1) * (last - 1 - first)
    return elements, elements, max(count - 1.0, 1.0)


def _interpolation(emit: Emit, axis: _Axis, rois: Tensor, method: str) -> Tensor:
    """[N, p, E]: with u for the fraction of a coordinate, the element below it weighs
    1 - u, and the one above it u.

    On an element, the derivative is that of the segment after it.
    """
    emit = _along(emit, axis)
    source = _source(emit, axis, rois, method)
    lower = emit("floor", source, hint="lower")
    fraction = emit("sub", source, lower, hint="fraction")
    # Above the last element there is none; the fraction is 0 there.
    upper = emit("add", lower, 1.0, hint="upper")
    at_lower = _indicator(emit, axis, lower, "lower")
    slope = emit("sub", _indicator(emit, axis, upper, "upper"), at_lower, hint="slope")
    moved = emit("mul", slope, fraction, hint="moved")
    return emit("add", at_lower, moved, hint="weights")


def _source(emit: Emit, axis: _Axis, rois: Tensor, method: str) -> Tensor:
    """[N, p]: the coordinates at which a region is sampled. Those outside of the feature
    map are moved to its edge.
    """
    weights, offsets, divisor = _sampling(method, axis.size)
    # [2 * M, p]: what each column of `rois` weighs in the coordinates.
    columns = [[0.0] * axis.size for _ in range(rois.shape[1])]
    columns[axis.first] = [divisor - weight for weight in weights]
    columns[axis.last] = weights
    value, shape = [*chain.from_iterable(columns)], [len(columns), axis.size]
    corners = emit("constant", shape=shape, value=value, hint="corner_weights")
    weighted = emit("matmul", rois, corners, hint="weighted_corners")
    is_uniform = len(set(offsets)) == 1
    offset = offsets[0] if is_uniform else line(emit, offsets, "offsets")
    shifted = emit("sub", weighted, offset, hint="shifted")
    coordinate = emit("div", shifted, divisor, hint="coordinate")
    capped = emit("min", coordinate, axis.extent - 1.0, hint="capped")
    return emit("max", capped, 0.0, hint="source")


def _indicator(emit: Emit, axis: _Axis, element: Tensor, name: str) -> Tensor:
    """[N, p, E]: 1 at an element, which [N, p] tells, and 0 at the others."""
    elements = line(emit, range(axis.extent), "elements", axis=2, rank=3)
    mask = emit("eq", element, elements, hint=f"is_{name}")
    return emit("select", mask, 1.0, 0.0, hint=f"at_{name}")


# ---- Cells ----


def _cells(emit: Emit, axis: _Axis, corners: Tensor) -> tuple[Tensor, Tensor]:
    """[N, p]: where the cells of each region begin, and where they end."""
    first = section(emit, corners, {1: (axis.first, axis.first + 1)}, hint="first")
    last = section(emit, corners, {1: (axis.last, axis.last + 1)}, hint="last")
    if axis.size == 1:
        return first, last
    region = emit("sub", last, first, hint="region")
    ratio = emit("div", region, float(axis.size), hint="ratio")
    stride, size = emit("floor", ratio, hint="stride"), emit("ceil", ratio, hint="size")
    positions = line(emit, range(axis.size), "positions")
    shift = emit("mul", stride, positions, hint="shift")
    begin = emit("add", first, shift, hint="begin")
    return begin, emit("add", begin, size, hint="end")


def _inside(emit: Emit, axis: _Axis, corners: Tensor) -> Tensor:
    """[N, p, E]: whether a cell holds an element, which is whether it holds its middle."""
    begin, end = _cells(emit, axis, corners)
    places = [element + 0.5 for element in range(axis.extent)]
    middles = line(emit, places, "middles", axis=2, rank=3)
    after = emit("gt", middles, begin, hint="after")
    before = emit("lt", middles, end, hint="before")
    return emit("and", after, before, hint="inside")


def _shares(emit: Emit, axis: _Axis, corners: Tensor) -> Tensor:
    """[N, p, E]: the share of each element in the mean of a cell; zeros for a cell
    without any.
    """
    emit = _along(emit, axis)
    members = emit("select", _inside(emit, axis, corners), 1.0, 0.0, hint="members")
    count = emit("sum_reduce", members, axes=[2], hint="count")
    divisor = emit("max", count, 1.0, hint="divisor")
    return emit("div", members, divisor, hint="shares")


# Above what is in a feature map, and finite in single precision.
_HUGE = 1e38


def _maxima(
    emit: Emit, axis: _Axis, values: Tensor, whole: Shape, corners: Tensor
) -> Tensor:
    """The elements of [N, C, ..., E] give [N, C, p, ...]: the maxima of the cells along
    the last axis, and zeros for cells without an element.

    A maximum is a product with ones and zeros that tell where it is. They have no
    derivative, and there is but one 1, for the first of equal maxima.
    """
    emit = _along(emit, axis)
    count, *others, extent = whole
    lines = reshaped(emit, values, (count, prod(others), 1, extent), hint="lines")
    inside = _inside(emit, axis, corners)
    ceiling = emit("select", inside, _HUGE, -_HUGE, hint="ceiling")
    ceilings = emit("unsqueeze", ceiling, axes=[1], hint="ceiling_of_lines")
    limited = emit("min", lines, ceilings, hint="limited")
    index = emit("argmax_reduce", limited, axes=[3], hint="index")
    place = emit("cast", index, dtype="scalar", hint="place")
    elements = line(emit, range(axis.extent), "elements", axis=3, rank=4)
    # A cell without an element has an index too: none of its places may be met by it.
    places = emit("min", elements, ceilings, hint="places")
    hit = emit("eq", place, places, hint="hit")
    chosen = emit("select", hit, 1.0, 0.0, hint="chosen")
    maxima = emit("matmul", lines, chosen, transposeB=True, hint="maxima")
    after = reshaped(emit, maxima, (count, *others, axis.size), hint="cells_after")
    order = [0, 1, after.rank - 1, *range(2, after.rank - 1)]
    return transposed(emit, after, order, hint="turned")
