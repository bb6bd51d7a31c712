"""Operations that move or select elements."""

from __future__ import annotations

from math import isnan, prod
from typing import Any

import numpy as np
from onnx.numpy_helper import to_array

from nnef_grad.frontends.expansions import selection
from nnef_grad.frontends.onnx.node import Node, onnx_op
from nnef_grad.frontends.values import (
    as_extents,
    broadcast_shapes,
    converted,
    dtype_of,
    is_known,
    shape_of,
)
from nnef_grad.graph.extents import Dimension, OpenExtentError, has_symbols
from nnef_grad.graph.ir import Tensor
from nnef_grad.graph.learning import are_equal, equal, reaches
from nnef_grad.graph.quotients import maximum, minimum
from nnef_grad.language.types import LARGEST

# Beyond any position.
FAR = 2**31 - 1


@onnx_op("Shape")
def _shape(node: Node, x: Any) -> Any:
    return as_extents(shape_of(x)[node.get("start", 0) : node.get("end", None)])


onnx_op("Size")(lambda node, x: prod(shape_of(x)))


@onnx_op("ConstantOfShape")
def _constant(node: Node, _: Any) -> Any:
    """One number, in a shape with symbols."""
    attribute = node.attributes.get("value")
    value = np.zeros(1, np.float32) if attribute is None else to_array(attribute)
    items = converted(value, dtype_of(value)).reshape(-1).tolist()
    shape = node.items("input", 0)
    if 0 in shape:
        # It is known to be empty, whatever its other extents are.
        return np.zeros([1 if has_symbols(n) else n for n in shape], value.dtype)
    if isnan(items[0]):
        # Which has no literal in NNEF.
        below = node("constant", shape=shape, value=[-1.0], hint="below_zero")
        return node("sqrt", below)
    return node("constant", dtype=dtype_of(value), shape=shape, value=items)


