"""Changes of shape, and parts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from nnef_grad.frontends.expansions import reductions, selection
from nnef_grad.frontends.tract.evaluation import document, expansion
from nnef_grad.frontends.values import as_extents, dtype_of, shape_of
from nnef_grad.frontends.view import View
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Tensor
from nnef_grad.graph.quotients import maximum, minimum


@expansion("tract_core_broadcast")
def broadcast(view: View, x: Any, shape: list[int]) -> Any:
    """Repeats axes of extent 1, after adding axes at the front."""
    whole, own = view.of_rank(x, len(shape)), list(shape_of(x))
    pairs = list(zip(shape_of(whole), shape, strict=True))
    fits = all(m in (1, n) or n == 1 for m, n in pairs)
    view.require(fits, f"shape {own} cannot be broadcast to {list(shape)}")
    return view.broadcast(whole, tuple(n if m == 1 else m for m, n in pairs))


@expansion("concat")
def concat(view: View, parts: list[Any], axis: int) -> Any:
    """Values one after the other along an axis, without those that have no elements."""
    some = [x for x in parts if 0 not in shape_of(x)]
    if not some or len(some) == len(parts):
        return view("concat", parts, axis=axis)
    return view.joined(some, axis)


@expansion("tract_core_downsample")
def downsample(view: View, x: Any, axis: int, stride: int, modulo: int) -> Any:
    """Every n-th element along an axis, from the last one if the stride is negative."""
    view.require(stride != 0, "the stride must not be zero")
    axis = view.axis(axis, len(shape_of(x)))
    extent = shape_of(x)[axis]
    if stride > 0:
        return view.piece(x, axis, modulo, extent, stride=stride)
    view.require(modulo == 0, "the last element is the first one of a negative stride")
    return view.piece(x, axis, extent - 1, -(2**31) + 1, stride=stride)


@expansion("tract_core_cumsum")
def cumulative_sum(
    view: View, x: Any, axis: int, exclusive: bool, reverse: bool
) -> Any:
    """The sums up to each element along an axis, or from it on; without itself, if exclusive."""
    dtype = dtype_of(x)
    scalars = view.reading.converted(x, "scalar", f"{view.hint}_scalars", view.span)
    along = view.axis(axis, len(shape_of(x)))
    settings = {"is_back": reverse, "excludes": exclusive}
    return reductions.running_sums(view, scalars, along, dtype, **settings)


@expansion("tract_core_range")
def numbers(view: View, start: Any, end: Any, step: int) -> Any:
    """Integers from one number to another, which is excluded."""
    count = selection.arange(view, start, end, step)
    if isinstance(count, Tensor):
        document(view).counted[count] = start
    return count


@expansion("slice")
def slice_(
    view: View,
    x: Any,
    axes: list[int],
    begin: list[Any],
    end: list[Any],
    stride: list[int],
) -> Any:
    """A part, whose end of 0 is what tract takes it for; one number of a count is known."""
    first = document(view).counted.get(x) if isinstance(x, Tensor) else None
    place = begin[0] if len(begin) == 1 and not has_symbols(begin) else -1
    if first is not None and place >= 0 and end == [place + 1]:
        return as_extents([first + place])
    shape, fits = shape_of(x), len(axes) == len(begin) == len(end)
    if 0 in end and fits and min(stride, default=1) > 0:
        extents = [shape[view.axis(axis, len(shape))] for axis in axes]
        pairs = map(partial(_ends, view), begin, end, extents)
        begin, end = map(list, zip(*pairs, strict=True))
    return view("slice", x, axes=axes, begin=begin, end=end, stride=stride)


def _ends(view: View, begin: Any, end: Any, extent: Any) -> tuple[Any, Any]:
    """From 0 to 0 is nothing, also if computed; from elsewhere to 0 is to the end."""
    if end != 0:
        return begin, end
    message = f"tract does not read {begin} to 0 as to the end: write {extent} for 0"
    view.require(not has_symbols(begin), message)
    return begin or extent, extent


@expansion("tract_core_dyn_slice")
def dynamic_slice(
    view: View, x: Any, start: int, end: int, length: int, axis: int
) -> Any:
    """A slice with known bounds."""
    axis = view.axis(axis, len(shape_of(x)))
    extent = shape_of(x)[axis]
    begin, last = (n + extent if n < 0 else n for n in (start, end))
    view.require(0 <= begin < last <= extent, f"the bounds {start} and {end} are wrong")
    return view.piece(x, axis, begin, last)


@expansion("within_bound_index")
def bounded_index(view: View, index: Any, extent: Any) -> Any:
    """The end of a slice, as Python cuts it off: that of a table may be open."""
    place, size = (np.asarray(n).item() for n in (index, extent))
    return maximum(0, place + size) if place < 0 else minimum(place, size)


@expansion("pad")
def pad(
    view: View, x: Any, padding: list[tuple[int, int]], border: str, value: float
) -> Any:
    """Padding, under tract's names of borders."""
    border = "replicate" if border == "replicated" else border
    return view("pad", x, padding=padding, border=border, value=value)


@expansion("unsqueeze")
def unsqueeze(view: View, x: Any, axes: list[int]) -> Any:
    """New axes, one after the other from the first: one that is named twice is two."""
    places: list[int] = []
    for axis in sorted(axes):
        places = [*(place + (place >= axis) for place in places), axis]
    return view("unsqueeze", x, axes=sorted(places))


@expansion("tract_core_argmax_reduce_last", "tract_core_argmin_reduce_last")
def _last_of_equals(view: View, x: Any, axes: list[int]) -> Any:
    """The first in reverse order, counted from the end."""
    view.require(len(axes) == 1, "there must be one axis")
    name = view.name.removeprefix("tract_core_").removesuffix("_last")
    return selection.last_of_equals(view, name, x, view.axis(axes[0], len(shape_of(x))))
