"""Regions of interest, put together from other operations.

A region is a box, so its axes are apart: along each of them a matrix for each region,
computed from the corners by the fragments of regions.nnef, says what an element of the
output takes from the elements of the feature map.

    N       how many regions there are
    p, E    the extents of output and feature map along an axis
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.evaluation import Evaluator
from nnef_grad.graph.extents import Dimension
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.language.library import FragmentFile
from nnef_grad.ops.parts import section
from nnef_grad.ops.registry import decomposition
from nnef_grad.ops.shape import reshaped, transposed

# The fragments of regions.nnef.
FORMULAS = FragmentFile(Path(__file__).parent / "regions.nnef")


@decomposition("roi_resample")
def roi_resample_decomposition(emit: Emitter, op: Operation) -> list[Tensor]:
    """A product with interpolation weights along each axis."""
    rois, method = op.inputs[1], op.attributes["method"]
    matrices: list[Tensor] = []
    for axis in _axes(op):
        values = {"rois": rois, "method": method, "columns": rois.shape[1]}
        matrices += _expanded(emit, "interpolation", axis, **values)
    return [_product(emit, op, matrices)]


@decomposition("avg_roi_pool")
def avg_roi_pool_decomposition(emit: Emitter, op: Operation) -> list[Tensor]:
    """A product with the shares of elements in a mean, along each axis."""
    corners = emit("round", op.inputs[1], hint="corners")
    matrices: list[Tensor] = []
    for axis in _axes(op):
        inside = _inside(emit, axis, corners)
        matrices += _expanded(emit, "shares", axis, inside=inside)
    return [_product(emit, op, matrices)]


@decomposition("max_roi_pool")
def max_roi_pool_decomposition(emit: Emitter, op: Operation) -> list[Tensor]:
    """The maxima of the cells along each axis, from the last to the first, so that the
    first of equal maxima wins, as in max_pool. Which elements are in a cell is not known
    before the run: they are found among all, in p times the memory of N feature maps.
    """
    corners = emit("round", op.inputs[1], hint="corners")
    values, shape = _items(emit, op)
    if prod(values.shape) < prod(shape):
        repeats = [shape[0]] + [1] * (len(shape) - 1)
        values = emit("tile", values, repeats=repeats, hint="items")
    for axis in reversed(_axes(op)):
        # The elements of [N, C, ..., E] give [N, C, p, ...].
        count, *others, extent = shape
        apart, called = (count, prod(others), 1, extent), axis.hint
        lines = reshaped(emit, values, apart, hint=called("lines"))
        inside = _inside(emit, axis, corners)
        (maxima,) = _expanded(emit, "maxima", axis, lines=lines, inside=inside)
        cells = (count, *others, axis.size)
        after = reshaped(emit, maxima, cells, hint=called("cells_after"))
        order = [0, 1, after.rank - 1, *range(2, after.rank - 1)]
        values = transposed(emit, after, order, hint=called("turned"))
        shape = values.shape
    return [values]


# ---- Steps ----


class _Axis(NamedTuple):
    """A spatial axis: its number and extent in the feature map, how many elements the
    output has along it, and which columns of `rois` have its coordinates.
    """

    number: int
    extent: Dimension
    size: Dimension
    first: int
    last: int

    @property
    def facts(self) -> dict[str, Any]:
        """The values that a fragment may ask for, by the names of parameters."""
        numbers = [float(i) for i in range(self.extent)]
        return {
            "first": self.first,
            "last": self.last,
            "outputs": [float(i) for i in range(self.size)],
            "numbers": numbers,
            "places": [number + 0.5 for number in numbers],
        }

    def hint(self, name: str) -> str:
        """The name of what belongs to the axis."""
        return f"{name}_{self.number}"


def _axes(op: Operation) -> list[_Axis]:
    extents, counts = op.inputs[0].shape[2:], op.outputs[0].shape[2:]
    return [
        _Axis(2 + i, extent, count, i, i + len(extents))
        for i, (extent, count) in enumerate(zip(extents, counts, strict=True))
    ]


def _expanded(emit: Emitter, name: str, axis: _Axis, **values: Any) -> Sequence[Tensor]:
    """The results of a fragment of regions.nnef, for values and facts of an axis."""
    fragment, values = FORMULAS[name], {**axis.facts, **values}

    def naming(word: str) -> str:
        return emit.naming(axis.hint(word))

    bound = {p.name: values[p.name] for p in fragment.parameters}
    return [*Evaluator(emit).instantiate(fragment, bound, naming, emit.span).values()]


def _items(emit: Emitter, op: Operation) -> tuple[Tensor, Shape]:
    """The feature maps of the regions, or the only one; and their shape [N, C, E...]."""
    maps, rois, batch_index = op.inputs
    is_one, shape = maps.shape[0] == 1, (rois.shape[0], *maps.shape[1:])
    items = maps if is_one else emit("gather", maps, batch_index, hint="items")
    return items, shape


def _product(emit: Emitter, op: Operation, matrices: Sequence[Tensor]) -> Tensor:
    """The feature maps, multiplied by a matrix [N, p, E] along each axis: a product puts
    the new axis in front of all, and they are transposed once, in the end.
    """
    x, (count, *extents) = _items(emit, op)
    for axis, matrix in reversed(list(zip(_axes(op), matrices, strict=True))):
        *rows, extent = extents
        groups: Shape = (count,)
        # Where all regions lie in one feature map, their matrices are one with more rows.
        if prod(x.shape) < prod((count, *extents)):
            groups, stacked = (), (count * axis.size, extent)
            matrix = reshaped(emit, matrix, stacked, hint=axis.hint("stacked"))
        x = reshaped(emit, x, (*groups, prod(rows), extent), hint=axis.hint("rows"))
        hint = axis.hint("product")
        x = emit("matmul", matrix, x, transposeB=True, hint=hint)
        extents = [axis.size, *rows]
    after = reshaped(emit, x, (count, *extents), hint="channels_after")
    last = len(extents)
    return emit("transpose", after, axes=[0, last, *range(1, last)])


def _inside(emit: Emitter, axis: _Axis, corners: Tensor) -> Tensor:
    """[N, p, E]: whether a cell holds an element."""
    begin, end = (
        section(emit, corners, {1: (column, column + 1)}, hint=axis.hint(word))
        for word, column in (("first", axis.first), ("last", axis.last))
    )
    if axis.size != 1:
        begin, end = _expanded(emit, "cells", axis, first=begin, last=end)
    (inside,) = _expanded(emit, "members", axis, begin=begin, end=end)
    return inside
