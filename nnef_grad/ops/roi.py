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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.ops.parts import section
from nnef_grad.ops.registry import Emit, decomposition, require, shape
from nnef_grad.ops.sampling import check_method, check_spatial
from nnef_grad.ops.shape import reshaped

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
    check_method("method", method)
    check_spatial("output_size", output_size, input)
    width = 2 * (len(input) - 2)
    rows = len(rois) == 2 and rois[1] == width
    require(
        rows,
        f"'rois' must have {width} columns, two for each spatial dimension, but has the shape {list(rois)}",
    )
    # The specification says [N, 1], the Khronos tools want [N].
    fits = batch_index in ((rois[0],), (rois[0], 1))
    require(
        fits,
        f"'batch_index' must have the shape [{rois[0]}, 1] or [{rois[0]}], but has {list(batch_index)}",
    )
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
    check_method("resize_method", resize_method)
    check_spatial("sampling_rate", sampling_rate, input)
    return roi_shape(input, rois, batch_index, output_size)


# ---- Decompositions ----


@decomposition("roi_resample")
def roi_resample_decomposition(emit: Emit, op: Operation) -> list[Tensor]:
    """Along each axis a product with weights of interpolation."""
    rois, method = op.inputs[1], op.attributes["method"]
    axes = _axes(op)
    matrices = [_interpolation(emit, axis, rois, method) for axis in axes]
    return [_product(emit, op, axes, matrices)]


@decomposition("avg_roi_pool")
def avg_roi_pool_decomposition(emit: Emit, op: Operation) -> list[Tensor]:
    """Along each axis a product with the shares that elements have in a mean."""
    corners, axes = _rounded(emit, op.inputs[1]), _axes(op)
    matrices = [_shares(emit, axis, corners) for axis in axes]
    return [_product(emit, op, axes, matrices)]


@decomposition("max_roi_pool")
def max_roi_pool_decomposition(emit: Emit, op: Operation) -> list[Tensor]:
    """Along each axis, from the last to the first, the maxima of the cells: so the first
    of equal maxima wins, row by row, as in max_pool.

    Which elements a cell has is not known before the run. It is held against all that
    there are along the axis, which takes p times the memory of N feature maps.
    """
    count, *extents = _shape_of_items(op)
    corners, values = _rounded(emit, op.inputs[1]), _repeated_items(emit, op)
    for axis in reversed(_axes(op)):
        channels, *others = extents[:-1]
        whole = (count, channels, *others, axis.extent)
        values = _maxima(emit, axis, values, whole, corners)
        extents = [channels, axis.count, *others]
    return [values]


# ---- Steps ----


@dataclass(frozen=True, slots=True)
class _Axis:
    """A spatial axis.

    Attributes:
        number: in the feature map.
        extent: in the feature map.
        count: how many elements the output has along it.
        columns: where its coordinates stand in `rois`: of the first corner, of the last.
    """

    number: int
    extent: int
    count: int
    columns: tuple[int, int]


