"""Branches and sequences: branches are taken, and a sequence is a list of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnef_grad.frontends.onnx.node import Node, onnx_op, with_graphs
from nnef_grad.frontends.values import is_known, shape_of


@with_graphs("If")
def branch(node: Node, known: Mapping[str, Any]) -> list[Any]:
    """The branch that is taken."""
    condition = known_number(node, node.operands[0], "its condition")
    graph = node.attributes["then_branch" if condition else "else_branch"]
    results: list[Any] = node.reading.run(graph, dict(known))
    return results


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
def sequence(node: Node, *items: Any) -> list[Any]:
    """A new sequence."""
    return [list(items)]


@onnx_op("SequenceInsert")
def insert(node: Node, items: list[Any], item: Any, place: Any = None) -> list[Any]:
    """A sequence with one more value, at the end if no place is given."""
    made = list(items)
    at = len(made) if place is None else known_number(node, place, "its position")
    made.insert(at, item)
    return [made]


@onnx_op("SequenceErase")
def erase(node: Node, items: list[Any], place: Any = None) -> list[Any]:
    """A sequence without a value, the last one if no place is given."""
    at = -1 if place is None else known_number(node, place, "its position")
    rest = list(items)
    del rest[at]
    return [rest]


@onnx_op("SequenceAt")
def item(node: Node, items: list[Any], place: Any) -> Any:
    """A value of a sequence."""
    return items[known_number(node, place, "its position")]


@onnx_op("SequenceLength")
def length(node: Node, items: list[Any]) -> Any:
    """The number of its values."""
    return np.asarray(len(items), np.int64)


@onnx_op("ConcatFromSequence")
def concatenate(node: Node, items: list[Any]) -> Any:
    """The values, along an axis that they have, or a new one."""
    axis = node.get("axis", 0)
    if node.get("new_axis", 0):
        return stacked(node, items, axis % (len(shape_of(items[0])) + 1))
    if all(map(is_known, items)):
        return np.concatenate([np.asarray(x) for x in items], axis)
    return node("concat", items, axis=node.axis(axis, len(shape_of(items[0]))))


@onnx_op("SplitToSequence")
def split(node: Node, x: Any, sizes: Any = None) -> list[Any]:
    """Parts of given extents; or of extent 1, whose axis may go."""
    axis = node.axis(node.get("axis", 0), len(shape_of(x)))
    extent = shape_of(x)[axis]
    extents = [1] * extent if sizes is None else _parts(node, sizes, extent)
    ends = np.cumsum(extents).tolist()
    parts = [
        node.piece(x, axis, end - n, end, "part")
        for n, end in zip(extents, ends, strict=True)
    ]
    if sizes is None and not node.get("keepdims", 1):
        parts = [node("squeeze", part, hint="row", axes=[axis]) for part in parts]
    return [parts]


def _parts(node: Node, sizes: Any, extent: int) -> list[int]:
    given = np.asarray(node.known(sizes, "the extents of its parts"))
    if given.ndim:
        return list(given.tolist())
    size = given.item()
    return [min(size, extent - start) for start in range(0, extent, size)]
