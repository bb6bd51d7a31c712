"""Matrix products, and recurrent operations."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nnef_grad.interop.onnx_files.node import Node, Tensor, conversion


@conversion("MatMul")
def matmul(node: Node, a: Tensor, b: Tensor) -> None:
    """A matrix product; a vector is a row on the left, and a column on the right."""
    rank = max(2, a.rank, b.rank)
    is_row, is_column = a.rank == 1, b.rank == 1
    row = node.unsqueeze(a, [0] * is_row)
    column = node.unsqueeze(b, [1] * is_column)
    squeezed = [rank - 2] * is_row + [rank - 1] * is_column
    operands = (node.of_rank(operand, rank) for operand in (row, column))
    node.emit("matmul", *operands, squeezed=squeezed)


@conversion("Gemm")
def gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> None:
    """alpha * a * b + beta * c, in the shortest form in NNEF."""
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    flips: dict[str, Any] = {
        f"transpose{side}": bool(node.get(f"trans{side}", 0)) for side in "AB"
    }
    if alpha != 1.0 or (c is not None and beta != 1.0):
        bias = node.literal(0.0) if c is None else node.of_rank(c, 2)
        node.emit("gemm", a, b, bias, alpha=float(alpha), beta=float(beta), **flips)
    elif c is None:
        node.emit("matmul", a, b, **flips)
    elif c.rank == 1 and list(flips.values()) == [False, True]:
        node.emit("linear", a, b, node.row(c))
    else:
        node.emit("matmul_add", a, b, node.of_rank(c, 2), **flips)


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


@conversion(*_CELLS)
def recurrent(node: Node, x: Tensor, w: Tensor, r: Tensor, *_: Tensor | None) -> None:
    """The unrolled loop over the first axis."""
    cell = _CELLS[node.kind]
    _require_usual(node, cell)
    steps, batch, hidden = *x.shape[:2], r.shape[2]
    states = [(1, batch, hidden)] * cell.states
    shapes = [(1, 2 * cell.gates * hidden), *states]
    rest = zip(map(node.operand, (3, 5, 6)[: len(shapes)]), shapes, strict=True)
    given = [node.literal(np.zeros(s)) if t is None else t for t, s in rest]
    results = _results(node, [(steps, 1, batch, hidden), *states])
    node.emit(cell.name, x, w, r, *given, results=results, steps=steps)


def _require_usual(node: Node, cell: Cell) -> None:
    usual = {"direction": "forward", "layout": 0, "input_forget": 0}
    for name, value in usual.items():
        node.require(node.get(name, value) == value, f"{name} must be {value}")
    node.require(node.get("clip", None) is None, "clip must be left out")
    node.require(node.operand(4) is None, "sequences must be of one length")
    node.require(node.operand(7) is None, "peepholes must be left out")
    linear = cell.linear_before_reset
    is_usual = node.get("linear_before_reset", 0) == linear
    node.require(is_usual, f"linear_before_reset is not {linear}")
    is_usual = node.get("activations", cell.activations) == cell.activations
    node.require(is_usual, "activations must be the usual")


def _results(node: Node, shapes: list[tuple[int, ...]]) -> tuple[Tensor, ...]:
    """The results; for those that are left out, tensors that nothing reads."""
    named = {place: t for place, t in enumerate(node.results) if t.name}
    return tuple(
        named[place] if place in named else node.tensor(shape, np.float32)
        for place, shape in enumerate(shapes)
    )
