"""Recurrent operations: unrolled loops over the first axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nnef_grad.frontends.onnx.node import Node, onnx_op
from nnef_grad.frontends.onnx.operations.shapes import FAR
from nnef_grad.frontends.values import shape_of


class Cell(NamedTuple):
    """The fragment of a recurrent operation, and the settings that it implements."""

    name: str
    gates: int
    states: int
    activations: list[str]
    linear_before_reset: int = 0


_CELLS = {
    "LSTM": Cell("lstm", 4, 2, ["Sigmoid", "Tanh", "Tanh"]),
    "GRU": Cell("gru", 3, 1, ["Sigmoid", "Tanh"], linear_before_reset=1),
    "RNN": Cell("rnn", 1, 1, ["Tanh"]),
}

# Whether each direction goes backward.
_DIRECTIONS = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}


@onnx_op(*_CELLS)
def recurrent(node: Node, x: Any, w: Any, r: Any, *_: Any) -> list[Any]:
    """The steps, for each direction."""
    cell = _CELLS[node.kind]
    directions = _DIRECTIONS[node.get("direction", "forward")]
    _require_usual(node, cell, len(directions))
    batch, hidden = shape_of(x)[1], shape_of(r)[2]
    states = [(len(directions), batch, hidden)] * cell.states
    shapes = [(len(directions), 2 * cell.gates * hidden), *states]
    rest = zip(map(node.operand, (3, 5, 6)[: len(shapes)]), shapes, strict=True)
    given = [w, r, *(np.zeros(s) if t is None else t for t, s in rest)]
    if len(directions) == 1:
        return _one_way(node, x, given, directions[0])
    ways = [
        _one_way(node, x, [_part(node, t, place) for t in given], is_back)
        for place, is_back in enumerate(directions)
    ]
    return [
        node("concat", list(pair), axis=0 if place else 1)
        for place, pair in enumerate(zip(*ways, strict=True))
    ]


def _part(node: Node, x: Any, place: int) -> Any:
    """The part of a tensor for one direction."""
    return node("slice", x, hint="part", axes=[0], begin=[place], end=[place + 1])


def _one_way(node: Node, x: Any, operands: Sequence[Any], is_back: bool) -> list[Any]:
    """The loop for one direction; a backward one sees the steps in the other order."""
    name, steps = _CELLS[node.kind].name, shape_of(x)[0]
    if not is_back:
        return list(node.expand(name, x, *operands, steps=steps))
    turned: dict[str, Any] = {
        "axes": [0], "begin": [steps - 1], "end": [-FAR], "stride": [-1],
    }  # fmt: skip
    given = node("slice", x, hint="turned", **turned)
    made, *states = node.expand(name, given, *operands, steps=steps)
    return [node("slice", made, **turned), *states]


def _require_usual(node: Node, cell: Cell, directions: int) -> None:
    for name in ("layout", "input_forget"):
        node.require(node.get(name, 0) == 0, f"{name} must be 0")
    node.require(node.get("clip", None) is None, "clip must be left out")
    node.require(node.operand(4) is None, "sequences must be of one length")
    node.require(node.operand(7) is None, "peepholes must be left out")
    linear = cell.linear_before_reset
    is_usual = node.get("linear_before_reset", 0) == linear
    node.require(is_usual, f"linear_before_reset is not {linear}")
    usual = cell.activations * directions
    given = [getattr(a, "decode", a.__str__)() for a in node.get("activations", usual)]
    node.require(given == usual, "activations must be the usual")
