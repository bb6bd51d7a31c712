"""Borders: padding of space, or of what can stand in its place, and elements that are
joined to a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.extents import Dimension, OpenExtentError, has_symbols
from nnef_grad.graph.ir import Operation, Tensor
from nnef_grad.graph.quotients import minimum
from nnef_grad.ops.parts import left_by, section
from nnef_grad.ops.shape import Positions, reshaped, with_extent
from nnef_grad.ops.windows import Padding, added_border, has_border
from nnef_grad.targets.registry import lowering
from nnef_grad.targets.shape import MOST_AXES, joined, take
from nnef_grad.targets.windows import filling_of

# Makes the elements before an axis, or after it: of a tensor, the axis, a count, and
# whether they come after.
Side = Callable[[Emitter, Tensor, int, Dimension, bool], Tensor]
# Attributes of a padding.
Filling = Mapping[str, Any]


@lowering("pad")
def pad_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """Cropped elements are sliced off, repeated ones are joined or reflected."""
    (x,), padding, border = op.inputs, op.attributes["padding"], op.attributes["border"]
    wider = added_border(padding)
    if border == "constant" and has_symbols(padding):
        x = _joined(emit, x, wider, partial(_values, op.attributes["value"]))
        less = tuple((minimum(n, 0), minimum(m, 0)) for n, m in padding)
        return [crop(emit, x, less)]
    filling = filling_of(border, op.attributes["value"])
    if not has_border(wider):
        return [crop(emit, x, padding)]
    if wider != padding:
        x = emit("pad", x, padding=wider, **filling, hint="wider")
        return [crop(emit, x, padding)]
    if has_symbols(padding) and border == "reflect":
        count = next(n for sides in padding for n in sides if has_symbols(n))
        raise OpenExtentError(f"a reflection of {count} elements is not known")
    if border == "ignore":
        return [emit("pad", x, padding=wider, **filling)]
    if border in _SIDES:
        return [_joined(emit, x, wider, _SIDES[border])]
    return [_in_space(emit, x, padding, filling)]


def crop(emit: Emitter, x: Tensor, padding: Padding, hint: str | None = None) -> Tensor:
    """The tensor without the elements that negative padding takes away."""
    return section(emit, x, left_by(padding, x.shape), hint)


def _joined(emit: Emitter, x: Tensor, padding: Padding, side: Side) -> Tensor:
    """The tensor with a border that is joined to it, axis by axis."""
    for axis, (before, after) in enumerate(padding):
        parts = [side(emit, x, axis, before, False)] if before != 0 else []
        parts += [x, side(emit, x, axis, after, True)] if after != 0 else [x]
        x = joined(emit, parts, axis)
    return x


def _edge(
    emit: Emitter, x: Tensor, axis: int, count: Dimension, is_end: bool
) -> Tensor:
    """The first or the last element, several times."""
    first = x.shape[axis] - 1 if is_end else 0
    edge = section(emit, x, {axis: (first, first + 1)}, "edge")
    repeats = with_extent((1,) * x.rank, axis, count)
    return emit("tile", edge, repeats=repeats, hint="edges") if count != 1 else edge


def _mirror(
    emit: Emitter, x: Tensor, axis: int, count: Dimension, is_end: bool
) -> Tensor:
    """The first or the last elements, in reverse order."""
    first = x.shape[axis] - count if is_end else 0
    return take(emit, x, {axis: Positions(first + count - 1, first - 1, -1)})


def _values(
    value: float, emit: Emitter, x: Tensor, axis: int, count: Dimension, is_end: bool
) -> Tensor:
    shape, hint = with_extent(x.shape, axis, count), "values" if value else "zeros"
    return emit("constant", shape=shape, value=[value], hint=hint)


_SIDES: Mapping[str, Side] = {"replicate": _edge, "reflect-even": _mirror}


def join_zeros(emit: Emitter, x: Tensor, padding: Padding) -> Tensor:
    """The tensor with a border of zeros that no optimiser takes for its reader's."""
    return _joined(emit, x, padding, partial(_values, 0.0))


def _in_space(emit: Emitter, x: Tensor, padding: Padding, filling: Filling) -> Tensor:
    """The same padding of axes that stand after two others."""
    first = next(axis for axis, sides in enumerate(padding) if sides != (0, 0))
    missing = list(range(2 - first))
    if not missing or x.rank + len(missing) > MOST_AXES:
        return _in_blocks(emit, x, padding, filling)
    image = emit("unsqueeze", x, axes=missing, hint="image")
    around = ((0, 0),) * len(missing) + padding
    padded = emit("pad", image, padding=around, **filling, hint="padded")
    return emit("squeeze", padded, axes=missing)


def _in_blocks(emit: Emitter, x: Tensor, padding: Padding, filling: Filling) -> Tensor:
    """One axis after the other, as that of an image."""
    for axis, sides in enumerate(padding):
        if sides != (0, 0):
            shape = x.shape
            image = (1, prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
            blocks = reshaped(emit, x, image, hint="blocks")
            around = ((0, 0), (0, 0), sides, (0, 0))
            padded = emit("pad", blocks, padding=around, **filling, hint="padded")
            x = reshaped(emit, padded, with_extent(shape, axis, padded.shape[2]))
    return x
