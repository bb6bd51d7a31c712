"""Masks that depend on data: what they take, and what is put where they are true."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from nnef_grad.frontends.torch.call import Call
from nnef_grad.frontends.torch.selections import OF_DATA, Selection
from nnef_grad.frontends.torch.symbols import is_number_of_data
from nnef_grad.frontends.values import dtype_of, shape_of
from nnef_grad.graph.ir import Tensor


def rows_where(call: Call, x: Any, indices: Sequence[Any]) -> Any:
    """The rows of x[:, mask], of which all are kept: see `Selections`."""
    place, mask = _alone(call, indices)
    selection = _selection(call, call.fake.shape[place], mask)
    shape, depth = shape_of(x), len(selection.shape)
    joined = [*shape[:place], prod(selection.shape), *shape[place + depth :]]
    rows = call.reshaped(x, joined, "joined")
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
    """What the mask has taken whose rows are reduced, with their axis; None for others."""
    for axis in along:
        if (found := _taken(call, call.node.args[0], axis)) is not None:
            return found, axis
    return None


def only_where(call: Call, x: Any, selection: Selection, axis: int) -> Any:
    """Rows, with zeros for those that the mask has not taken."""
    wide = [1] * len(shape_of(x))
    wide[axis] = prod(selection.shape)
    hit = call.reshaped(selection.row, wide, "mask")
    part = call("select", hit, x, 0.0, hint="part")
    selection.end(x, axis, x, part)
    return part


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
    # Where the module says how many rows there are, torch has a number.
    call.require(isinstance(mask, Tensor) and is_number_of_data(size), OF_DATA)
    row = call.reshaped(mask, [prod(shape_of(mask))], "row")
    made = Selection(mask, row, tuple(shape_of(mask)), call.span)
    found = call.reading.selections.add(size, made)
    call.require(found.is_of(mask), OF_DATA)
    return found
