"""Operations that move or select elements."""

from __future__ import annotations

import numpy as np

from nnef_grad.interop.khronos import finite
from nnef_grad.interop.onnx_files.node import (
    Node,
    Tensor,
    constant,
    conversion,
    positive,
)

# Beyond any position.
FAR = 2**31 - 1


@conversion("Reshape")
def reshape(node: Node, x: Tensor, *_: Tensor | None) -> None:
    """A reshape; a batch axis that it keeps becomes 0, so that other batch sizes work."""
    given = node.items("shape", 1)
    has_zeros = node.get("allowzero", 0) and 0 in given
    node.require(not has_zeros, "no extent must be 0")
    if not given or not x.shape:
        given = list(node.result.shape)
    elif given[0] == x.shape[0]:
        given[0] = 0
    node.emit("reshape", x, shape=given)


@conversion("Flatten")
def flatten(node: Node, x: Tensor) -> None:
    """A matrix: the axes before an axis become rows, the others columns."""
    shape = [0, -1] if node.get("axis", 1) == 1 else list(node.result.shape)
    node.emit("reshape", x, shape=shape)


@conversion("Squeeze")
def squeeze(node: Node, x: Tensor, *_: Tensor | None) -> None:
    """Squeezes all axes of extent 1 if none are given."""
    ones = [axis for axis, extent in enumerate(x.shape) if extent == 1]
    given = positive(node.items("axes", 1, ones), x.rank)
    node.emit("squeeze", x, axes=sorted(given))


@conversion("Unsqueeze")
def unsqueeze(node: Node, x: Tensor, *_: Tensor | None) -> None:
    """Inserts axes, which count in the result."""
    given = positive(node.items("axes", 1), node.result.rank)
    node.emit("unsqueeze", x, axes=sorted(given))


@conversion("Concat")
def concat(node: Node, *parts: Tensor) -> None:
    """A concatenation of the operands that have elements: NNEF has no empty tensors."""
    (axis,) = positive([node.get("axis", 1)], node.result.rank)
    node.emit("concat", *(part for part in parts if 0 not in part.shape), axis=axis)


@conversion("Split")
def split(node: Node, x: Tensor, *_: Tensor) -> None:
    """Splits in the ratios of the shapes of the results."""
    (axis,) = positive([node.get("axis", 0)], x.rank)
    ratios = [part.shape[axis] for part in node.results]
    node.emit("split", x, results=node.results, axis=axis, ratios=ratios)


@conversion("Expand")
def expand(node: Node, x: Tensor, shape: Tensor) -> None:
    """Broadcasting, which may add leading axes."""
    wide = node.unsqueeze(x, range(node.result.rank - x.rank))
    extents = zip(node.result.shape, wide.shape, strict=True)
    node.emit("tile", wide, repeats=[made // given for made, given in extents])


@conversion("Gather")
def gather(node: Node, x: Tensor, indices: Tensor) -> None:
    """A gather; in ONNX, negative indices count from the end."""
    (axis,) = positive([node.get("axis", 0)], x.rank)
    value, extent = constant(indices), x.shape[axis]
    if value is not None and (value < 0).any():
        indices = node.literal(np.where(value < 0, value + extent, value), np.int64)
    node.emit("gather", x, indices, axis=axis)


@conversion("Slice")
def slices(node: Node, x: Tensor, *_: Tensor | None) -> None:
    """A slice; in ONNX, bounds may be out of range, and count from the end."""
    first, last = node.items("starts", 1), node.items("ends", 2)
    along = positive(node.items("axes", 3, range(len(first))), x.rank)
    stride = node.items("steps", 4, [1] * len(first))
    columns = zip(along, first, last, stride, strict=True)
    bounds = [_bounds(x.shape[axis], slice(*each)) for axis, *each in columns]
    begin, end = ([pair[side] for pair in bounds] for side in (0, 1))
    node.emit("slice", x, axes=along, begin=begin, end=end, stride=stride)


def _bounds(extent: int, found: slice) -> tuple[int, int]:
    """The bounds of a slice; a descending one ends before the first element."""
    begin, end, _ = found.indices(extent)
    return begin, end if end >= 0 else -FAR


@conversion("Pad")
def pad(node: Node, x: Tensor, *_: Tensor | None) -> None:
    """Padding of all axes, or some."""
    mode, (value,) = node.get("mode", "constant"), node.items("value", 2, 0.0)
    node.require(mode != "wrap", "mode must not be wrap")
    axes = positive(node.items("axes", 3, range(x.rank)), x.rank)
    given = dict(zip(axes, sides(node.items("pads", 1)), strict=True))
    padding = [given.get(axis, (0, 0)) for axis in range(x.rank)]
    border = "replicate" if mode == "edge" else mode
    node.emit("pad", x, padding=padding, value=finite(float(value)), border=border)


def sides(pads: list[int]) -> list[tuple[int, int]]:
    """Pads by axis: ONNX lists those before all axes first, then those after."""
    half = len(pads) // 2
    return list(zip(pads[:half], pads[half:], strict=True))
