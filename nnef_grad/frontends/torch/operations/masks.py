"""Masks that depend on data: what they take, and what is put where they are true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import torch

from nnef_grad.frontends.expansions.reductions import running_sums
from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.internals import pytree
from nnef_grad.frontends.torch.selections import (
    OF_DATA,
    Classes,
    Places,
    Selection,
    is_arithmetic,
    without_shapes,
)
from nnef_grad.frontends.torch.symbols import is_number_of_data
from nnef_grad.frontends.values import dtype_of, shape_of
from nnef_grad.graph.ir import Tensor


@aten("nonzero", "argwhere", "where.default", "nonzero_numpy")
def places_where(call: Call, mask: Any) -> Any:
    """Where a mask is true, along its axes, in columns or apart."""
    mask = call.typed(mask, "logical")
    if (outer := _taken(call, call.node.args[0], 0)) is not None:
        mask = only_where(call, mask, outer, 0)
    is_apart = isinstance(call.fake, (list, tuple))
    count = (call.fake[0] if is_apart else call.fake).shape[0]
    if is_number_of_data(count):
        places = Places(_selection(call, count, mask), None)
        return places.columns if is_apart else places
    columns = [*_indices_where(call, mask, call.reading.symbols.extent(count))]
    wide = (call("unsqueeze", x, axes=[1], hint="column") for x in columns)
    return columns if is_apart else call.joined([*wide], 1)


def _indices_where(call: Call, mask: Any, count: Any) -> Iterator[Any]:
    """Where a mask is true, along each axis: as often as torch has found that the module says."""
    shape, number = shape_of(mask), numbers_where(call, mask, count)
    for axis in range(len(shape)):
        stride = prod(shape[axis + 1 :])
        after = call("floor", call("div", number, float(stride), hint="share"))
        before = call("mul", after, float(stride), hint="before")
        number = call("sub", number, before, hint="rest")
        yield call("cast", after, dtype="integer", hint=f"axis_{axis}")


def running_count(call: Call, row: Any, axis: int, *, excludes: bool = False) -> Any:
    """How many elements of a row are true up to each of them, or before it: whole scalars."""
    call.require_exact(shape_of(row)[axis])
    (ones,) = call.scalars(row)
    sums = running_sums(call, ones, axis, "scalar", excludes=excludes)
    # The runtime may compute it as a mean.
    return call("round", sums, hint="rank")


def numbers_where(call: Call, mask: Any, count: Any) -> Any:
    """The numbers of the elements of a mask that are true, in row-major order: the k-th one is
    that before which there are k.
    """
    size = prod(shape_of(mask))
    row = call.reshaped(mask, [1, size], "row")
    rank = running_count(call, row, 1, excludes=True)
    is_kth = call("eq", rank, call.positions(count, 0, 2), hint="has_rank")
    is_kth = call("and", row, is_kth, hint="is_kth")
    places = call.positions(size, 1, 2)
    numbers = call("select", is_kth, places, 0.0, hint="numbers")
    total = call("sum_reduce", numbers, axes=[1], hint="total")
    return call("squeeze", total, axes=[1], hint="number")


# Operations that leave places as they are; and those that read, or put, there.
_MOVING = ("squeeze", "view", "reshape", "flatten", "_unsafe_view", "alias", "clone")
_TAKING = (
    "index", "_unsafe_index", "index_put", "_unsafe_index_put", "index_select", "sym_size",
)  # fmt: skip


def part_of(call: Call, args: Sequence[Any]) -> Any:
    """What an operation makes of a value of which only parts are read, if it takes a part;
    None for one that reads or puts at places. Others are refused.
    """
    if isinstance(args[0], Classes):
        return _first_classes(call, *args)
    moved = _columns_of(call, *args) if isinstance(args[0], Places) else None
    call.require(moved is not None or call.packet in _TAKING, OF_DATA)
    return moved


def _columns_of(call: Call, places: Places, *args: Any) -> Any:
    columns, rank = places.columns, call.node.args[0].meta["val"].dim()
    if call.packet == "select" and rank == 2 and args[0] in (1, -1):
        return columns[args[1]]
    if call.packet == "unbind" and rank == 2 and args[:1] in ((1,), (-1,)):
        return columns
    is_column = call.packet in _MOVING and len(columns) == 1 and call.fake.dim() == 1
    return columns[0] if is_column else None


@aten("nnef_grad.one_hot")
def _one_hot(call: Call, x: Any, _: Any) -> Classes:
    return Classes(x, call.hint, call.span)


def _first_classes(call: Call, x: Classes, *args: Any) -> Any:
    """One-hot vectors as far as they are read: those of as many classes as there are at least."""
    call.require(call.packet == "slice", _OF_CLASSES)
    given = [*args, *(0, None, None, 1)[len(args) :]]
    axis, begin, _, stride = given
    rank = call.fake.dim()
    is_first = (axis % rank, begin or 0, stride) == (rank - 1, 0, 1)
    call.require(is_first and isinstance(call.fake.shape[-1], int), _OF_CLASSES)
    call.hint = x.name
    (indices,) = call.scalars(x.indices)
    wide = call("unsqueeze", indices, axes=[rank - 1], hint="wide")
    positions = call.positions(call.fake.shape[-1], rank - 1, rank)
    return call.typed(call("eq", wide, positions), "integer")


_OF_CLASSES = (
    "how many classes one_hot has depends on input values: give it a number, or"
    " max(classes, n), of which the first n are read, as in [..., :n]"
)


def rows_at(call: Call, x: Any, indices: Sequence[Any]) -> Any:
    """The rows of x[i, j], where i and j are where a mask is true along its axes."""
    selection, axes = _of_one_mask(call, indices)
    shape, count = shape_of(x), len(axes)
    extents = [selection.shape[axis] for axis in axes]
    call.require([*shape[:count]] == extents, OF_DATA)
    # The axes in the order of those of the mask, which are as long as its others.
    order = sorted(range(count), key=axes.__getitem__)
    y = call.transposed(x, [*order, *range(count, len(shape))], "moved")
    own = [n if axis in axes else 1 for axis, n in enumerate(selection.shape)]
    rest = shape[count:]
    y = call.broadcast(
        call.reshaped(y, [*own, *rest], "wide"), (*selection.shape, *rest)
    )
    return rows_where(call, y, [selection.mask])


def put_at(
    call: Call, x: Any, indices: Sequence[Any], values: Any, accumulate: bool
) -> Any:
    """Values at x[i, j], where i and j are where a mask is true along its axes."""
    selection, axes = _of_one_mask(call, indices)
    is_whole = axes == [*range(len(selection.shape))]
    same = shape_of(x)[: len(axes)] == selection.shape
    call.require(is_whole and same, OF_DATA)
    return put_where(call, x, [selection.mask], values, accumulate)


def _of_one_mask(call: Call, indices: Sequence[Any]) -> tuple[Selection, list[int]]:
    """The mask that all indices are of, and the axes of it that they are along."""
    found = [index for index in indices if isinstance(index, Places)]
    axes = [index.axis for index in found if index.axis is not None]
    is_of_one = len({id(index.selection) for index in found}) == 1
    is_plain = len({*axes}) == len(axes) == len(found) == len(indices)
    call.require(is_of_one and is_plain, OF_DATA)
    return found[0].selection, axes


def rows_where(call: Call, x: Any, indices: Sequence[Any]) -> Any:
    """The rows of x[:, mask], of which all are kept: see `Selections`."""
    place, mask = _alone(call, indices)
    nodes = call.node.args[1]
    node = nodes[place] if isinstance(nodes, (list, tuple)) else nodes
    # Either may be of rows that another mask has taken.
    if (outer := _taken(call, node, 0)) is not None and not outer.is_of(mask):
        mask = only_where(call, mask, outer, 0)
    if (outer := _taken(call, call.node.args[0], place)) is not None:
        x = only_where(call, x, outer, place)
    shape, depth = shape_of(x), len(shape_of(mask))
    joined = [*shape[:place], prod(shape_of(mask)), *shape[place + depth :]]
    rows = call.reshaped(x, joined, "joined")
    count = call.fake.shape[place]
    if not is_number_of_data(count):
        # torch has found that the module says how many there are.
        number = numbers_where(call, mask, call.reading.symbols.extent(count))
        whole = call("cast", number, dtype="integer", hint="places")
        return call("gather", rows, whole, axis=place)
    selection = _selection(call, count, mask)
    if not isinstance(rows, Tensor):
        rows = call.constant(rows)
    name = call.reading.supply.fresh(f"{call.hint}_rows")
    copy = call.reading.emitter.emit_named(name, "copy", x=rows)
    selection.taken[copy] = place, rows
    return copy


def put_where(
    call: Call, x: Any, indices: Sequence[Any], values: Any, accumulate: bool
) -> Any:
    """Values wherever a mask is true: the same for all, or rows that it has taken."""
    place, mask = _alone(call, indices)
    rank, shape = len(shape_of(x)), [*shape_of(values)]
    after = rank - place - len(shape_of(mask))
    axis, selection = len(shape) - after - 1, None
    wide = values
    if axis >= 0:
        selection = _taken(call, call.node.args[2], axis)
        own = [1] * len(shape_of(mask))
        if selection is not None and selection.is_of(mask):
            own = [*selection.shape]
        else:
            call.require(shape[axis] == 1, OF_DATA)
        wide = call.reshaped(values, [*shape[:axis], *own, *shape[axis + 1 :]])
    hit = call.reshaped(mask, [*[1] * place, *shape_of(mask), *[1] * after], "mask")
    (wide,) = call.aligned(wide, rank=rank)
    other = 0.0 if accumulate else x
    hint = "part" if accumulate else None
    wide = call.typed(wide, dtype_of(x))
    put = call("select", hit, wide, other, hint=hint)
    if selection is not None:
        selection.end(values, axis, wide, put)
    return call("add", x, put) if accumulate else put


def _taken(call: Call, node: Any, axis: int) -> Selection | None:
    """The selection whose rows a node has along an axis."""
    fake = getattr(node, "meta", {}).get("val")
    found: Selection | None = None
    if isinstance(fake, torch.Tensor):
        found = call.reading.selections.of(fake.shape[axis])
    return found


def selected(call: Call, along: Sequence[int]) -> tuple[Selection, int] | None:
    """The selection by a mask whose rows are reduced, with their axis; None for others."""
    for axis in along:
        if (found := _taken(call, call.node.args[0], axis)) is not None:
            return found, axis
    return None


def only_where(call: Call, x: Any, selection: Selection, axis: int) -> Any:
    """Rows, with zeros for those that the mask has not taken."""
    wide = [1] * len(shape_of(x))
    wide[axis] = prod(selection.shape)
    hit = call.reshaped(selection.row, wide, "mask")
    nothing = {"logical": False, "integer": 0}.get(dtype_of(x), 0.0)
    part = call("select", hit, x, nothing, hint="part")
    selection.end(x, axis, x, part)
    return part


def count_read(call: Call) -> Any:
    """How many rows there are, where it is read as a number, and is no extent; else None."""
    selections = call.reading.selections
    is_read = selections.is_of_rows(call.fake) and any(
        is_arithmetic(user) and call.node in pytree.tree_leaves(without_shapes(user))
        for user in call.node.users
    )
    if not is_read:
        return None
    if (selection := selections.of(call.fake)) is None:
        # Of what follows from it torch makes sums and products.
        call.refuse(OF_DATA)
    # After what is counted, and not after what torch calls its extent.
    call.hint = "rows"
    return count_of(call, selection)


def count_of(call: Call, selection: Selection) -> Any:
    """How many rows there are: a number."""
    ones = call("select", selection.row, 1.0, 0.0, hint="ones")
    total = call("sum_reduce", ones, axes=[0], hint="total")
    return call("squeeze", total, axes=[0], hint="count")


def _alone(call: Call, indices: Sequence[Any]) -> tuple[int, Any]:
    """The only index, a mask, and its place."""
    (place, mask), *others = ((a, i) for a, i in enumerate(indices) if i is not None)
    call.require(not others, OF_DATA)
    return place, mask


def _selection(call: Call, size: Any, mask: Any) -> Selection:
    call.require(isinstance(mask, Tensor), OF_DATA)
    row = call.reshaped(mask, [prod(shape_of(mask))], "row")
    made = Selection(mask, row, tuple(shape_of(mask)), call.span)
    found = call.reading.selections.add(size, made)
    call.require(found.is_of(mask), OF_DATA)
    return found
