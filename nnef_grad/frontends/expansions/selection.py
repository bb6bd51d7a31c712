"""Elements at indices. The standard reads rows at indices and writes none: the others are
comparisons of the indices with all positions along an axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nnef_grad.emit.arithmetic import MAX_ITEMS
from nnef_grad.frontends.step import Step
from nnef_grad.frontends.values import (
    as_array,
    dtype_of,
    is_known,
    is_uniform,
    shape_of,
    simple,
)
from nnef_grad.graph.extents import has_symbols

# Each of the largest elements is a step of an unrolled loop.
MOST = 128


def gather(step: Step, x: Any, indices: Any, axis: int, datum_type: str = "") -> Any:
    """Rows at indices; known ones may count from the end."""
    along = step.axis(axis, len(shape_of(x)))
    if is_known(indices):
        indices = np.mod(np.asarray(indices), shape_of(x)[along])
        if is_known(x):
            return simple(as_array(np.take(as_array(x), indices, along)))
    elif along == 0 and len(rows := step.reading.empty_rows(x)) == 1:
        step.warn(
            f"row {rows[0]} of the table has only zeros: if it is a padding_idx, it has"
            " no gradient in PyTorch, but has one here, unless the training step is told"
        )
    return step("gather", x, indices, axis=along)


def gather_elements(
    step: Step, x: Any, indices: Any, axis: int, *, from_end: bool = True
) -> Any:
    """The element of each row at an index. Reads only as many rows as there are
    indices.
    """
    shape, wanted = shape_of(x), shape_of(indices)
    rank = len(shape)
    along = step.axis(axis, rank)
    extent = shape[along]
    ranks = f"the operand has rank {rank}, and the indices have rank {len(wanted)}"
    step.require(len(wanted) == rank, ranks)
    kept = [extent if a == along else n for a, n in enumerate(wanted)]
    if kept != list(shape):
        axes, begin = list(range(rank)), [0] * rank
        x = step("slice", x, hint="rows", axes=axes, begin=begin, end=kept)
    last = step.transposed(x, _moved_last(along, rank), "last")
    return step.expand(
        "pick",
        step("unsqueeze", last, hint="wide", axes=[along]),
        _scalars(step, step("unsqueeze", indices, hint="indices", axes=[rank])),
        step.positions(extent, rank, rank + 1),
        extent=float(extent) if from_end else 0.0,
        axis=rank,
    )


def scatter_elements(
    step: Step,
    x: Any,
    indices: Any,
    updates: Any,
    axis: int,
    reduction: str,
    *,
    from_end: bool = True,
) -> Any:
    """Replaces the elements at indices with updates, or adds these."""
    updates, is_one = _one_of(updates, reduction)
    name = _put(step, reduction, "put_one" if is_one else "put", "put_sums")
    shape, wanted = shape_of(x), shape_of(indices)
    rank = len(shape)
    along = step.axis(axis, rank)
    fits = len(wanted) == rank and all(
        n <= shape[a] or a == along for a, n in enumerate(wanted)
    )
    step.require(fits, f"indices of shape {list(wanted)} are not in {list(shape)}")
    for_each = is_one or shape_of(updates) == wanted
    step.require(for_each, "there must be an update for each index")
    extent, order = shape[along], _moved_last(along, rank)
    if reduction == "none" and not is_one:
        is_table = is_known(indices)
        places = np.mod(np.asarray(indices), extent) if is_table else indices
        _refuse_repeated(step, places, along)
    padding = [(0, 0 if a == along else shape[a] - n) for a, n in enumerate(wanted)]

    def rows(value: Any, outside: float) -> Any:
        """A row of indices or updates for each row of the operand, as a last axis."""
        if any(after for _, after in padding):
            value = step("pad", value, padding=padding, value=outside)
        return step("unsqueeze", step.transposed(value, order), axes=[along])

    return step.expand(
        name,
        x,
        rows(_scalars(step, indices), -float(extent) - 1.0),
        updates if is_one else rows(updates, 0.0),
        step.positions(extent, along, rank + 1),
        extent=float(extent) if from_end else 0.0,
        axis=rank,
    )


def gather_blocks(step: Step, x: Any, indices: Any, batch_dims: int) -> Any:
    """The blocks at positions in the first axes; a row of indices is a position."""
    shape, (*outer, depth) = shape_of(x), shape_of(indices)
    first = batch_dims + depth
    step.require(first <= len(shape), f"the operand has no {first} axes")
    number = _block_numbers(step, indices, shape[batch_dims:first])
    if batch_dims:
        batches = shape[:batch_dims]
        step.require(outer[:batch_dims] == list(batches), "batches differ")
        starts = np.arange(float(prod(batches))) * prod(shape[batch_dims:first])
        wide = [*batches, *(1,) * (len(outer) - batch_dims)]
        number = step("add", number, starts.reshape(wide), hint="number")
    blocks = step.reshaped(x, [prod(shape[:first]), *shape[first:]], "blocks")
    return step("gather", blocks, step("cast", number, dtype="integer"), axis=0)


def scatter_blocks(
    step: Step, x: Any, indices: Any, updates: Any, reduction: str
) -> Any:
    """Replaces blocks at positions in the first axes with updates, or adds these."""
    depth = shape_of(indices)[-1]
    number = _block_numbers(step, indices, shape_of(x)[:depth])
    return put_blocks(step, x, number, updates, depth, reduction)


def put_blocks(
    step: Step,
    x: Any,
    number: Any,
    updates: Any,
    depth: int,
    reduction: str,
    *,
    from_end: bool = True,
) -> Any:
    """Replaces blocks with some numbers, counted in so many first axes, or adds to them."""
    name = _put(step, reduction, "put_rows", "put_row_sums")
    shape, count = shape_of(x), prod(shape_of(number))
    total, size = prod(shape[:depth]), prod(shape[depth:])
    settings: dict[str, Any] = {"extent": float(total) if from_end else 0.0}
    updates, is_one = _one_of(updates, reduction)
    if is_one:
        name, settings["axis"] = "put_one", 1
    else:
        updates = step.reshaped(updates, [count, size], "updates")
    if reduction == "none" and not is_one:
        _refuse_repeated(step, number)
    blocks = step.expand(
        name,
        step.reshaped(x, [total, size], "blocks"),
        step.reshaped(_scalars(step, number), [1, count], "row"),
        updates,
        step.positions(total, 0, 2),
        **settings,
    )
    return step.reshaped(blocks, shape)


def _one_of(updates: Any, reduction: str) -> tuple[Any, bool]:
    """Updates, and whether one is for all indices: known equal ones are one number."""
    if reduction == "none" and is_known(updates) and is_uniform(as_array(updates)):
        updates = as_array(updates).flat[0].item()
    return updates, reduction == "none" and not shape_of(updates)


def _block_numbers(step: Step, indices: Any, places: Sequence[int]) -> Any:
    """The row-major numbers of blocks, as scalars; indices may count from the end."""
    shape = shape_of(indices)
    depth, last = shape[-1], len(shape) - 1
    step.require(len(places) == depth, f"{depth} indices are for other axes")
    row = [1] * last + [depth]
    number = _scalars(step, indices)
    extents = _numbers(step, places, row)
    is_before = step("lt", number, 0.0)
    positive = step("select", is_before, step("add", number, extents), number)
    steps = [prod(places[axis + 1 :]) for axis in range(depth)]
    parts = step("mul", positive, _numbers(step, steps, row), hint="parts")
    sums = step("sum_reduce", parts, hint="sums", axes=[last])
    return step("squeeze", sums, hint="number", axes=[last])


def _numbers(step: Step, extents: Sequence[Any], shape: Sequence[int]) -> Any:
    if not any(map(has_symbols, extents)):
        return np.array(extents, dtype=np.float64).reshape(shape)
    return step.constant(np.array(extents, dtype=object).reshape(shape), "scalar")


def largest(step: Step, x: Any, k: int, axis: int, is_largest: bool) -> Any:
    """The largest or smallest elements, one after the other, and their indices."""
    step.require(k <= MOST, f"k must be at most {MOST}")
    shape = shape_of(x)
    along = step.axis(axis, len(shape))
    positions = step.positions(shape[along], along, len(shape))
    sign = 1.0 if is_largest else -1.0
    return step.expand("top", x, positions, sign=sign, axis=along, count=k)


def _put(step: Step, reduction: str, put: str, add: str) -> str:
    name = {"none": put, "add": add}.get(reduction)
    if name is None:
        step.refuse(f"reduction must be none or add, but is '{reduction}'")
    return name


def _refuse_repeated(step: Step, indices: Any, axis: int | None = None) -> None:
    """Of several updates of one element the last one counts, and here they are added."""
    if is_known(indices):
        gaps = np.diff(np.sort(np.asarray(indices), axis), axis=axis or 0)
        message = "indices must differ, unless the reduction is add"
        step.require(bool(gaps.all()), message)


def _scalars(step: Step, x: Any) -> Any:
    if is_known(x):
        return np.asarray(x, float)
    return step.reading.materialize(x, "scalar", f"{step.hint}_indices", step.span)


def _moved_last(axis: int, rank: int) -> list[int]:
    """The axes of a rank, with one of them at the end."""
    return [*range(axis), *range(axis + 1, rank), axis]


def numbers(step: Step, start: Any, end: Any, increment: int) -> Any:
    """Integers from one number to another, which is excluded."""
    step.require(increment != 0, "the step must not be zero")
    if has_symbols((start, end)):
        is_counted = (start, increment) == (0, 1)
        step.require(is_counted, "symbols are counted from 0, with a step of 1")
        return step("cast", step.positions(end, 0, 1), dtype="integer")
    count = len(range(start, end, increment))
    step.require(count <= MAX_ITEMS, f"{count} numbers are more than {MAX_ITEMS}")
    return np.arange(start, end, increment, dtype=np.int64)


def first_rows(step: Step, x: Any, axis: int, count: Any) -> Any:
    """The first elements of a table, whose number may be open, by their indices."""
    return step("gather", x, numbers(step, 0, count, 1), axis=axis)


def triangle(step: Step, x: Any, k: int, upper: bool) -> Any:
    """A triangle of matrices, and zeros elsewhere, by selection: other elements may be
    infinite.
    """
    shape = shape_of(x)
    step.require(len(shape) >= 2, "the operand must have rank 2 at least")
    rank, is_inside = len(shape), "ge" if upper else "le"
    if has_symbols(shape[-2:]):
        places = (rank - 2, rank - 1)
        rows, columns = (step.positions(shape[a], a, rank) for a in places)
    else:
        indices = np.indices(shape[-2:])
        rows, columns = indices.reshape(2, *(1,) * (rank - 2), *shape[-2:])
    diagonal = step("sub", columns, rows, hint="diagonal")
    mask = step(is_inside, diagonal, k, hint="mask")
    zero = {"scalar": 0.0, "integer": 0, "logical": False}[dtype_of(x)]
    return step("select", mask, x, zero)


def one_hot(
    step: Step, indices: Any, axis: int, extent: int, off: float, on: float
) -> Any:
    """One number at each index along a new axis, and another elsewhere."""
    rank = len(shape_of(indices)) + 1
    along = step.axis(axis, rank)
    wide = step("unsqueeze", indices, axes=[along])
    number = step.reading.materialize(wide, "scalar", step.hint, step.span)
    positions = step.positions(extent, along, rank)
    values = {"extent": float(extent), "off": off, "on": on}
    return step.expand("one_hot", number, positions, **values)
