"""Parts and borders: slices that go forwards from a beginning to an end, and padding of
space, or of what can stand in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.ops.parts import section, slice_positions
from nnef_grad.ops.shape import reshaped, with_extent
from nnef_grad.ops.windows import REPEATING, Padding
from nnef_grad.targets.registry import lowering
from nnef_grad.targets.shape import MOST_AXES, along_axis

Positions = Mapping[int, range]

# ---- Slices ----


@lowering("slice")
def slice_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """With everything said; one axis after the other where there are too many."""
    (x,) = op.inputs
    found = slice_positions(x.shape, **op.settings)
    positions = _proper(x, dict(sorted(found.items())))
    if x.rank <= MOST_AXES:
        return [_taken(emit, x, positions)]
    for axis, taken in positions.items():
        x = along_axis(emit, x, axis, partial(_taken, emit, positions={1: taken}))
    return [x]


def _proper(x: Tensor, positions: Positions) -> Positions:
    """The positions along those axes that are not taken whole."""
    return {a: taken for a, taken in positions.items() if taken != range(x.shape[a])}


def _taken(emit: Emitter, x: Tensor, positions: Positions) -> Any:
    """The elements at the positions."""
    positions = _proper(x, positions)
    if not positions:
        return x
    if any(_is_backward(taken) for taken in positions.values()):
        backward = _backward if x.dtype == "scalar" else _one_by_one
        return backward(emit, x, positions)
    columns = zip(
        *(_plain(taken, x.shape[axis]) for axis, taken in positions.items()),
        strict=True,
    )
    begin, end, stride = map(list, columns)
    stride = stride if set(stride) != {1} else []
    return emit("slice", x, axes=list(positions), begin=begin, end=end, stride=stride)


def _is_backward(taken: range) -> bool:
    return taken.step < 0 and len(taken) > 1


def _plain(taken: range, extent: int) -> tuple[int, int, int]:
    """Begin, end and stride. The end is such that a length has no remainder, whichever
    way it would be rounded. An end of 0 is not 0 everywhere.
    """
    if len(taken) <= 1:
        begin = taken[0] if taken else 1
        return begin, begin + len(taken), 1
    end = taken.start + len(taken) * taken.step
    return taken.start, min(end, extent), taken.step


def _backward(emit: Emitter, x: Tensor, positions: Positions) -> Any:
    """Elements in reverse order are found in the mirror, after the last one."""
    padding = [(0, 0)] * x.rank
    mirrored = dict(positions)
    for axis, taken in positions.items():
        last = x.shape[axis] - 1
        if _is_backward(taken):
            padding[axis] = (0, last - taken[-1])
            start, step = 2 * last - taken[0], -taken.step
            mirrored[axis] = range(start, start + len(taken) * step, step)
    mirror = emit("pad", x, padding=padding, border="reflect", hint="mirror")
    return _taken(emit, mirror, mirrored)


def _one_by_one(emit: Emitter, x: Tensor, positions: Positions) -> Any:
    """Slices of one element each, joined in their order: only numbers can be padded."""
    for axis, taken in positions.items():
        layers = [section(emit, x, {axis: (i, i + 1)}, hint="layer") for i in taken]
        x = emit("concat", layers, axis=axis, hint="in_order")
    return x


# ---- Borders ----


@lowering("pad")
def pad_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """What is cropped is sliced off, and what a border repeats is joined to the tensor,
    or reflected in space. Where it repeats something, no value is said.
    """
    (x,), padding = op.operands, op.attributes["padding"]
    assert isinstance(x, Tensor)
    wider = tuple((max(before, 0), max(after, 0)) for before, after in padding)
    if not any(map(any, wider)):
        return [_cropped(emit, x, padding)]
    if wider != padding:
        padded = _padded(emit, op, x, wider, hint="wider")
        return [_cropped(emit, padded, padding)]
    return [_BORDERS[op.attributes["border"]](emit, op, x)]


def _cropped(emit: Emitter, x: Tensor, padding: Padding) -> Any:
    ends = {
        axis: (max(-before, 0), x.shape[axis] - max(-after, 0))
        for axis, (before, after) in enumerate(padding)
    }
    return section(emit, x, ends)


def _constant(emit: Emitter, op: Operation, x: Tensor) -> Any:
    attributes = {**op.settings, "border": "constant"}
    if op.attributes["border"] == "ignore":
        return emit("pad", x, **attributes)
    return _in_space(emit, op, x)


def _joined(side: Callable[..., Any]) -> Callable[..., Any]:
    """A border that is joined to the tensor, axis by axis."""

    def build(emit: Emitter, op: Operation, x: Any) -> Any:
        for axis, counts in enumerate(op.attributes["padding"]):
            if any(counts):
                before, after = (
                    [side(emit, x, axis, count, is_end)] if count else []
                    for count, is_end in zip(counts, (False, True), strict=True)
                )
                x = emit("concat", [*before, x, *after], axis=axis, hint="joined")
        return x

    return build


def _edge(emit: Emitter, x: Tensor, axis: int, count: int, is_end: bool) -> Any:
    """The first or the last element, several times."""
    first = x.shape[axis] - 1 if is_end else 0
    edge = section(emit, x, {axis: (first, first + 1)}, hint="edge")
    repeats = with_extent((1,) * x.rank, axis, count)
    return emit("tile", edge, repeats=repeats, hint="edges") if count > 1 else edge


def _mirror(emit: Emitter, x: Tensor, axis: int, count: int, is_end: bool) -> Any:
    """The first or the last elements, in reverse order."""
    extent = x.shape[axis]
    first = extent - count if is_end else 0
    taken = range(first + count - 1, first - 1, -1)
    return _taken(emit, x, {axis: taken})


def _zeros(emit: Emitter, x: Tensor, axis: int, count: int, is_end: bool) -> Any:
    """Zeros, on whichever side."""
    shape = with_extent(x.shape, axis, count)
    return emit("constant", shape=shape, value=[0.0], hint="zeros")


# A border of zeros, which no optimiser takes for one of the operation after it.
zeros_joined = _joined(_zeros)


# ---- Space ----


def _in_space(emit: Emitter, op: Operation, x: Tensor) -> Any:
    """The same padding of axes that stand after two others."""
    padding: Padding = op.attributes["padding"]
    first = next(axis for axis, sides in enumerate(padding) if any(sides))
    missing = list(range(2 - first))
    if missing and x.rank + len(missing) <= MOST_AXES:
        image = emit("unsqueeze", x, axes=missing, hint="image")
        padded = _padded(emit, op, image, [(0, 0)] * len(missing) + list(padding))
        return emit("squeeze", padded, axes=missing)
    return _in_blocks(emit, op, x)


def _padded(
    emit: Emitter, op: Operation, x: Tensor, padding: Any, hint: str = "padded"
) -> Any:
    border, value = op.attributes["border"], op.attributes["value"]
    filled = {"border": border} if border in REPEATING else {"value": value}
    return emit("pad", x, padding=padding, **filled, hint=hint)


def _in_blocks(emit: Emitter, op: Operation, x: Any) -> Any:
    """One axis after the other, as that of an image."""
    for axis, sides in enumerate(op.attributes["padding"]):
        if any(sides):
            shape: Shape = x.shape
            image = (1, prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
            blocks = reshaped(emit, x, image, hint="blocks")
            padded = _padded(emit, op, blocks, [(0, 0), (0, 0), sides, (0, 0)])
            extent = shape[axis] + sum(sides)
            x = reshaped(emit, padded, with_extent(shape, axis, extent))
    return x


_BORDERS: Mapping[str, Callable[..., Any]] = {
    "constant": _constant,
    "ignore": _constant,
    "reflect": _in_space,
    "replicate": _joined(_edge),
    "reflect-even": _joined(_mirror),
}
