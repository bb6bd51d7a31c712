"""Operations that move or select elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.frontends.onnx.node import Node, onnx_op
from nnef_grad.frontends.tract.operations.selection import gather as gathered
from nnef_grad.frontends.values import LARGEST, dtype_of, is_known, shape_of

# Beyond any position.
FAR = 2**31 - 1


@onnx_op("Shape")
def shape(node: Node, x: Any) -> Any:
    """The extents, or some of them."""
    return np.array(shape_of(x)[node.get("start", 0) : node.get("end", None)], np.int64)


@onnx_op("Size")
def size(node: Node, x: Any) -> Any:
    """The number of elements."""
    return np.array(np.prod(shape_of(x)), np.int64)


@onnx_op("ConstantOfShape", "Range", "EyeLike")
def of_values(node: Node, *_: Any) -> Any:
    """Only of known operands."""
    node.refuse("its operands must be known before the model is run")


@onnx_op("Compress", "NonMaxSuppression", "NonZero", "Unique")
def of_open_shape(node: Node, *_: Any) -> Any:
    """Only of known operands: NNEF has fixed shapes."""
    instead = "multiply by a mask, or choose with torch.where or torch.topk"
    node.refuse(f"the shape of its result depends on values: {instead}")


@onnx_op("Reshape")
def reshape(node: Node, x: Any, *_: Any) -> Any:
    """A reshape; an extent of 0 is that of the operand."""
    given = node.items("shape", 1)
    has_zeros = node.get("allowzero", 0) and 0 in given
    node.require(not has_zeros, "no extent must be 0")
    old = shape_of(x)
    made = [old[axis] if extent == 0 else extent for axis, extent in enumerate(given)]
    if -1 in made:
        rest = -int(np.prod(made))
        made[made.index(-1)] = int(np.prod(old)) // rest if rest else 0
    return node.reshaped(x, made)


@onnx_op("Flatten")
def flatten(node: Node, x: Any) -> Any:
    """A matrix: the axes before an axis become rows, the others columns."""
    axis, old = node.get("axis", 1), shape_of(x)
    axis = axis + len(old) if axis < 0 else axis
    return node.reshaped(x, [int(np.prod(old[:axis])), int(np.prod(old[axis:]))])


@onnx_op("Squeeze")
def squeeze(node: Node, x: Any, *_: Any) -> Any:
    """Squeezes all axes of extent 1 if none are given."""
    old = shape_of(x)
    ones = [axis for axis, extent in enumerate(old) if extent == 1]
    axes = sorted(node.axis(a, len(old)) for a in node.items("axes", 1, ones))
    return node("squeeze", x, axes=axes) if axes else x


@onnx_op("Unsqueeze")
def unsqueeze(node: Node, x: Any, *_: Any) -> Any:
    """Inserts axes, which count in the result."""
    given = node.items("axes", 1)
    rank = len(shape_of(x)) + len(given)
    return node("unsqueeze", x, axes=sorted(node.axis(a, rank) for a in given))


@onnx_op("Transpose")
def transpose(node: Node, x: Any) -> Any:
    """Axes in another order: turned around if none is given."""
    axes = node.get("perm", list(range(len(shape_of(x))))[::-1])
    return node.transposed(x, list(axes))


@onnx_op("Concat")
def concat(node: Node, *parts: Any) -> Any:
    """A concatenation of the operands that have elements: NNEF has no empty tensors."""
    axis = node.axis(node.get("axis", 1), len(shape_of(parts[0])))
    filled = [part for part in parts if 0 not in shape_of(part)]
    return node("concat", filled, axis=axis) if len(filled) > 1 else filled[0]


@onnx_op("Split")
def split(node: Node, x: Any, *_: Any) -> Any:
    """Parts of given extents, or of equal ones."""
    axis = node.axis(node.get("axis", 0), len(shape_of(x)))
    extent, count = shape_of(x)[axis], len(node.proto.output)
    each = -(-extent // count)
    equal = [min(each, extent - each * place) for place in range(count)]
    parts = node("split", x, axis=axis, ratios=node.items("split", 1, equal))
    return list(parts)


@onnx_op("Expand")
def expand(node: Node, x: Any, _: Any) -> Any:
    """Broadcasting, which may add leading axes."""
    made = np.broadcast_shapes(shape_of(x), tuple(node.items("shape", 1)))
    return node.broadcast(x, made)


@onnx_op("Tile")
def tile(node: Node, x: Any, _: Any) -> Any:
    """The elements, several times along each axis."""
    return node("tile", x, repeats=node.items("repeats", 1))


@onnx_op("Gather")
def gather(node: Node, x: Any, indices: Any) -> Any:
    """A gather; negative indices count from the end."""
    return gathered(node, x, indices, node.get("axis", 0), "")


@onnx_op("Slice")
def slices(node: Node, x: Any, *_: Any) -> Any:
    """A slice; bounds may be out of range, and count from the end."""
    first, last = node.items("starts", 1), node.items("ends", 2)
    rank = len(shape_of(x))
    along = [node.axis(a, rank) for a in node.items("axes", 3, range(len(first)))]
    stride = node.items("steps", 4, [1] * len(first))
    columns = zip(along, first, last, stride, strict=True)
    bounds = [_bounds(shape_of(x)[axis], slice(*each)) for axis, *each in columns]
    begin, end = ([pair[side] for pair in bounds] for side in (0, 1))
    counted = [len(range(*each)) for each in zip(begin, end, stride, strict=True)]
    if 0 in counted:
        made = dict(zip(along, counted, strict=True))
        return np.zeros([made.get(a, n) for a, n in enumerate(shape_of(x))], np.float32)
    return node("slice", x, axes=along, begin=begin, end=end, stride=stride)


def _bounds(extent: int, found: slice) -> tuple[int, int]:
    """The bounds of a slice; a descending one ends before the first element."""
    begin, end, _ = found.indices(extent)
    return begin, end if end >= 0 else -FAR


@onnx_op("Pad")
def pad(node: Node, x: Any, *_: Any) -> Any:
    """Padding of all axes, or some."""
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
def space_to_depth(node: Node, x: Any) -> Any:
    """Each block of a channel becomes a pixel of several channels."""
    block = node.get("blocksize", 1)
    batch, channels, height, width = shape_of(x)
    parts = [batch, channels, height // block, block, width // block, block]
    moved = node.transposed(node.reshaped(x, parts, "blocks"), [0, 3, 5, 1, 2, 4])
    made = [batch, channels * block * block, height // block, width // block]
    return node.reshaped(moved, made)


@onnx_op("DepthToSpace")
def depth_to_space(node: Node, x: Any) -> Any:
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
def triangle(node: Node, x: Any, *_: Any) -> Any:
    """A triangle of matrices, with zeros elsewhere: a choice, as the others may be
    infinite.
    """
    (offset,) = node.items("k", 1, 0)
    rows, columns = np.indices(shape_of(x)[-2:])
    is_upper = node.get("upper", 1)
    inside = columns - rows >= offset if is_upper else columns - rows <= offset
    zero = {"scalar": 0.0, "integer": 0, "logical": False}[dtype_of(x)]
    return node("select", *node.aligned(inside, x, zero))


@onnx_op("ReverseSequence")
def reverse(node: Node, x: Any, lengths: Any) -> Any:
    """The first elements of each item of the batch turned around, by a table."""
    batch, time = node.get("batch_axis", 1), node.get("time_axis", 0)
    node.require({batch, time} == {0, 1}, "the axes must be the first two")
    node.require(is_known(lengths), "the lengths must be known")
    extent = shape_of(x)[time]
    rows = [
        [*reversed(range(n)), *range(n, extent)] for n in np.ravel(lengths).tolist()
    ]
    parts = []
    for place, row in enumerate(rows):
        part = node("slice", x, axes=[batch], begin=[place], end=[place + 1])
        parts.append(node("gather", part, np.array(row), axis=time))
    return node("concat", parts, axis=batch)
