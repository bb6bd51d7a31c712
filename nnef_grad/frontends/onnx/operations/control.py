"""Branches and sequences: branches are taken, and a sequence is a list of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnef_grad.frontends.onnx.reading import Node, onnx_op
from nnef_grad.frontends.values import is_known, shape_of


@onnx_op("If")
def _branch(node: Node, condition: Any) -> list[Any]:
    is_first = known_number(node, condition, "its condition")
    graph = node.attributes["then_branch" if is_first else "else_branch"]
    return node.reading.run(graph, dict(node.around))


def known_number(node: Node, value: Any, what: str) -> Any:
    """The number that a value is known to be."""
    advice = "export the network with a fixed one"
    message = f"{what} depends on the values of its operands: {advice}"
    node.require(is_known(value), message)
    return np.asarray(value).item()


def stacked(node: Node, parts: Sequence[Any], axis: int) -> Any:
    """Values along a new axis."""
    if all(map(is_known, parts)):
        return np.stack([np.asarray(x) for x in parts], axis)
    wide = [node("unsqueeze", x, hint="row", axes=[axis]) for x in parts]
    return node("concat", wide, axis=axis)


# ---- Sequences ----


@onnx_op("SequenceEmpty", "SequenceConstruct")
def _sequence(node: Node, *items: Any) -> list[Any]:
    return [list(items)]


@onnx_op("SequenceInsert")
def _insert(node: Node, items: list[Any], item: Any, place: Any = None) -> list[Any]:
    """A sequence with one more value, at the end if no place is given."""
    at = len(items) if place is None else known_number(node, place, "its position")
    return [[*items[:at], item, *items[at:]]]


@onnx_op("SequenceErase")
def _erase(node: Node, items: list[Any], place: Any = None) -> list[Any]:
    """A sequence without a value, the last one if no place is given."""
    at = -1 if place is None else known_number(node, place, "its position")
    rest = list(items)
    del rest[at]
    return [rest]


@onnx_op("SequenceAt")
def _item(node: Node, items: list[Any], place: Any) -> Any:
    return items[known_number(node, place, "its position")]


@onnx_op("SequenceLength")
def _length(node: Node, items: list[Any]) -> Any:
    return np.asarray(len(items), np.int64)


@onnx_op("ConcatFromSequence")
def _concatenate(node: Node, items: list[Any]) -> Any:
    """The values, along an axis that they have, or a new one."""
    axis = node.get("axis", 0)
    if node.get("new_axis", 0):
        return stacked(node, items, axis % (len(shape_of(items[0])) + 1))
    if all(map(is_known, items)):
        return np.concatenate([np.asarray(x) for x in items], axis)
    return node("concat", items, axis=node.along(0, items[0]))


@onnx_op("SplitToSequence")
def _split(node: Node, x: Any, sizes: Any = None) -> list[Any]:
    """Parts of given extents; or of extent 1, whose axis may go."""
    axis = node.along(0, x)
    extent = shape_of(x)[axis]
    extents = [1] * extent if sizes is None else _extents(node, sizes, extent)
    ends = np.cumsum(extents).tolist()
    parts = [
        node.piece(x, axis, end - n, end, "part")
        for n, end in zip(extents, ends, strict=True)
    ]
    if sizes is None and not node.get("keepdims", 1):
        parts = [node("squeeze", part, hint="row", axes=[axis]) for part in parts]
    return [parts]


def _extents(node: Node, sizes: Any, extent: int) -> list[int]:
    """Those of the parts: given one by one, or as that of all but the last."""
    given = np.asarray(node.known(sizes, "the extents of its parts"))
    if given.ndim:
        return list(given.tolist())
    size = given.item()
    return [min(size, extent - start) for start in range(0, extent, size)]
