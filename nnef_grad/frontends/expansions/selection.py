"""Elements at indices. The standard reads rows at indices and writes none: the others are
comparisons of the indices with all positions along an axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nnef_grad.emit.arithmetic import MAX_ITEMS
from nnef_grad.frontends.expansions.reductions import product
from nnef_grad.frontends.values import (
    as_extents,
    described,
    dtype_of,
    is_known,
    is_open,
    is_uniform,
    shape_of,
    simple,
)
from nnef_grad.frontends.view import View
from nnef_grad.graph.extents import Dimension, as_numbers, has_symbols
from nnef_grad.graph.ir import Tensor


def from_begin(view: View, indices: Any, extent: Any) -> Any:
    """Indices, of which negative ones count from the end, as ones that do not: scalars,
    if that needs a computation.
    """
    is_fixed = is_known(indices) and not is_open(indices)
    if is_fixed and not is_open(extent):
        numbers = np.asarray(indices)
        outside = (numbers < np.negative(extent)) | (numbers >= extent)
        what = f"indices are outside of an axis of {described(extent)}"
        view.require(not outside.any(), what)
        return simple(np.where(numbers < 0, numbers + extent, numbers))
    bound = view.reading.range_of(indices).lower
    if (np.min(indices, initial=0) if is_fixed else bound) >= 0:
        return indices
    return _place(view, indices, extent)


def _place(view: View, indices: Any, extent: Any) -> Any:
    operands, hint = [_scalars(view, indices), extent], f"{view.hint}_place"
    return view.reading.library("from_begin", operands, {}, hint, view.span)


def gather(view: View, x: Any, indices: Any, axis: int, datum_type: str = "") -> Any:
    """Rows at indices, which may count from the end."""
    along = view.axis(axis, len(shape_of(x)))
    extent = shape_of(x)[along]
    if (begin := _one_row(indices, extent)) is not None and not is_known(x):
        return _row(view, x, along, begin, len(shape_of(indices)))
    whole = from_begin(view, indices, extent)
    if is_known(x) and is_known(whole):
        return simple(np.asarray(np.take(x, whole, along)))
    if isinstance(whole, Tensor) and whole is not indices:
        view.require_exact(extent - 1)
    empty = [] if is_known(whole) or along else view.reading.empty_rows(x)
    if len(empty) == 1:
        view.warn(
            f"row {empty[0]} of the table has only zeros: if it is a padding_idx, it has"
            " no gradient in PyTorch, but has one here, unless the training step is told"
        )
    return view("gather", x, whole, axis=along)


def _one_row(indices: Any, extent: Any) -> Any:
    """Where a row begins, if the index is that of one that every extent has; or None."""
    if not is_known(indices) or is_open(indices) or np.size(indices) != 1:
        return None
    index = int(np.asarray(indices).item())
    ends = (extent, extent) if isinstance(extent, int) else (1, 1)
    if not -ends[0] <= index < ends[1]:
        return None
    return index + extent if index < 0 else index


def _row(view: View, x: Any, axis: int, begin: Any, rank: int) -> Any:
    """A row along an axis, with so many axes of one element in the place of this one."""
    more = list(range(axis, axis + rank - 1))
    row = view.piece(x, axis, begin, begin + 1, None if rank == 1 else "row")
    if not rank:
        return view("squeeze", row, axes=[axis])
    return view("unsqueeze", row, axes=more) if more else row


def gather_elements(
    view: View, x: Any, indices: Any, axis: int, *, from_end: bool = True
) -> Any:
    """The element of each row at an index. Reads only as many rows as there are
    indices.
    """
    shape, wanted = shape_of(x), shape_of(indices)
    rank = len(shape)
    along = view.axis(axis, rank)
    extent = shape[along]
    ranks = f"the operand has rank {rank}, and the indices have rank {len(wanted)}"
    view.require(len(wanted) == rank, ranks)
    if from_end:
        indices = from_begin(view, indices, extent)
    kept = [extent if a == along else n for a, n in enumerate(wanted)]
    if kept != list(shape):
        axes, begin = list(range(rank)), [0] * rank
        x = view("slice", x, hint="rows", axes=axes, begin=begin, end=kept)
    return at_indices(view, x, indices, along)


def at_indices(view: View, x: Any, indices: Any, axis: int) -> Any:
    """The elements at indices from the beginning of an axis, for each row."""
    rank = len(shape_of(x))
    last = view.transposed(x, _moved_last(axis, rank), "last")
    return view.expand(
        "pick",
        view("unsqueeze", last, hint="wide", axes=[axis]),
        _scalars(view, view("unsqueeze", indices, hint="indices", axes=[rank])),
        view.positions(shape_of(x)[axis], rank, rank + 1),
        axis=rank,
    )


def scatter_elements(
    view: View,
    x: Any,
    indices: Any,
    updates: Any,
    axis: int,
    reduction: str,
    *,
    from_end: bool = True,
    includes: bool = True,
) -> Any:
    """Replaces the elements at indices with updates, or reduces them with these; or reduces
    these alone, unless it includes the elements.
    """
    updates, is_one = _one_of(updates, reduction)
    is_reduced = reduction in _REDUCTIONS or not includes
    if not is_reduced:
        name = _put(view, reduction, "put_one" if is_one else "put", "put_sums")
    shape, wanted = shape_of(x), shape_of(indices)
    rank = len(shape)
    along = view.axis(axis, rank)
    fits = len(wanted) == rank and all(
        a == along or n <= shape[a] for a, n in enumerate(wanted)
    )
    view.require(fits, f"indices of shape {list(wanted)} are not in {list(shape)}")
    for_each = is_one or shape_of(updates) == wanted
    view.require(for_each, "there must be an update for each index")
    extent, order = shape[along], _moved_last(along, rank)
    if from_end:
        indices = from_begin(view, indices, extent)
    if reduction == "none" and not is_one:
        _refuse_repeated(view, indices, along)
    padding = [(0, 0 if a == along else shape[a] - n) for a, n in enumerate(wanted)]

    def rows(value: Any, outside: float) -> Any:
        """A row of indices or updates for each row of the operand, as a last axis."""
        if any(after for _, after in padding):
            value = view("pad", value, padding=padding, value=outside)
        return view("unsqueeze", view.transposed(value, order), axes=[along])

    places = rows(_scalars(view, indices), -1.0)
    new = updates if is_one else rows(updates, 0.0)
    numbers = view.positions(extent, along, rank + 1)
    if is_reduced:
        hit = view("eq", places, numbers, hint="hit")
        return _reduced(view, x, hit, new, reduction, includes)
    return view.expand(name, x, places, new, numbers, axis=rank)


_REDUCTIONS = ("mul", "mean", "max", "min")


def _reduced(
    view: View, x: Any, hit: Any, updates: Any, reduction: str, includes: bool
) -> Any:
    """Elements, reduced with the updates that hit each of them, which are along a last axis;
    or these alone, where there are any.
    """
    axis = len(shape_of(x))
    settings: dict[str, Any] = {"axis": axis, "includes": includes}
    if reduction == "mul":
        factors = view("select", hit, updates, 1.0, hint="factors")
        y = view("squeeze", product(view, factors, [axis]), hint="product", axes=[axis])
        y = view("mul", x, y) if includes else y
    elif reduction in ("max", "min"):
        # As in PyTorch, an element that is not included has a share nevertheless.
        own = x if includes or is_known(x) else view.reading.emitter.stop(x)
        settings["is_largest"] = reduction == "max"
        y = view.expand("extrema_of_hits", x, own, hit, updates, **settings)
    else:
        y = view.expand(f"{reduction}_of_hits", x, hit, updates, **settings)
    if includes:
        return y
    is_hit = view("any_reduce", hit, hint="is_hit", axes=[axis])
    return view("select", view("squeeze", is_hit, axes=[axis]), y, x)


def gather_blocks(view: View, x: Any, indices: Any, batch_dims: int) -> Any:
    """The blocks at positions in the first axes; a row of indices is a position."""
    shape, (*outer, depth) = shape_of(x), shape_of(indices)
    first = batch_dims + depth
    view.require(first <= len(shape), f"the operand has no {first} axes")
    number = _block_numbers(view, indices, shape[batch_dims:first])
    if not is_known(indices):
        view.require_exact(prod(shape[:first]) - 1)
    if batch_dims:
        batches = shape[:batch_dims]
        view.require(outer[:batch_dims] == list(batches), "batches differ")
        view.reading.spend(prod(batches))
        starts = np.arange(float(prod(batches))) * prod(shape[batch_dims:first])
        wide = [*batches, *(1,) * (len(outer) - batch_dims)]
        number = view("add", number, starts.reshape(wide), hint="number")
    blocks = view.reshaped(x, [prod(shape[:first]), *shape[first:]], "blocks")
    return view("gather", blocks, view("cast", number, dtype="integer"), axis=0)


def scatter_blocks(
    view: View, x: Any, indices: Any, updates: Any, reduction: str
) -> Any:
    """Replaces blocks at positions in the first axes with updates, or reduces them with these."""
    depth = shape_of(indices)[-1]
    number = _block_numbers(view, indices, shape_of(x)[:depth])
    return put_blocks(view, x, number, updates, depth, reduction)


def put_blocks(
    view: View,
    x: Any,
    number: Any,
    updates: Any,
    depth: Dimension,
    reduction: str,
) -> Any:
    """Replaces blocks with some numbers, counted in so many first axes, or reduces them."""
    shape, count = shape_of(x), prod(shape_of(number))
    total, size = prod(shape[:depth]), prod(shape[depth:])
    last = int(np.max(number, initial=0)) if is_known(number) else total - 1
    view.require_exact(last)
    if reduction in _REDUCTIONS:
        blocks = view.reshaped(x, [total, size], "blocks")
        rows = view.reshaped(_scalars(view, number), [count, 1], "rows")
        places = view.broadcast(rows, (count, size))
        new = view.reshaped(updates, [count, size], "updates")
        made = scatter_elements(view, blocks, places, new, 0, reduction, from_end=False)
        return view.reshaped(made, shape)
    name = _put(view, reduction, "put_rows", "put_row_sums")
    settings: dict[str, Any] = {}
    updates, is_one = _one_of(updates, reduction)
    if is_one:
        name, settings["axis"] = "put_one", 1
    else:
        updates = view.reshaped(updates, [count, size], "updates")
    if reduction == "none" and not is_one:
        _refuse_repeated(view, number)
    blocks = view.expand(
        name,
        view.reshaped(x, [total, size], "blocks"),
        view.reshaped(_scalars(view, number), [1, count], "row"),
        updates,
        view.positions(total, 0, 2),
        **settings,
    )
    return view.reshaped(blocks, shape)


def _one_of(updates: Any, reduction: str) -> tuple[Any, bool]:
    """Updates, and whether one is for all indices: known equal ones are one number."""
    if reduction == "none" and is_known(updates) and is_uniform(np.asarray(updates)):
        updates = np.asarray(updates).flat[0].item()
    return updates, reduction == "none" and not shape_of(updates)


def _block_numbers(view: View, indices: Any, extents: Sequence[Dimension]) -> Any:
    """The row-major numbers of blocks, as scalars; indices may count from the end."""
    shape = shape_of(indices)
    depth, last = shape[-1], len(shape) - 1
    view.require(len(extents) == depth, f"{depth} indices are for other axes")
    row = [1] * last + [depth]
    number = from_begin(view, indices, as_extents(extents).reshape(row))
    positive = _scalars(view, number)
    steps = [prod(extents[axis + 1 :]) for axis in range(depth)]
    parts = view("mul", positive, _numbers(view, steps, row), hint="parts")
    sums = view("sum_reduce", parts, hint="sums", axes=[last])
    return view("squeeze", sums, hint="number", axes=[last])


def _numbers(view: View, extents: Sequence[Any], shape: Sequence[Dimension]) -> Any:
    if not any(map(has_symbols, extents)):
        return np.array(extents, dtype=np.float64).reshape(shape)
    return view.constant(np.array(extents, dtype=object).reshape(shape), "scalar")


def first_largest(view: View, x: Any, axis: int, is_largest: bool) -> tuple[Any, Any]:
    """The largest or the smallest element along an axis, and its index: of equal ones the
    first.
    """
    shape = shape_of(x)
    key = x if is_largest else view("neg", x, hint="given")
    index = view("argmax_reduce", key, hint="index", axes=[axis])
    positions = view.positions(shape[axis], axis, len(shape))
    hit = view("eq", _scalars(view, index), positions, hint="hit")
    element = view("select", hit, x, 0.0, hint="chosen")
    return view("sum_reduce", element, hint="element", axes=[axis]), index


def last_of_equals(view: View, name: str, x: Any, axis: int) -> Any:
    """Where the last of several greatest, or least, elements is: the first in reverse order,
    counted from the end.
    """
    extent = shape_of(x)[axis]
    turned = view.piece(x, axis, extent - 1, -(2**31) + 1, stride=-1)
    index = view(name, turned, axes=[axis])
    return view("cast", view("sub", float(extent - 1), index), dtype="integer")


def _put(view: View, reduction: str, put: str, add: str) -> str:
    name = {"none": put, "add": add}.get(reduction)
    if name is None:
        view.refuse(f"reduction must be none or add, but is '{reduction}'")
    return name


def _refuse_repeated(view: View, indices: Any, axis: int | None = None) -> None:
    """Of several updates of one element the last one counts, and here they are added."""
    if is_known(indices):
        gaps = np.diff(np.sort(np.asarray(indices), axis), axis=axis or 0)
        message = "indices must differ, unless the reduction is add"
        view.require(bool(gaps.all()), message)


def _scalars(view: View, x: Any) -> Any:
    return view.reading.converted(x, "scalar", f"{view.hint}_indices", view.span)


def _moved_last(axis: int, rank: int) -> list[int]:
    """The axes of a rank, with one of them at the end."""
    return [*range(axis), *range(axis + 1, rank), axis]


def arange(view: View, start: Any, end: Any, increment: int) -> Any:
    """Integers from one number to another, which is excluded."""
    view.require(increment != 0, "the step must not be zero")
    if has_symbols((start, end)):
        view.require(increment == 1, "symbols are counted with a step of 1")
        places = view.positions(end - start, 0, 1)
        first = view.reading.materialize(start, "scalar", view.hint, view.span)
        moved = places if start == 0 else view("add", places, first, hint="moved")
        return view("cast", moved, dtype="integer")
    count = len(range(start, end, increment))
    view.require(count <= MAX_ITEMS, f"{count} numbers are more than {MAX_ITEMS}")
    return np.arange(start, end, increment, dtype=np.int64)


def triangle(view: View, x: Any, k: int, upper: bool) -> Any:
    """A triangle of matrices, and zeros elsewhere, by selection: other elements may be
    infinite.
    """
    shape = shape_of(x)
    view.require(len(shape) >= 2, "the operand must have rank 2 at least")
    rank, is_inside = len(shape), "ge" if upper else "le"
    if has_symbols(shape[-2:]):
        places = (rank - 2, rank - 1)
        rows, columns = (view.positions(shape[a], a, rank) for a in places)
    else:
        view.reading.spend(2 * prod(shape[-2:]))
        indices = np.indices(as_numbers(shape[-2:]))
        rows, columns = indices.reshape(2, *(1,) * (rank - 2), *shape[-2:])
    diagonal = view("sub", columns, rows, hint="diagonal")
    mask = view(is_inside, diagonal, k, hint="mask")
    zero = {"scalar": 0.0, "integer": 0, "logical": False}[dtype_of(x)]
    return view("select", mask, x, zero)


def one_hot(
    view: View, indices: Any, axis: int, extent: Dimension, off: float, on: float
) -> Any:
    """One number at each index along a new axis, and another elsewhere."""
    rank = len(shape_of(indices)) + 1
    along = view.axis(axis, rank)
    wide = view("unsqueeze", indices, axes=[along])
    # An index outside is that of no place.
    positions = view.positions(extent, along, rank)
    number = _place(view, wide, float(extent))
    return view.expand("one_hot", number, positions, off=off, on=on)
