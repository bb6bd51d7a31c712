"""Maxima of small windows, place by place: `sample` and `desample` at the index of a
maximum. The first element of each window is looked at, then the second one, and so on:

    hit = eq(element, largest)                  whether it is the maximum
    kept = select(hit, left, 0.0)               what it receives of the gradient
    left = select(hit, 0.0, left)               what is left for the places after it

What the places receive goes back along each axis: places that are a stride apart are
added, others lie between each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from math import prod

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Graph, Operation, Shape, Tensor
from nnef_grad.language.library import standard
from nnef_grad.ops.axes import Positions
from nnef_grad.ops.shape import reshaped, with_extent
from nnef_grad.ops.windows import AxisWindows, Windows, basic_outside, windows_of
from nnef_grad.targets.shape import MOST_AXES, take
from nnef_grad.targets.windows import LOWEST, surrounded

# As many as a cube of three has. There are about eight operations for each.
MOST_PLACES = 27

Place = tuple[int, ...]


def finds_maxima(source: Operation, windows: Windows) -> bool:
    """Whether an operation makes an index of the maxima in these windows."""
    is_maximum = source.name in ("argmax_pool", "max_pool_with_index")
    return is_maximum and windows_of(source) == windows


def are_small(source: Operation) -> bool:
    """Whether the windows of a maximum are small enough."""
    windows = windows_of(source)
    return prod(windows.size) <= MOST_PLACES and len(windows.size) <= MOST_AXES


def around_indices(
    graph: Graph, lacks: Callable[[Operation], bool]
) -> Iterator[Operation]:
    """The operations that make the index of a maximum, and those that read it, where these
    are `sample` and `desample` in the same windows.

    Args:
        graph: a graph.
        lacks: whether a runtime lacks an operation: one that has an index has it in the
            windows in which it has the maximum.
    """
    for op in graph.operations:
        if op.name != "argmax_pool" or op.outputs[0] in graph.outputs:
            continue
        readers = [r for r in graph.operations if op.outputs[0] in r.inputs]
        pool = replace(op, definition=standard()["max_pool"])
        if not lacks(pool) and all(_reads_index(reader, op) for reader in readers):
            yield from (op, *readers)


def _reads_index(reader: Operation, source: Operation) -> bool:
    is_index = reader.operands[1:] == source.outputs
    is_known = reader.name in ("sample", "desample") and is_index
    return is_known and windows_of(reader) == windows_of(source)


def sample_maxima(emit: Emitter, x: Tensor, source: Operation, border: str) -> Tensor:
    """The elements of a tensor, with its own border, where the maxima of another one
    are.
    """
    windows = windows_of(source)
    around, over = surrounded(emit, x, windows, border)
    hits = list(_hits(emit, source))
    sampled: Tensor | float = 0.0
    for place, hit in reversed(hits):
        element = _elements(emit, around, over, place)
        sampled = emit("select", hit, element, sampled, hint="sampled")
    assert isinstance(sampled, Tensor)
    return sampled


def desample_maxima(emit: Emitter, x: Tensor, source: Operation) -> Tensor:
    """The elements of a tensor, each where the maximum of its window is."""
    left, kept = x, dict[Place, Tensor]()
    for place, hit in _hits(emit, source):
        kept[place] = emit("select", hit, left, 0.0, hint="kept")
        left = emit("select", hit, 0.0, left, hint="left")
    windows = windows_of(source)
    outside = basic_outside(windows)
    for axis, column in reversed([*enumerate(windows.axes)]):
        kept = _joined_along(emit, kept, axis, column, sum(outside[axis]))
    return kept[()]


def _hits(emit: Emitter, source: Operation) -> Iterator[tuple[Place, Tensor]]:
    """For each place in a window, in row-major order, whether its element is as large as
    the largest one.
    """
    (x,), windows, settings = source.inputs, windows_of(source), source.settings
    largest = emit("max_pool", x, **settings, hint="largest")
    value = LOWEST if settings["border"] == "ignore" else 0.0
    around, over = surrounded(emit, x, windows, settings["border"], value)
    for place in product(*map(range, windows.size)):
        element = _elements(emit, around, over, place)
        yield place, emit("eq", element, largest, hint="hit")


def _elements(emit: Emitter, x: Tensor, windows: Windows, place: Place) -> Tensor:
    """The elements at a place of all windows. The slices along the last axes are shared."""
    for axis, column in reversed([*enumerate(windows.axes)]):
        first = column.begin + place[axis] * column.dilation
        last = first + (column.down - 1) * column.stride
        x = take(emit, x, {axis: Positions(first, last + 1, column.stride)})
    return x


# ---- The way back ----


def _joined_along(
    emit: Emitter,
    parts: Mapping[Place, Tensor],
    axis: int,
    column: AxisWindows,
    border: int,
) -> dict[Place, Tensor]:
    """The parts with the places along an axis put where they are in it: by the places
    along the axes before. What lies in its border is left out.
    """
    lines: dict[Place, list[Tensor]] = {}
    for place, part in sorted(parts.items(), key=lambda item: item[0]):
        lines.setdefault(place[:axis], []).append(part)
    count, first = -(-(column.up + border) // column.stride), max(-column.begin, 0)
    inside = {axis: Positions(first, first + column.up)}
    return {
        key: take(emit, _line(emit, line, axis, column, count), inside)
        for key, line in lines.items()
    }


def _line(
    emit: Emitter, parts: Sequence[Tensor], axis: int, column: AxisWindows, count: int
) -> Tensor:
    """The sum of all parts, each with its elements a stride apart: so many strides."""
    shape = with_extent(parts[0].shape, axis, count)
    phases: list[list[Tensor]] = [[] for _ in range(column.stride)]
    for place, part in enumerate(parts):
        before, phase = divmod(place * column.dilation, column.stride)
        phases[phase].append(_shifted(emit, part, axis, before, count))
    return interleaved(emit, [_sum(emit, phase, shape) for phase in phases], axis)


def _shifted(emit: Emitter, x: Tensor, axis: int, before: int, count: int) -> Tensor:
    """The elements along an axis after so many zeros, so many in all."""
    padding = [(0, 0)] * x.rank
    padding[axis] = (before, count - before - x.shape[axis])
    return emit("pad", x, padding=padding, hint="shifted") if any(padding[axis]) else x


def _sum(emit: Emitter, parts: Sequence[Tensor], shape: Shape) -> Tensor:
    if not parts:
        return emit("constant", shape=shape, value=[0.0], hint="zeros")
    return reduce(partial(emit, "add", hint="sum"), parts)


def interleaved(emit: Emitter, parts: Sequence[Tensor], axis: int) -> Tensor:
    """The first elements of all parts along an axis, then the second ones, and so on."""
    if len(parts) == 1:
        return parts[0]
    shape = parts[0].shape
    apart = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    each = [reshaped(emit, part, apart, "apart") for part in parts]
    joined = emit("concat", each, axis=axis + 1, hint="between")
    return reshaped(emit, joined, with_extent(shape, axis, shape[axis] * len(parts)))