def _axes(op: Operation) -> list[_Axis]:
    extents, counts = op.inputs[0].shape[2:], op.outputs[0].shape[2:]
    return [
        _Axis(2 + i, extent, count, (i, i + len(extents)))
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


def _shape_of_items(op: Operation) -> Shape:
    """[N, C, E...]"""
    maps, rois, _ = op.inputs
    return (rois.shape[0], *maps.shape[1:])


def _items(emit: Emit, op: Operation) -> Tensor:
    """The feature maps in which the regions lie, with the elements of [N, C, E...]; or
    the only one that there is.
    """
    maps, _, batch_index = op.inputs
    only_one = maps.shape[0] == 1
    return maps if only_one else emit("gather", maps, batch_index, hint="items")


def _repeated_items(emit: Emit, op: Operation) -> Tensor:
    """The same, with the only one repeated for each region."""
    items, whole = _items(emit, op), _shape_of_items(op)
    if prod(items.shape) == prod(whole):
        return items
    repeats = [whole[0]] + [1] * (len(whole) - 1)
    return emit("tile", items, repeats=repeats, hint="items")


def _product(
    emit: Emit, op: Operation, axes: Sequence[_Axis], matrices: Sequence[Tensor]
) -> Tensor:
    """The feature maps, multiplied by a matrix [N, p, E] along each axis.

    A product takes away the last axis and puts the new one in front, so that the axes
    take turns and are transposed once, in the end.
    """
    x = _items(emit, op)
    count, *extents = _shape_of_items(op)
    for axis, matrix in reversed(list(zip(axes, matrices, strict=True))):
        *rows, _ = extents
        x = _multiplied(_along(emit, axis), matrix, x, prod(rows))
        extents = [axis.count, *rows]
    after = reshaped(emit, x, (count, *extents), hint="channels_after")
    last = len(extents)
    return emit("transpose", after, axes=[0, last, *range(1, last)])


def _multiplied(emit: Emit, matrix: Tensor, x: Tensor, rows: int) -> Tensor:
    """[N, p, E] and the elements of [N, rows, E] give those of [N, p, rows].

    Where all regions lie in one feature map, their matrices are one with more rows.
    """
    count, size, extent = matrix.shape
    shared = prod(x.shape) < count * rows * extent
    groups = () if shared else (count,)
    stacked = (count * size, extent) if shared else matrix.shape
    return emit(
        "matmul",
        reshaped(emit, matrix, stacked, hint="stacked"),
        reshaped(emit, x, (*groups, rows, extent), hint="rows"),
        transposeB=True,
        hint="product",
    )


# ---- Interpolation ----


@dataclass(frozen=True, slots=True)
class _Sampling:
    """Where along an axis a region is sampled:

        coordinate = (first * (divisor - weight) + last * weight - offset) / divisor

    with a weight and an offset for each element of the output. Nothing but the quotient
    is rounded, for corners in whole numbers, so that it meets elements exactly.
    """

    weights: list[float]
    offsets: list[float]
    divisor: float


def _symmetric(count: int) -> _Sampling:
    """first + (i + 0.5) / count * (last - first) - 0.5"""
    weights = [i + 0.5 for i in range(count)]
    return _Sampling(weights, [count / 2.0] * count, float(count))


def _asymmetric(count: int) -> _Sampling:
    """first + i / count * (last - first)"""
    weights = [float(i) for i in range(count)]
    return _Sampling(weights, [0.0] * count, float(count))


def _aligned(count: int) -> _Sampling:
    """first + i / (count - 1) * (last - 1 - first)"""
    weights = [float(i) for i in range(count)]
    return _Sampling(weights, weights, float(max(count - 1, 1)))


_SAMPLINGS: dict[str, Callable[[int], _Sampling]] = {
    "symmetric": _symmetric,
    "asymmetric": _asymmetric,
    "aligned": _aligned,
}


def _interpolation(emit: Emit, axis: _Axis, rois: Tensor, method: str) -> Tensor:
    """[N, p, E]: with u for the fraction of a coordinate, the element below it weighs
    1 - u, and the one above it u.

    On an element, the derivative is that of the segment after it.
    """
    emit = _along(emit, axis)
    source = _source(emit, axis, rois, _SAMPLINGS[method](axis.count))
    lower = emit("floor", source, hint="lower")
    fraction = emit("sub", source, lower, hint="fraction")
    # Above the last element there is none; the fraction is 0 there.
    upper = emit("add", lower, 1.0, hint="upper")
    at_lower = _indicator(emit, axis, lower, "lower")
    slope = emit("sub", _indicator(emit, axis, upper, "upper"), at_lower, hint="slope")
    moved = emit("mul", slope, fraction, hint="moved")
    return emit("add", at_lower, moved, hint="weights")


def _source(emit: Emit, axis: _Axis, rois: Tensor, sampling: _Sampling) -> Tensor:
    """[N, p]: the coordinates at which a region is sampled. Those outside of the feature
    map are moved to its edge.
    """
    weights = _corner_weights(emit, axis, rois, sampling)
    weighted = emit("matmul", rois, weights, hint="weighted_corners")
    shifted = emit("sub", weighted, _offsets(emit, sampling), hint="shifted")
    coordinate = emit("div", shifted, sampling.divisor, hint="coordinate")
    capped = emit("min", coordinate, axis.extent - 1.0, hint="capped")
    return emit("max", capped, 0.0, hint="source")


def _corner_weights(
    emit: Emit, axis: _Axis, rois: Tensor, sampling: _Sampling
) -> Tensor:
    """[2 * M, p]: what each column of `rois` weighs in the coordinates."""
    rows = [[0.0] * axis.count for _ in range(rois.shape[1])]
    first, last = axis.columns
    rows[first] = [sampling.divisor - weight for weight in sampling.weights]
    rows[last] = sampling.weights
    value = [weight for row in rows for weight in row]
    shape = [len(rows), axis.count]
    return emit("constant", shape=shape, value=value, hint="corner_weights")


def _offsets(emit: Emit, sampling: _Sampling) -> Tensor | float:
    """[1, p]; or the offset, where there is but one."""
    value = sampling.offsets
    if len(set(value)) == 1:
        return value[0]
    return emit("constant", shape=[1, len(value)], value=value, hint="offsets")


def _indicator(emit: Emit, axis: _Axis, element: Tensor, name: str) -> Tensor:
    """[N, p, E]: 1 at an element, which [N, p] tells, and 0 at the others."""
    mask = emit("eq", element, _elements(emit, axis, rank=3), hint=f"is_{name}")
    return emit("select", mask, 1.0, 0.0, hint=f"at_{name}")


def _elements(
    emit: Emit, axis: _Axis, rank: int, first: float = 0.0, hint: str = "elements"
) -> Tensor:
    """[1, ..., E]: where the elements along an axis are."""
    value = [first + i for i in range(axis.extent)]
    shape = [1] * (rank - 1) + [axis.extent]
    return emit("constant", shape=shape, value=value, hint=hint)


# ---- Cells ----


def _rounded(emit: Emit, rois: Tensor) -> Tensor:
    """The corners, rounded."""
    return emit("round", rois, hint="corners")


def _cells(emit: Emit, axis: _Axis, corners: Tensor) -> tuple[Tensor, Tensor]:
    """[N, p]: where the cells of each region begin, and where they end."""
    first, last = (
        section(emit, corners, {1: (column, column + 1)}, hint=name)
        for column, name in zip(axis.columns, ("first", "last"), strict=True)
    )
    if axis.count == 1:
        return first, last
    region = emit("sub", last, first, hint="region")
    ratio = emit("div", region, float(axis.count), hint="ratio")
    stride, size = emit("floor", ratio, hint="stride"), emit("ceil", ratio, hint="size")
    numbers = [float(i) for i in range(axis.count)]
    cell = emit("constant", shape=[1, axis.count], value=numbers, hint="positions")
    begin = emit("add", first, emit("mul", stride, cell, hint="shift"), hint="begin")
    return begin, emit("add", begin, size, hint="end")


def _inside(emit: Emit, axis: _Axis, corners: Tensor) -> Tensor:
    """[N, p, E]: whether a cell holds an element, which is whether it holds its middle."""
    begin, end = _cells(emit, axis, corners)
    middles = _elements(emit, axis, rank=3, first=0.5, hint="middles")
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
    chosen = _first_maximum(emit, axis, lines, ceilings)
    maxima = emit("matmul", lines, chosen, transposeB=True, hint="maxima")
    return _turned(emit, maxima, (count, *others, axis.count))


def _first_maximum(emit: Emit, axis: _Axis, lines: Tensor, ceilings: Tensor) -> Tensor:
    """[N, rows, p, E]: 1 at the first maximum of each cell."""
    limited = emit("min", lines, ceilings, hint="limited")
    index = emit("argmax_reduce", limited, axes=[3], hint="index")
    place = emit("cast", index, dtype="scalar", hint="place")
    # A cell without an element has an index too: none of its places may be met by it.
    places = emit("min", _elements(emit, axis, rank=4), ceilings, hint="places")
    hit = emit("eq", place, places, hint="hit")
    return emit("select", hit, 1.0, 0.0, hint="chosen")


def _turned(emit: Emit, x: Tensor, shape: Shape) -> Tensor:
    """The elements of [N, C, ..., p] as [N, C, p, ...]."""
    after, last = reshaped(emit, x, shape, hint="cells_after"), len(shape) - 1
    if last == 2:
        return after
    return emit("transpose", after, axes=[0, 1, last, *range(2, last)], hint="turned")
