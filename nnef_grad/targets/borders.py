"""Borders: padding of space, or of what can stand in its place, and elements that are
joined to a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operation, Tensor
from nnef_grad.ops.parts import section
from nnef_grad.ops.shape import reshaped, with_extent
from nnef_grad.ops.windows import REPEATING, Padding
from nnef_grad.targets.registry import lowering
from nnef_grad.targets.shape import MOST_AXES, take

# Makes the elements before an axis, or after it: of a tensor, the axis, a count, and
# whether they come after.
Side = Callable[[Emitter, Tensor, int, int, bool], Tensor]


@lowering("pad")
def pad_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """Cropped elements are sliced off. Elements that a border repeats are joined to the
    tensor, or reflected in space.
    """
    (x,), padding, border = op.inputs, op.attributes["padding"], op.attributes["border"]
    wider = tuple((max(before, 0), max(after, 0)) for before, after in padding)
    if not any(map(any, wider)):
        return [crop(emit, x, padding)]
    if wider != padding:
        return [crop(emit, _padded(emit, op, x, wider, hint="wider"), padding)]
    if border == "ignore":
        return [_padded(emit, op, x, wider)]
    side = _SIDES.get(border)
    return [_joined(emit, x, wider, side) if side else _in_space(emit, op, x)]


def crop(emit: Emitter, x: Tensor, padding: Padding, hint: str | None = None) -> Tensor:
    """The tensor without the elements that negative padding takes away."""
    ranges = {
        axis: (max(-before, 0), x.shape[axis] - max(-after, 0))
        for axis, (before, after) in enumerate(padding)
    }
    kept: Tensor = section(emit, x, ranges, hint=hint)
    return kept


def _padded(
    emit: Emitter, op: Operation, x: Tensor, padding: Padding, hint: str | None = None
) -> Tensor:
    """With the same border; where it repeats something, no value is given."""
    border, value = op.attributes["border"], op.attributes["value"]
    filled: dict[str, Any] = (
        {"border": border} if border in REPEATING else {"value": value}
    )
    return emit("pad", x, padding=padding, **filled, hint=hint)


# ---- What is joined ----


def _joined(emit: Emitter, x: Tensor, padding: Padding, side: Side) -> Tensor:
    """The tensor with a border that is joined to it, axis by axis."""
    for axis, counts in enumerate(padding):
        if any(counts):
            before, after = (
                [side(emit, x, axis, count, is_end)] if count else []
                for count, is_end in zip(counts, (False, True), strict=True)
            )
            x = emit("concat", [*before, x, *after], axis=axis, hint="joined")
    return x


def _edge(emit: Emitter, x: Tensor, axis: int, count: int, is_end: bool) -> Tensor:
    """The first or the last element, several times."""
    first = x.shape[axis] - 1 if is_end else 0
    edge = section(emit, x, {axis: (first, first + 1)}, hint="edge")
    repeats = with_extent((1,) * x.rank, axis, count)
    return emit("tile", edge, repeats=repeats, hint="edges") if count > 1 else edge


def _mirror(emit: Emitter, x: Tensor, axis: int, count: int, is_end: bool) -> Tensor:
    """The first or the last elements, in reverse order."""
    first = x.shape[axis] - count if is_end else 0
    return take(emit, x, {axis: range(first, first + count)[::-1]})


def _zeros(emit: Emitter, x: Tensor, axis: int, count: int, is_end: bool) -> Tensor:
    """Zeros, on either side."""
    shape = with_extent(x.shape, axis, count)
    return emit("constant", shape=shape, value=[0.0], hint="zeros")


def join_zeros(emit: Emitter, x: Tensor, padding: Padding) -> Tensor:
    """The tensor with a border of zeros, which no optimiser takes for one of the
    operation after it.
    """
    return _joined(emit, x, padding, _zeros)


_SIDES: Mapping[str, Side] = {"replicate": _edge, "reflect-even": _mirror}


# ---- Space ----


def _in_space(emit: Emitter, op: Operation, x: Tensor) -> Tensor:
    """The same padding of axes that stand after two others."""
    padding = op.attributes["padding"]
    first = next(axis for axis, sides in enumerate(padding) if any(sides))
    missing = list(range(2 - first))
    if not missing or x.rank + len(missing) > MOST_AXES:
        return _in_blocks(emit, op, x)
    image = emit("unsqueeze", x, axes=missing, hint="image")
    around = ((0, 0),) * len(missing) + padding
    return emit(
        "squeeze", _padded(emit, op, image, around, hint="padded"), axes=missing
    )


def _in_blocks(emit: Emitter, op: Operation, x: Tensor) -> Tensor:
    """One axis after the other, as that of an image."""
    for axis, sides in enumerate(op.attributes["padding"]):
        if any(sides):
            shape = x.shape
            image = (1, prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
            blocks = reshaped(emit, x, image, hint="blocks")
            around = ((0, 0), (0, 0), sides, (0, 0))
            padded = _padded(emit, op, blocks, around, hint="padded")
            x = reshaped(emit, padded, with_extent(shape, axis, padded.shape[2]))
    return x
