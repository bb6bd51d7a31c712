"""Recurrent operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nnef_grad.interop.onnx_files.node import Node, Tensor, conversion
from nnef_grad.interop.onnx_files.operations.shapes import FAR


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


@conversion(*_CELLS)
def recurrent(node: Node, x: Tensor, w: Tensor, r: Tensor, *_: Tensor | None) -> None:
    """The unrolled loop over the first axis, for each direction."""
    cell = _CELLS[node.kind]
    directions = _DIRECTIONS[node.get("direction", "forward")]
    _require_usual(node, cell, len(directions))
    steps, batch, hidden = *x.shape[:2], r.shape[2]
    states = [(len(directions), batch, hidden)] * cell.states
    shapes = [(len(directions), 2 * cell.gates * hidden), *states]
    rest = zip(map(node.operand, (3, 5, 6)[: len(shapes)]), shapes, strict=True)
    given = [node.literal(np.zeros(s)) if t is None else t for t, s in rest]
    results = _results(node, [(steps, len(directions), batch, hidden), *states])
    if len(directions) == 1:
        _one_way(node, x, [w, r, *given], results, directions[0])
        return
    made = []
    for place, is_back in enumerate(directions):
        parts = [_part(node, t, place) for t in (w, r, *given)]
        shapes = [(steps, 1, batch, hidden), *[(1, batch, hidden)] * cell.states]
        made.append(tuple(node.tensor(shape, np.float32) for shape in shapes))
        _one_way(node, x, parts, made[-1], is_back)
    for place, result in enumerate(results):
        axis = 0 if place else 1
        node.emit("concat", *(own[place] for own in made), results=(result,), axis=axis)


def _part(node: Node, x: Tensor, place: int) -> Tensor:
    """The part of a tensor for one direction."""
    shape = (1, *x.shape[1:])
    return node.step("slice", x, to=shape, axes=[0], begin=[place], end=[place + 1])


def _one_way(
    node: Node,
    x: Tensor,
    operands: Sequence[Tensor],
    results: tuple[Tensor, ...],
    is_back: bool,
) -> None:
    """The loop for one direction; a backward one sees the steps in the other order."""
    name, steps = _CELLS[node.kind].name, x.shape[0]
    if not is_back:
        node.emit(name, x, *operands, results=results, steps=steps)
        return
    turned: dict[str, Any] = {
        "axes": [0],
        "begin": [steps - 1],
        "end": [-FAR],
        "stride": [-1],
    }
    made = node.tensor(results[0].shape, np.float32)
    given = node.step("slice", x, to=x.shape, **turned)
    node.emit(name, given, *operands, results=(made, *results[1:]), steps=steps)
    node.emit("slice", made, results=results[:1], **turned)


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
    node.require(
        node.get("activations", usual) == usual, "activations must be the usual"
    )


def _results(node: Node, shapes: list[tuple[int, ...]]) -> tuple[Tensor, ...]:
    """The results; for those that are left out, tensors that nothing reads."""
    named = {place: t for place, t in enumerate(node.results) if t.name}
    return tuple(
        named[place] if place in named else node.tensor(shape, np.float32)
        for place, shape in enumerate(shapes)
    )
