"""Operations that move or select elements."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from onnx.numpy_helper import to_array

from nnef_grad.frontends.expansions import selection
from nnef_grad.frontends.onnx.reading import Node, onnx_op
from nnef_grad.frontends.values import (
    LARGEST,
    as_extents,
    broadcast_shapes,
    converted,
    dtype_of,
    is_known,
    shape_of,
)
from nnef_grad.graph.extents import Dimension, OpenExtentError, has_symbols, may_exceed

# Beyond any position.
FAR = 2**31 - 1


@onnx_op("Shape")
def _shape(node: Node, x: Any) -> Any:
    return as_extents(shape_of(x)[node.get("start", 0) : node.get("end", None)])


@onnx_op("Size")
def _size(node: Node, x: Any) -> Any:
    return prod(shape_of(x))


@onnx_op("ConstantOfShape")
def _constant(node: Node, _: Any) -> Any:
    """One number, in a shape with symbols."""
    given = node.attributes.get("value")
    value = np.zeros(1, np.float32) if given is None else to_array(given)
    dtype, shape = dtype_of(value), node.items("input", 0)
    items = converted(value, dtype).reshape(-1).tolist()
    return node("constant", dtype=dtype, shape=shape, value=items)


@onnx_op("Range")
def _numbers(node: Node, start: Any, limit: Any, delta: Any) -> Any:
    """Whole numbers in equal steps, up to an extent with symbols."""
    names = ("start", "limit", "delta")
    first, last, step = (node.items(n, place)[0] for place, n in enumerate(names))
    node.require(dtype_of(delta) == "integer", "its operands must be integers")
    count = -((first - last) // step)
    found = node.positions(count, 0, 1)
    if step != 1:
        found = node("mul", found, float(step), hint="steps")
    if first != 0:
        found = node("add", found, node.scalars(start), hint="numbers")
    return node("cast", found, dtype="integer")


@onnx_op("EyeLike")
def _of_values(node: Node, *_: Any) -> Any:
    node.refuse("its operands must be known before the model is run")


@onnx_op("Compress", "NonMaxSuppression", "NonZero", "Unique")
def _of_open_shape(node: Node, *_: Any) -> Any:
    instead = "multiply by a mask, or choose with torch.where or torch.topk"
    node.refuse(f"the shape of its result depends on values: {instead}")


@onnx_op("Reshape")
def _reshape(node: Node, x: Any, *_: Any) -> Any:
    """A reshape; an extent of 0 is that of the operand."""
    given = node.items("shape", 1)
    has_zeros = node.get("allowzero", 0) and 0 in given
    node.require(not has_zeros, "no extent must be 0")
    old = shape_of(x)
    made = [old[axis] if extent == 0 else extent for axis, extent in enumerate(given)]
    if -1 in made:
        rest = -prod(made)
        made[made.index(-1)] = prod(old) // rest if rest else 0
    return node.reshaped(x, made)


@onnx_op("Flatten")
def _flatten(node: Node, x: Any) -> Any:
    """A matrix: the axes before an axis become rows, the others columns."""
    old, axis = shape_of(x), node.get("axis", 1)
    axis = axis + len(old) if axis < 0 else axis
    return node.reshaped(x, [prod(old[:axis]), prod(old[axis:])])


@onnx_op("Squeeze")
def _squeeze(node: Node, x: Any, *_: Any) -> Any:
    """Squeezes all axes of extent 1 if none are given."""
    old = shape_of(x)
    ones = [axis for axis, extent in enumerate(old) if extent == 1]
    axes = sorted(node.axis(a, len(old)) for a in node.items("axes", 1, ones))
    return node("squeeze", x, axes=axes) if axes else x


@onnx_op("Unsqueeze")
def _unsqueeze(node: Node, x: Any, *_: Any) -> Any:
    """Inserts axes, which count in the result."""
    given = node.items("axes", 1)
    rank = len(shape_of(x)) + len(given)
    return node("unsqueeze", x, axes=sorted(node.axis(a, rank) for a in given))


@onnx_op("Transpose")
def _transpose(node: Node, x: Any) -> Any:
    """Axes in another order: turned around if none is given."""
    axes = node.get("perm", list(range(len(shape_of(x))))[::-1])
    return node.transposed(x, list(axes))


@onnx_op("Concat")
def _concat(node: Node, *parts: Any) -> Any:
    """A concatenation of the operands that have elements: NNEF has no empty tensors."""
    filled = [part for part in parts if 0 not in shape_of(part)]
    return node.joined(filled, node.along(1, parts[0]))


@onnx_op("Split")
def _split(node: Node, x: Any, *_: Any) -> Any:
    """Parts of given extents, or of equal ones."""
    axis = node.along(0, x)
    extent, count = shape_of(x)[axis], len(node.proto.output)
    each = -(-extent // count)
    equal = [min(each, extent - each * place) for place in range(count)]
    return [*node("split", x, axis=axis, ratios=node.items("split", 1, equal))]


@onnx_op("Expand")
def _expand(node: Node, x: Any, _: Any) -> Any:
    """Broadcasting, which may add leading axes."""
    made = broadcast_shapes(shape_of(x), tuple(node.items("shape", 1)))
    return node.broadcast(x, made)


@onnx_op("Tile")
def _tile(node: Node, x: Any, _: Any) -> Any:
    return node("tile", x, repeats=node.items("repeats", 1))


@onnx_op("Gather")
def _gather(node: Node, x: Any, indices: Any) -> Any:
    return selection.gather(node, x, indices, node.get("axis", 0))


@onnx_op("Slice")
def _slices(node: Node, x: Any, *_: Any) -> Any:
    """A slice; bounds may be out of range, and count from the end."""
    first, last = node.items("starts", 1), node.items("ends", 2)
    rank = len(shape_of(x))
    along = [node.axis(a, rank) for a in node.items("axes", 3, range(len(first)))]
    stride = node.items("steps", 4, [1] * len(first))
    columns = zip(along, first, last, stride, strict=True)
    bounds = [_bounds(node, shape_of(x)[axis], *each) for axis, *each in columns]
    begin, end = ([pair[side] for pair in bounds] for side in (0, 1))
    if has_symbols((*begin, *end)):
        return _open_slice(node, x, along, begin, end, stride)
    counted = [len(range(*each)) for each in zip(begin, end, stride, strict=True)]
    if 0 in counted:
        made = dict(zip(along, counted, strict=True))
        return np.zeros([made.get(a, n) for a, n in enumerate(shape_of(x))], np.float32)
    return node("slice", x, axes=along, begin=begin, end=end, stride=stride)


def _bounds(
    node: Node, extent: Dimension, first: Any, last: Any, step: int
) -> tuple[Any, Any]:
    """The bounds of a slice; a descending one ends before the first element. With symbols,
    bounds are inside, or far outside.
    """
    if not has_symbols((extent, first, last)):
        begin, end, _ = slice(first, last, step).indices(extent)
        return begin, end if end >= 0 else -FAR
    node.require(step > 0, "it goes backward along an extent with a symbol")

    def place(bound: Any) -> Any:
        if isinstance(bound, int) and abs(bound) >= FAR:
            return extent if bound > 0 else 0
        is_from_end = isinstance(bound, int) and bound < 0
        return extent + bound if is_from_end else bound

    begin, end = place(first), place(last)
    if isinstance(end, int) and may_exceed(end, extent):
        message = f"whether the extent {extent} reaches to {end} is not known"
        raise OpenExtentError(message)
    return begin, end


def _open_slice(
    node: Node, x: Any, axes: list[int], begin: Any, end: Any, stride: list[int]
) -> Any:
    """A slice whose bounds have symbols, of a tensor or of a table. What may end behind
    the last element, such as the positions of as many tokens as there are, are rows at
    indices, of which none may be behind it.
    """
    x = node.tensor(x)
    for axis, first, last, step in zip(axes, begin, end, stride, strict=True):
        if (first, last, step) == (0, x.shape[axis], 1):
            continue
        if step == 1 and first == 0 and may_exceed(last, x.shape[axis]):
            x = selection.first_rows(node, x, axis, last)
        else:
            x = node.piece(x, axis, first, last, stride=step)
    return x


@onnx_op("Pad")
def _pad(node: Node, x: Any, *_: Any) -> Any:
    mode, (value,) = node.get("mode", "constant"), node.items("value", 2, 0.0)
    node.require(mode != "wrap", "mode must not be wrap")
    rank = len(shape_of(x))
    axes = [node.axis(a, rank) for a in node.items("axes", 3, range(rank))]
    given = dict(zip(axes, sides(node.items("pads", 1)), strict=True))
    padding = [given.get(axis, (0, 0)) for axis in range(rank)]
    border = "replicate" if mode == "edge" else mode
    bounded = min(max(float(value), -LARGEST), LARGEST)
    return node("pad", x, padding=padding, value=bounded, border=border)


def sides(pads: list[int]) -> list[tuple[int, int]]:
    """Pads by axis: ONNX lists those before all axes first, then those after."""
    half = len(pads) // 2
    return list(zip(pads[:half], pads[half:], strict=True))


@onnx_op("SpaceToDepth")
def _space_to_depth(node: Node, x: Any) -> Any:
    """Each block of a channel becomes a pixel of several channels."""
    block = node.get("blocksize", 1)
    batch, channels, height, width = shape_of(x)
    parts = [batch, channels, height // block, block, width // block, block]
    moved = node.transposed(node.reshaped(x, parts, "blocks"), [0, 3, 5, 1, 2, 4])
    made = [batch, channels * block * block, height // block, width // block]
    return node.reshaped(moved, made)


@onnx_op("DepthToSpace")
def _depth_to_space(node: Node, x: Any) -> Any:
    """Each pixel of several channels becomes a block of one."""
    block = node.get("blocksize", 1)
    batch, channels, height, width = shape_of(x)
    depth = channels // (block * block)
    is_column = node.get("mode", "DCR") == "CRD"
    inner = [depth, block, block] if is_column else [block, block, depth]
    order = [0, 1, 4, 2, 5, 3] if is_column else [0, 3, 4, 1, 5, 2]
    parts = node.reshaped(x, [batch, *inner, height, width], "pixels")
    made = [batch, depth, height * block, width * block]
    return node.reshaped(node.transposed(parts, order), made)


@onnx_op("Trilu")
def _triangle(node: Node, x: Any, *_: Any) -> Any:
    (offset,) = node.items("k", 1, 0)
    return selection.triangle(node, x, offset, bool(node.get("upper", 1)))


@onnx_op("ReverseSequence")
def _reverse(node: Node, x: Any, lengths: Any) -> Any:
    """The first elements of each item of the batch turned around, by a table."""
    batch, time = node.get("batch_axis", 1), node.get("time_axis", 0)
    node.require({batch, time} == {0, 1}, "the axes must be the first two")
    node.require(is_known(lengths), "the lengths must be known")
    extent = shape_of(x)[time]
    parts = []
    for place, n in enumerate(np.ravel(lengths).tolist()):
        row = np.array([*reversed(range(n)), *range(n, extent)])
        part = node.piece(x, batch, place, place + 1)
        parts.append(node("gather", part, row, axis=time))
    return node("concat", parts, axis=batch)
