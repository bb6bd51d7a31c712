"""Operations that read or write the elements at given indices, as comparisons of the
indices with all positions along an axis: NNEF does not gather single elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from nnef_grad.interop.khronos import Array
from nnef_grad.interop.onnx_files.node import (
    Node,
    Tensor,
    constant,
    conversion,
    moved_last,
    positive,
)

# Each of the largest elements is a step of an unrolled loop.
_MOST = 128


@conversion("GatherElements")
def gather_elements(node: Node, x: Tensor, indices: Tensor) -> None:
    """The element of a row that an index names. Only as many rows as there are indices
    are read.
    """
    rank, extent = x.rank, x.shape[node.get("axis", 0)]
    (axis,) = positive([node.get("axis", 0)], rank)
    kept = [extent if a == axis else n for a, n in enumerate(indices.shape)]
    axes = list(range(rank))
    rows = node.step("slice", x, to=kept, axes=axes, begin=[0] * rank, end=kept)
    node.emit(
        "pick",
        node.unsqueeze(node.transposed(rows, moved_last(axis, rank)), [axis]),
        node.unsqueeze(indices, [rank]),
        node.positions(extent, rank, rank + 1),
        extent=float(extent),
        axis=rank,
    )


_PUTS = {"none": "put", "add": "put_sums"}


@conversion("Scatter", "ScatterElements")
def scatter_elements(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> None:
    """Updates in place of the elements that their indices name, or added to them."""
    (axis,) = positive([node.get("axis", 0)], x.rank)
    extent, order = x.shape[axis], moved_last(axis, x.rank)
    wide = [n if a == axis else x.shape[a] for a, n in enumerate(indices.shape)]
    value = constant(indices)
    if value is not None and _reduction(node) == "none":
        ordered = np.diff(np.sort(np.mod(value, extent), axis), axis=axis)
        node.require(bool(ordered.all()), "indices must not be repeated")
    after = [made - n for made, n in zip(wide, indices.shape, strict=True)]

    def rows(given: Tensor, outside: float) -> Tensor:
        """A row of indices or updates for each row of the operand, as a last axis."""
        padding = [(0, n) for n in after]
        if any(after):
            given = node.step("pad", given, to=wide, padding=padding, value=outside)
        return node.unsqueeze(node.transposed(given, order), [axis])

    node.emit(
        _PUTS[_reduction(node)],
        x,
        rows(node.scalars(indices), -float(extent) - 1.0),
        rows(updates, 0.0),
        node.positions(extent, axis, x.rank),
        extent=float(extent),
        axis=x.rank,
    )


def _reduction(node: Node) -> str:
    reduction: str = node.get("reduction", "none")
    node.require(reduction in _PUTS, "reduction must be none or add")
    return reduction


@conversion("GatherND")
def gather_blocks(node: Node, x: Tensor, indices: Tensor) -> None:
    """The blocks that rows of indices name: positions in the first axes."""
    node.require(node.get("batch_dims", 0) == 0, "batch_dims must be 0")
    value, depth = constant(indices), indices.shape[-1]
    if value is None:
        raise ValueError("its indices must be known before the model is run")
    places, rest = x.shape[:depth], x.shape[depth:]
    taken = np.ravel_multi_index(
        tuple(np.moveaxis(np.mod(value, places), -1, 0)), places
    )
    blocks = node.reshaped(x, [prod(places), *rest])
    node.emit("gather", blocks, node.literal(taken, np.int64), axis=0)


@conversion("ScatterND")
def scatter_blocks(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> None:
    """Updates in place of the blocks that their indices name, or added to them. A row
    of indices is a position in the first axes.
    """
    places, value = x.shape[: indices.shape[-1]], constant(indices)
    if value is None:
        rows = node.reshaped(
            _numbers(node, indices, places), [1, prod(indices.shape[:-1])]
        )
        _put_blocks(node, x, rows, updates, len(places))
        return
    # Negative indices count from the end.
    table = np.mod(value, places).reshape(-1, len(places))
    own = [np.unique(column) for column in table.T]
    grid = np.stack(np.meshgrid(*own, indexing="ij"), -1).reshape(-1, len(places))
    if np.array_equal(grid, table):
        _put_grid(node, x, own, updates)
        return
    steps = [prod(places[axis + 1 :]) for axis in range(len(places))]
    taken = table @ steps
    last = (
        np.arange(len(taken)) if _reduction(node) == "add" else _last_of_equals(taken)
    )
    if len(last) < len(taken):
        size = prod(x.shape[len(places) :])
        blocks = node.reshaped(updates, [len(taken), size])
        index = node.literal(last, np.int64)
        updates = node.step("gather", blocks, index, to=[len(last), size], axis=0)
    row = node.literal(taken[last].reshape(1, -1), np.int64)
    _put_blocks(node, x, row, updates, len(places))


def _numbers(node: Node, indices: Tensor, places: Sequence[int]) -> Tensor:
    """The number of the position that a row of indices names, counted in row-major order
    of the first axes; negative indices of a single axis are left to what reads them.
    """
    if len(places) == 1:
        return indices
    shape = [1] * (indices.rank - 1) + [len(places)]
    steps = np.cumprod([1, *places[:0:-1]])[::-1]
    extents, weights = (node.literal(np.reshape(n, shape)) for n in (places, steps))
    axis, given = indices.rank - 1, node.scalars(indices)
    made = [*indices.shape[:-1], 1]
    return node.step("row_numbers", given, extents, weights, to=made, axis=axis)


def _put_blocks(
    node: Node, x: Tensor, row: Tensor, updates: Tensor, depth: int = 1
) -> None:
    """Puts updates into the blocks with the numbers in a row, counted in row-major
    order of the first axes.
    """
    total, size = prod(x.shape[:depth]), prod(x.shape[depth:])
    made = node.step(
        "put_rows" if _reduction(node) == "none" else "put_row_sums",
        node.reshaped(x, [total, size]),
        row,
        node.reshaped(updates, [row.shape[1], size]),
        node.positions(total, 0, 2),
        to=[total, size],
        extent=float(total),
    )
    node.emit("reshape", made, shape=list(x.shape))


def _put_grid(node: Node, x: Tensor, own: list[Array], updates: Tensor) -> None:
    """Puts updates into the positions that are given for each axis, as an assignment to
    a slice does.
    """
    made = node.reshaped(updates, [*map(len, own), *x.shape[len(own) :]])
    hits = []
    for axis, (taken, extent) in enumerate(zip(own, x.shape, strict=False)):
        if len(taken) == extent:
            continue
        shape = [*x.shape[: axis + 1], *made.shape[axis + 1 :]]
        before, after = int(taken[0]), extent - 1 - int(taken[-1])
        if len(taken) == extent - before - after:
            sides = [(0, 0)] * x.rank
            sides[axis] = (before, after)
            made = node.step("pad", made, to=shape, padding=sides)
        else:
            index = node.literal(
                np.searchsorted(taken[:-1], np.arange(extent)), np.int64
            )
            made = node.step("gather", made, index, to=shape, axis=axis)
        hit = np.isin(np.arange(extent), taken)
        hits.append(hit.reshape([-1 if a == axis else 1 for a in range(x.rank)]))
    rest = x if _reduction(node) == "none" else node.literal(0.0)
    for hit in hits:
        made = node.step(
            "select",
            node.literal(hit, np.bool_),
            made,
            rest,
            to=x.shape,
            dtype=np.float32,
        )
    if rest is x:
        node.emit("copy", made)
    else:
        node.emit("add", x, made)


def _last_of_equals(items: Array) -> Array:
    """The places of items that do not occur again."""
    _, places = np.unique(items[::-1], return_index=True)
    return np.sort(len(items) - 1 - places)


@conversion("TopK")
def top(node: Node, x: Tensor, *_: Tensor | None) -> None:
    """The largest elements, or the smallest, one after the other."""
    (count,) = node.items("k", 1)
    (axis,) = positive([node.get("axis", -1)], x.rank)
    node.require(count <= _MOST, f"k must be at most {_MOST}")
    shape = [count if a == axis else n for a, n in enumerate(x.shape)]
    indices = node.tensor(shape, np.int64)
    sign = 1.0 if node.get("largest", 1) else -1.0
    positions = node.positions(x.shape[axis], axis, x.rank)
    values = node.results[0] if node.results[0].name else node.tensor(shape, x.dtype)
    if len(node.results) > 1 and node.results[1].name:
        indices = node.results[1]
    results = (values, indices)
    node.emit("top", x, positions, results=results, sign=sign, axis=axis, count=count)


@conversion("CumSum")
def cumulative_sum(node: Node, x: Tensor, axis: Tensor) -> None:
    """Sums of the elements up to each one, which it may leave out."""
    (along,) = positive(node.items("axis", 1), x.rank)
    before = x.shape[along] - 1
    pair = (0, before) if node.get("reverse", 0) else (before, 0)
    size = [before + 1 if a == along else 1 for a in range(x.rank)]
    padding = [pair if a == along else (0, 0) for a in range(x.rank)]
    is_whole = np.dtype(x.dtype).kind != "f"
    name = "cumulative_sum_before" if node.get("exclusive", 0) else "cumulative_sum"
    if not is_whole:
        node.emit(name, x, size=size, padding=padding)
        return
    made = node.step(name, node.scalars(x), to=x.shape, size=size, padding=padding)
    # The runtime may compute it as a mean.
    node.emit("cast", node.step("round", made, to=x.shape))


@conversion("OneHot")
def one_hot(node: Node, indices: Tensor, depth: Tensor, values: Tensor) -> None:
    """A value at each index, and another one elsewhere."""
    (axis,) = positive([node.get("axis", -1)], node.result.rank)
    extent, pair = node.result.shape[axis], constant(values)
    if pair is None:
        raise ValueError("its values must be known before the model is run")
    off, on = pair.tolist()
    node.emit(
        "one_hot",
        node.unsqueeze(indices, [axis]),
        node.positions(extent, axis, node.result.rank),
        extent=float(extent),
        off=float(off),
        on=float(on),
    )