@onnx_op("Range")
def _numbers(node: Node, start: Any, limit: Any, delta: Any) -> Any:
    """Whole numbers in equal steps, up to an extent with symbols."""
    names = ("start", "limit", "delta")
    first, last, step = (node.items(n, place)[0] for place, n in enumerate(names))
    node.require(
        first == int(first) and step == int(step), "it must begin and go by integers"
    )
    first, step = int(first), int(step)
    numbers = node.positions(-((first - last) // step), 0, 1)
    if step != 1:
        numbers = node("mul", numbers, float(step), hint="steps")
    if first != 0:
        numbers = node("add", numbers, node.scalars(start), hint="numbers")
    is_whole = dtype_of(delta) == "integer"
    return node("cast", numbers, dtype="integer") if is_whole else numbers


_INSTEAD = "multiply by a mask, or choose with torch.where or torch.topk"
_OPEN = f"the shape of its result depends on values: {_INSTEAD}"
_BITS = "NNEF has no operations on bits"
# Operations that are computed of known values only.
_REFUSED = {
    **dict.fromkeys(("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr"), _BITS),
    "BitwiseXor": _BITS,
    **dict.fromkeys(("Compress", "NonMaxSuppression", "NonZero", "Unique"), _OPEN),
    "EyeLike": "its operands must be known before the model is run",
}


@onnx_op(*_REFUSED)
def _refuse(node: Node, *operands: Any) -> Any:
    if node.kind == "EyeLike" and any(has_symbols(shape_of(x)) for x in operands):
        raise OpenExtentError("a diagonal needs the number of an open extent")
    node.refuse(_REFUSED[node.kind])


@onnx_op("Reshape")
def _reshape(node: Node, x: Any, *_: Any) -> Any:
    """A reshape; an extent of 0 is that of the operand."""
    given, old = node.items("shape", 1), shape_of(x)
    has_zeros = node.get("allowzero", 0) and 0 in given
    node.require(not has_zeros, "no extent must be 0")
    shape = [old[axis] if extent == 0 else extent for axis, extent in enumerate(given)]
    if -1 in shape:
        rest = -prod(shape)
        if has_symbols(rest):
            node.require(reaches(rest, 1), "no extent must be 0")
        shape[shape.index(-1)] = prod(old) // rest if rest != 0 else 0
    return node.reshaped(x, shape)


@onnx_op("Flatten")
def _flatten(node: Node, x: Any) -> Any:
    """A matrix: the axes before an axis become rows, the others columns."""
    old, axis = shape_of(x), node.get("axis", 1)
    return node.reshaped(x, [prod(old[:axis]), prod(old[axis:])])


@onnx_op("Squeeze")
def _squeeze(node: Node, x: Any, *_: Any) -> Any:
    """Squeezes all axes of extent 1 if none are given."""
    old = shape_of(x)
    given = node.items("axes", 1, [])
    # An open extent is taken to be none, which becomes a fact.
    ones = [
        axis for axis, extent in enumerate(old) if not given and are_equal(extent, 1)
    ]
    # Of axes that are given but none, ONNX Runtime squeezes all, and onnx no one.
    is_none = node.operand(1) is not None and not given
    node.require(not (is_none and ones), "axes must not be empty")
    axes = sorted(node.axis(a, len(old)) for a in given or ones)
    return node("squeeze", x, axes=axes) if axes else x


@onnx_op("Unsqueeze")
def _unsqueeze(node: Node, x: Any, *_: Any) -> Any:
    """Inserts axes, which count in the result."""
    axes = node.items("axes", 1)
    rank = len(shape_of(x)) + len(axes)
    return node("unsqueeze", x, axes=sorted(node.axis(a, rank) for a in axes))


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
    lengths = node.items("split", 1, [])
    if not lengths:
        each = -(-extent // count)
        # Before version 18 no part is smaller than others.
        is_even = node.version >= 18 or equal(each * count, extent)
        node.require(is_even, f"an extent of {extent} has no {count} equal parts")
        lengths = [minimum(each, extent - each * place) for place in range(count)]
    message = f"parts of {lengths} are not all of an extent of {extent}"
    node.require(equal(sum(lengths), extent), message)
    return [*node("split", x, axis=axis, ratios=lengths)]


@onnx_op("Expand")
def _expand(node: Node, x: Any, _: Any) -> Any:
    """Broadcasting, which may add leading axes."""
    shape = broadcast_shapes(shape_of(x), tuple(node.items("shape", 1)))
    return node.broadcast(x, shape)


@onnx_op("Tile")
def _tile(node: Node, x: Any, _: Any) -> Any:
    return node("tile", x, repeats=node.items("repeats", 1))


@onnx_op("Slice")
def _slices(node: Node, x: Any, *_: Any) -> Any:
    """A slice; bounds may be out of range, and count from the end."""
    first, last = node.items("starts", 1), node.items("ends", 2)
    rank = len(shape_of(x))
    along = [node.axis(a, rank) for a in node.items("axes", 3, range(len(first)))]
    stride = node.items("steps", 4, [1] * len(first))
    given = zip(along, first, last, stride, strict=True)
    bounds = [_bounds(node, shape_of(x)[axis], *each) for axis, *each in given]
    begin, end = ([pair[side] for pair in bounds] for side in (0, 1))
    if has_symbols((*begin, *end)):
        return _open_slice(node, x, along, begin, end, stride)
    columns = zip(along, begin, end, stride, strict=True)
    counts = {a: len(range(b, max(e, -1), step)) for a, b, e, step in columns}
    if 0 in counts.values():
        shape = [counts.get(a, n) for a, n in enumerate(shape_of(x))]
        return np.zeros(shape, np.float32)
    return node("slice", x, axes=along, begin=begin, end=end, stride=stride)


def _bounds(
    node: Node, extent: Dimension, first: Any, last: Any, step: int
) -> tuple[Any, Any]:
    """The bounds of a slice; a descending one ends before the first element. With symbols,
    bounds are inside, or far outside.
    """
    if not has_symbols((extent, first, last)):
        begin, end, _ = slice(first, last, step).indices(extent)
        # Before the first element, a descending one begins with it, and not as in Python.
        return max(begin, 0), end if end >= 0 else -FAR
    is_backward = step < 0

    def place(bound: Any) -> Any:
        if isinstance(bound, int) and abs(bound) >= FAR:
            return extent - is_backward if bound > 0 else -is_backward
        is_from_end = isinstance(bound, int) and bound < 0
        place = extent + bound if is_from_end else bound
        return minimum(place, extent - 1) if is_backward else place

    begin, end = place(first), place(last)
    if not is_backward and isinstance(first, int) and first < 0:
        begin = maximum(begin, 0)
    # Before the first element there is no place that does not count from the last.
    return begin, -extent - 1 if end == -1 else end


def _open_slice(
    node: Node, x: Any, axes: list[int], begin: Any, end: Any, stride: list[int]
) -> Any:
    """A slice whose bounds have symbols, of a tensor or of a table."""
    x = node.tensor(x)
    for axis, first, last, step in zip(axes, begin, end, stride, strict=True):
        if (first, last, step) == (0, x.shape[axis], 1):
            continue
        x = node.piece(x, axis, first, last, stride=step)
    return x


@onnx_op("Pad")
def _pad(node: Node, x: Any, *_: Any) -> Any:
    mode, (value,) = node.get("mode", "constant"), node.items("value", 2, 0.0)
    rank = len(shape_of(x))
    axes = [node.axis(a, rank) for a in node.items("axes", 3, range(rank))]
    pads = dict(zip(axes, sides(node.items("pads", 1)), strict=True))
    padding = [pads.get(axis, (0, 0)) for axis in range(rank)]
    if mode == "wrap":
        return _wrapped(node, x, padding)
    border = "replicate" if mode == "edge" else mode
    bounded = min(max(float(value), -LARGEST), LARGEST)
    return node("pad", x, padding=padding, value=bounded, border=border)


def _wrapped(node: Node, x: Any, padding: list[tuple[Any, Any]]) -> Any:
    """The elements again and again: as many of those before and after as are wanted, of what
    negative pads leave.
    """
    shape = shape_of(x)
    for axis, sides in enumerate(padding):
        cut = [minimum(n, 0) for n in sides]
        before, after = (maximum(n, 0) for n in sides)
        extent = shape[axis] + cut[0] + cut[1]
        if cut != [0, 0]:
            x = node.piece(x, axis, -cut[0], shape[axis] + cut[1], "kept")
        if (before, after) == (0, 0):
            continue
        times = [-(-n // extent) for n in (before, after)]
        repeats = [sum(times) + 1 if a == axis else 1 for a in range(len(shape))]
        whole = node("tile", x, repeats=repeats, hint="repeated")
        begin, end = times[0] * extent - before, (times[0] + 1) * extent + after
        x = node.piece(whole, axis, begin, end, "part")
    return x


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
    shape = [batch, channels * block * block, height // block, width // block]
    return node.reshaped(moved, shape)


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
    shape = [batch, depth, height * block, width * block]
    return node.reshaped(node.transposed(parts, order), shape)


@onnx_op("Trilu")
def _triangle(node: Node, x: Any, *_: Any) -> Any:
    (offset,) = node.items("k", 1, 0)
    return selection.triangle(node, x, offset, bool(node.get("upper", 1)))


@onnx_op("ReverseSequence")
def _reverse(node: Node, x: Any, lengths: Any) -> Any:
    """The first elements of each item of the batch turned around, by a table."""
    batch, time = node.get("batch_axis", 1), node.get("time_axis", 0)
    node.require({batch, time} == {0, 1}, "the axes must be the first two")
    steps = shape_of(x)[time]
    if _number(node, lengths) == steps:
        return node.piece(x, time, steps - 1, -FAR, stride=-1)
    if not is_known(lengths):
        return _reverse_each(node, x, lengths, time)
    parts = []
    each = np.ravel(lengths).tolist()
    node.require(max(each) <= steps, f"the lengths must be at most {steps}")
    node.reading.spend(steps * len(each))
    for place, n in enumerate(each):
        row = np.array([*reversed(range(n)), *range(n, steps)])
        part = node.piece(x, batch, place, place + 1)
        parts.append(node("gather", part, row, axis=time))
    return node("concat", parts, axis=batch)


def _number(node: Node, value: Any) -> Any:
    """The number that all elements of a value are, as far as it is a known one, repeated."""
    made = node.reading.emitter.producer(value) if isinstance(value, Tensor) else None
    if made is not None and made.name == "tile":
        (value,) = made.inputs
    known = node.reading.values.get(value, value) if made is not None else value
    items = np.ravel(known).tolist() if is_known(known) else []
    return items[0] if items and items.count(items[0]) == len(items) else None


def _reverse_each(node: Node, x: Any, lengths: Any, time: int) -> Any:
    """The same by numbers of elements, counted in the first two axes."""
    shape = shape_of(x)
    first, second = (node.positions(shape[axis], axis, 2) for axis in (0, 1))
    each = node("unsqueeze", node.scalars(lengths), hint="lengths", axes=[time])
    if time:
        second = node.expand("turned", second, each)
    else:
        first = node.expand("turned", first, each)
    number = node.expand("row_major", first, second, node.scalars(shape[1]))
    node.require_exact(prod(shape[:2]) - 1)
    rows = node.reshaped(x, [prod(shape[:2]), *shape[2:]], "rows")
    return node("gather", rows, node("cast", number, dtype="integer"), axis=0)
