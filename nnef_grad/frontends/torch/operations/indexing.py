"""Elements at indices, and writes in place of them.

PyTorch writes into views; a program without writes puts what is written into a new tensor,
in place of the view.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch

from nnef_grad.base.arrays import Array
from nnef_grad.frontends.expansions.selection import (
    from_begin,
    gather_elements,
    put_blocks,
    scatter_elements,
)
from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.masks import (
    put_at,
    put_where,
    rows_at,
    rows_where,
    running_count,
)
from nnef_grad.frontends.torch.operations.shapes import (
    flat,
    in_memory,
    move_axes,
    part_between,
    rows,
    select,
    slice_bounds,
)
from nnef_grad.frontends.torch.selections import OF_DATA, Places
from nnef_grad.frontends.values import broadcast_shapes, dtype_of, is_known, shape_of
from nnef_grad.graph.extents import as_number, as_numbers, has_symbols
from nnef_grad.graph.ir import Shape
from nnef_grad.ops.ranges import EXACT

_ORDER = "one place is written several times, in no order: use indices that differ"

# ---- Indices for several axes ----


class Selection(NamedTuple):
    """Places of a tensor: the axes with indices; these, which are broadcast
    to one shape; the axis of the result where this is; and those of the axes of which all
    rows are taken in their order.
    """

    axes: list[int]
    indices: list[Any]
    shape: Shape
    place: int
    ranges: list[int]

    def others(self, rank: int) -> list[int]:
        """The axes that stay as they are."""
        return [axis for axis in range(rank) if axis not in self.axes]


def _is_of_data(index: Any) -> bool:
    """Whether it is a mask that depends on data."""
    return index is not None and dtype_of(index) == "logical" and not is_known(index)


def _selection(call: Call, x: Any, indices: Sequence[Any]) -> Selection:
    """Masks are the indices of what is true in them."""
    entries: list[tuple[Any, Any]] = []
    for index, node in zip(indices, call.node.args[1], strict=True):
        is_old = node is not None and node.meta["val"].dtype == torch.uint8
        call.require(not is_old, "a mask must be of booleans: convert it with bool()")
        if index is not None and dtype_of(index) == "logical":
            entries += [(places, None) for places in np.nonzero(index)]
        else:
            entries.append((index, node))
    axes = [axis for axis, (index, _) in enumerate(entries) if index is not None]
    own = [entries[axis][0] for axis in axes]
    is_together = axes == [*range(axes[0], axes[0] + len(axes))]
    ranges = [axis for axis in axes if _is_range(*entries[axis], shape_of(x)[axis])]
    shape = broadcast_shapes(*map(shape_of, own))
    return Selection(axes, own, shape, axes[0] if is_together else 0, ranges)


def _is_range(numbers: Any, node: Any, extent: Any) -> bool:
    """Whether numbers are those from 0 to an extent."""
    if shape_of(numbers) != (extent,):
        return False
    if is_known(numbers):
        return np.array_equal(numbers, np.arange(as_number(extent)))
    start = node.args[0] if len(node.args) > 1 else 0
    is_range = str(node.target).startswith("aten.arange.")
    return is_range and (start, *node.args[2:3]) in ((0,), (0, 1))


def _numbers(call: Call, x: Any, chosen: Selection) -> Any:
    """The numbers of what is taken, counted in row-major order of the axes."""
    extents = [shape_of(x)[axis] for axis in chosen.axes]
    if not is_known(chosen.indices):
        call.require_exact(prod(extents) - 1)
    number: Any = None
    for i, (index, extent) in enumerate(zip(chosen.indices, extents, strict=True)):
        place = from_begin(call, index, extent)
        stride = prod(extents[i + 1 :])
        part = call("mul", place, stride, hint="part") if stride != 1 else place
        number = call("add", *call.aligned(number, part), hint="number") if i else part
    return number


def _joined(call: Call, x: Any, chosen: Selection, place: int) -> Any:
    """The tensor with the axes that are indexed as one."""
    shape = shape_of(x)
    others = chosen.others(len(shape))
    moved = call.transposed(
        x, [*others[:place], *chosen.axes, *others[place:]], "moved"
    )
    total = prod(shape[axis] for axis in chosen.axes)
    outer = [shape[axis] for axis in others]
    return call.reshaped(moved, [*outer[:place], total, *outer[place:]], "joined")


@aten("index", "_unsafe_index")
def index(call: Call, x: Any, indices: Sequence[Any]) -> Any:
    """The elements at indices, which may count from the end."""
    if any(isinstance(index, Places) for index in indices):
        return rows_at(call, x, indices)
    if any(_is_of_data(index) for index in indices):
        return rows_where(call, x, indices)
    x, chosen = _sliced(call, x, _selection(call, x, indices))
    if chosen.axes == chosen.ranges[:1]:
        return _joined(call, x, chosen, chosen.place)
    if _is_of_each_row(x, chosen):
        # A comparison with all places in a row is smaller than one with all in the tensor.
        first, axis = chosen.axes
        others = [a for a in range(len(shape_of(x))) if a != first]
        column = call("unsqueeze", chosen.indices[1], hint="column", axes=others)
        return _picked(call, x, column, axis)
    if len(chosen.axes) > 1 and not _is_countable(x, chosen):
        return _of_rows(call, x, chosen)
    numbers = _numbers(call, x, chosen)
    return rows(call, _joined(call, x, chosen, chosen.place), numbers, chosen.place)


def _is_countable(x: Any, chosen: Selection) -> bool:
    """Whether single precision has the numbers of all places, if it computes them."""
    total = prod(shape_of(x)[axis] for axis in chosen.axes)
    return is_known(chosen.indices) or has_symbols(total) or total <= EXACT


def _of_rows(call: Call, x: Any, chosen: Selection) -> Any:
    """The rows at all indices but those of the last axis, and an element of each."""
    *axes, axis = chosen.axes
    first = chosen._replace(axes=axes, indices=chosen.indices[:-1])
    place, count = chosen.place, len(chosen.shape)
    numbers = call.of_rank(_numbers(call, x, first), count)
    y = rows(call, _joined(call, x, first, place), numbers, place)
    after = len(shape_of(y)) - place - count
    last = call.of_rank(chosen.indices[-1], count)
    column = call.reshaped(
        last, [*[1] * place, *shape_of(last), *[1] * after], "column"
    )
    return _picked(call, y, column, first.others(len(shape_of(x))).index(axis) + count)


def _picked(call: Call, x: Any, column: Any, axis: int) -> Any:
    """The element of each row at an index."""
    extent = shape_of(x)[axis]
    numbers = call.positions(extent, axis, len(shape_of(x)))
    number = call.typed(from_begin(call, column, extent), "scalar")
    return call.expand("pick", x, number, numbers, axis=axis)


def _sliced(call: Call, x: Any, chosen: Selection) -> tuple[Any, Selection]:
    """One known place along an axis is a slice, where there are indices for others."""
    for i in reversed(range(len(chosen.axes))):
        axis, index = chosen.axes[i], chosen.indices[i]
        others = [*chosen.indices[:i], *chosen.indices[i + 1 :]]
        if not (others and is_known(index) and np.size(index) == 1):
            continue
        if broadcast_shapes(*map(shape_of, others)) == chosen.shape:
            x = select(call, x, axis, int(np.ravel(index)[0]))
            axes, ranges = (
                [a - (a > axis) for a in several if a != axis]
                for several in (chosen.axes, chosen.ranges)
            )
            chosen = chosen._replace(axes=axes, indices=others, ranges=ranges)
    return x, chosen


def _is_of_each_row(x: Any, chosen: Selection) -> bool:
    """Whether there is one element for each row, as in x[arange(n), index]."""
    first, *others = chosen.axes
    if others != [first + 1] or first not in chosen.ranges:
        return False
    index, (count, extent) = chosen.indices[1], shape_of(x)[first : first + 2]
    is_column = shape_of(index) == chosen.shape == (count,)
    return is_column and not is_known(index) and not has_symbols(extent)


# ---- Writes at indices for several axes ----


@aten("index_put", "_unsafe_index_put")
def index_put(
    call: Call, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False
) -> Any:
    """Values in place of what is at indices, or added to it."""
    if any(isinstance(index, Places) for index in indices):
        return put_at(call, x, indices, values, accumulate)
    if any(_is_of_data(index) for index in indices):
        return put_where(call, x, indices, values, accumulate)
    chosen = _selection(call, x, indices)
    numbers = _numbers(call, x, chosen)
    shape = shape_of(x)
    others, count = chosen.others(len(shape)), len(chosen.shape)
    outer = [shape[axis] for axis in others]
    wanted = (*outer[: chosen.place], *chosen.shape, *outer[chosen.place :])
    extents = [1] * (len(wanted) - len(shape_of(values))) + [*shape_of(values)]
    rest = [*extents[: chosen.place], *extents[chosen.place + count :]]
    if prod(extents) == prod(rest) and not accumulate:
        for axis in chosen.axes:
            rest.insert(axis, 1)
        value = call.reshaped(values, rest if prod(rest) != 1 else [])
        return _put_one(call, x, numbers, value, chosen.axes)
    wide = call.broadcast(values, wanted)
    places = [*range(chosen.place, chosen.place + count)]
    updates = move_axes(call, wide, places, [*range(count)])
    updates = call.reshaped(updates, [prod(chosen.shape), *outer], "updates")
    joined = _joined(call, x, chosen, 0)
    own = [shape[axis] for axis in chosen.axes]
    joined = _put(call, joined, numbers, updates, accumulate)
    whole = call.reshaped(joined, [*own, *outer], "whole")
    return move_axes(call, whole, [*range(len(own))], chosen.axes)


def _put_one(call: Call, x: Any, numbers: Any, value: Any, axes: list[int]) -> Any:
    """The same value in place of all that has some numbers, counted in row-major order of
    axes; it is broadcast along these.
    """
    extents = [n if a in axes else 1 for a, n in enumerate(shape_of(x))]
    total, count = prod(extents), prod(shape_of(numbers))
    if is_known(numbers):
        # PyTorch adds the gradients of equal indices.
        call.require(is_known(value) or len({*np.ravel(numbers)}) == count, _ORDER)
        hit = np.isin(np.arange(as_number(total)), numbers)
    else:
        row = call.reshaped(call.typed(numbers, "scalar"), [1, count], "row")
        taken = call("eq", row, call.positions(total, 0, 2), hint="taken")
        hit = call("any_reduce", taken, axes=[1], hint="hit")
    return call("select", call.reshaped(hit, extents, "mask"), value, x)


@aten("index_fill")
def _index_fill(call: Call, x: Any, axis: int, numbers: Any, value: Any) -> Any:
    value = call.typed(value, dtype_of(x))
    if not shape_of(x):
        return value
    along = call.axis(axis, len(shape_of(x)))
    numbers = from_begin(call, numbers, shape_of(x)[along])
    return _put_one(call, x, numbers, value, [along])


def _put(call: Call, x: Any, numbers: Any, updates: Any, is_added: bool) -> Any:
    """Rows in place of those with some numbers, or added to them."""
    if is_known(numbers):
        places = np.ravel(numbers)
        if not places.size:
            return x
        if len({*places.tolist()}) == len(places):
            return _put_rows(call, x, places, updates, 0, is_added)
        call.require(is_added, _ORDER)
    reduction = "add" if is_added else "none"
    return put_blocks(call, x, numbers, updates, 1, reduction)


def _put_rows(
    call: Call, x: Any, places: Array, updates: Any, axis: int, is_added: bool = False
) -> Any:
    """Rows in place of those at known places, which differ, or added to them."""
    extent, count = shape_of(x)[axis], len(places)
    if (np.diff(places) == 1).all() and not is_added:
        first = int(places[0])
        return _between(call, x, updates, axis, first, first + count)
    source = np.zeros(int(extent), int)
    source[places] = np.arange(count)
    row = [extent if a == axis else 1 for a in range(len(shape_of(x)))]
    mask = np.isin(np.arange(as_number(extent)), places).reshape(row)
    y = updates
    if count != 1:
        y = call("gather", updates, source, hint="spread", axis=axis)
    if is_added:
        return call("add", x, call("select", mask, y, 0.0, hint="part"))
    return y if mask.all() else call("select", mask, y, x)


def _between(call: Call, x: Any, new: Any, axis: int, begin: Any, end: Any) -> Any:
    """Rows in place of those between two places."""
    extent = shape_of(x)[axis]
    before = [part_between(call, x, axis, 0, begin)] if begin != 0 else []
    after = [part_between(call, x, axis, end, extent)] if end != extent else []
    parts = [call.typed(part, dtype_of(x)) for part in (*before, new, *after)]
    return call.joined(parts, axis)


# ---- Indices along one axis ----


@aten("index_select")
def _index_select(call: Call, x: Any, axis: int, numbers: Any) -> Any:
    if not shape_of(x):
        return x
    along = call.axis(axis, len(shape_of(x)))
    if isinstance(numbers, Places):
        call.require(along == 0, OF_DATA)
        return rows_at(call, x, [numbers])
    row = call.reshaped(numbers, [prod(shape_of(numbers))])
    return rows(call, x, row, along)


@aten("gather")
def _gather(call: Call, x: Any, axis: int, numbers: Any, _sparse: bool = False) -> Any:
    if not shape_of(x):
        return call.broadcast(x, call.result_shape)
    y = gather_elements(call, x, _row(call, numbers), axis, from_end=False)
    return call.reshaped(y, call.result_shape)


@aten("take_along_dim")
def _take_along(call: Call, x: Any, numbers: Any, axis: int | None = None) -> Any:
    """As `_gather`, of rows that are broadcast; of all elements if there is no axis."""
    if axis is None:
        x, numbers, axis = flat(call, x), flat(call, numbers), 0
    along = call.axis(axis, len(shape_of(x)))
    before, after = (
        broadcast_shapes(*(shape_of(part)[axes] for part in (x, numbers)))
        for axes in (slice(along), slice(along + 1, None))
    )
    x, numbers = (
        call.broadcast(part, (*before, shape_of(part)[along], *after))
        for part in (x, numbers)
    )
    return gather_elements(call, x, numbers, along)


# What is put into places that several indices name, by the names of expansions.
_REDUCTIONS = {
    "sum": "add",
    "prod": "mul",
    "mean": "mean",
    "amax": "max",
    "amin": "min",
}


@aten("scatter.src", "scatter.value", "scatter_add", "scatter_reduce")
def scatter(
    call: Call, x: Any, axis: int, numbers: Any, source: Any, reduce: str = "sum",
    include_self: bool = True,
) -> Any:  # fmt: skip
    """Elements, or a number, in place of those that indices name, or reduced with them."""
    is_rounded = reduce == "mean" and call.result_dtype == "integer"
    call.require(not is_rounded, "a mean of integers is rounded: convert them first")
    if 0 in shape_of(numbers):
        return x
    numbers = _row(call, numbers)
    if not call.name.endswith("value"):
        source = _row(call, source)
        for along, extent in enumerate(shape_of(numbers)):
            source = part_between(call, source, along, 0, extent)
    reduction = "none" if call.packet == "scatter" else _REDUCTIONS[reduce]
    settings: dict[str, Any] = {"from_end": False, "includes": include_self}
    y = scatter_elements(
        call, _row(call, x), numbers, source, axis, reduction, **settings
    )
    return call.reshaped(y, shape_of(x))


def _row(call: Call, value: Any) -> Any:
    """A value with an axis at least."""
    return call.reshaped(value, shape_of(value) or [1])


@aten("put")
def put(call: Call, x: Any, numbers: Any, source: Any, accumulate: bool = False) -> Any:
    """Elements in place of those with some numbers, or added to them."""
    whole = flat(call, x)
    numbers = from_begin(call, numbers, shape_of(whole)[0])
    y = _put(call, whole, numbers, flat(call, source), accumulate)
    return call.reshaped(y, shape_of(x))


# ---- Indices that depend on data ----


@aten("masked_select")
def _masked_select(call: Call, x: Any, mask: Any) -> Any:
    shape = broadcast_shapes(shape_of(x), shape_of(mask))
    if not is_known(mask):
        return rows_where(call, call.broadcast(x, shape), [call.broadcast(mask, shape)])
    places = np.flatnonzero(np.broadcast_to(mask, as_numbers(shape)))
    return rows(call, flat(call, call.broadcast(x, shape)), places, 0)


@aten("masked_scatter")
def _masked_scatter(call: Call, x: Any, mask: Any, source: Any) -> Any:
    """The elements of another tensor, one after the other, where a mask is true."""
    shape = broadcast_shapes(shape_of(x), shape_of(mask))
    x, mask = (call.broadcast(part, shape) for part in (x, mask))
    row, source = flat(call, mask), flat(call, source)
    if is_known(mask):
        numbers: Any = np.maximum(np.cumsum(np.asarray(row)) - 1, 0)
    else:
        number = call("sub", running_count(call, row, 0), 1.0, hint="number")
        numbers = call("max", number, 0.0, hint="at_least")
    taken = call.reshaped(rows(call, source, numbers, 0), shape, "taken")
    return call("select", mask, taken, x)


# ---- Writes into views ----


@aten("copy")
def _copy(call: Call, _: Any, source: Any) -> Any:
    return call.broadcast(call.typed(source, call.result_dtype), call.result_shape)


@aten("slice_scatter")
def _slice_scatter(
    call: Call, x: Any, new: Any, axis: int = 0, start: Any = None, end: Any = None,
    step: int = 1,
) -> Any:  # fmt: skip
    if 0 in shape_of(new):
        return x
    along, begin, last, _ = slice_bounds(call, x, axis, start, shape_of(new), step)
    if step == 1:
        return _between(call, x, new, along, begin, last)
    return _put_rows(call, x, np.arange(begin, last, step), new, along)


@aten("diagonal_scatter")
def _diagonal_scatter(
    call: Call, x: Any, new: Any, offset: int = 0, first: int = 0, second: int = 1
) -> Any:
    last = move_axes(call, x, [first, second], [-2, -1])
    *outer, height, width = shape_of(last)
    before = max(-offset, 0)
    after = height - before - shape_of(new)[-1]
    column = call("unsqueeze", new, hint="column", axes=[len(outer) + 1])
    if before or after:
        sides = [*[(0, 0)] * len(outer), (before, after), (0, 0)]
        column = call("pad", column, hint="column", padding=sides)
    inside = np.eye(int(height), int(width), offset, bool)
    mask = inside.reshape([*[1] * len(outer), *inside.shape])
    y = call("select", mask, column, last)
    return move_axes(call, y, [-2, -1], [first, second])


@aten("as_strided_scatter")
def _as_strided_scatter(
    call: Call, x: Any, new: Any, size: Any, strides: Any, offset: Any = None
) -> Any:
    places = in_memory(call, x, size, strides, offset)
    y = _put(call, flat(call, x), places, flat(call, new), False)
    return call.reshaped(y, shape_of(x))
