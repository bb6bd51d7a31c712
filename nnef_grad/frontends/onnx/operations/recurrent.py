"""Products of matrices, and recurrent layers, in one direction or in both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nnef_grad.frontends.expansions.loops import (
    Weights,
    part,
    scan_along,
    with_one_bias,
)
from nnef_grad.frontends.expansions.products import contract, linear, matmul
from nnef_grad.frontends.onnx.node import Node, onnx_op
from nnef_grad.frontends.onnx.operations.elementwise import applied, settings_of
from nnef_grad.frontends.values import is_known, shape_of
from nnef_grad.graph.ir import Shape

Function = Callable[[Any], Any]


# A step: a cell of the layer, after its activations.
Step = Callable[[list[Function], Any, list[Any], Any, Weights], list[Any]]


class _Kind(NamedTuple):
    """A recurrent operation: how many states it has, its activations if nothing is said, and
    its step.
    """

    states: int
    activations: list[str]
    step: Step


def _lstm(
    functions: list[Function], node: Node, states: list[Any], x: Any, weights: Weights
) -> list[Any]:
    (gate, inner, outer), (h, c) = functions, states
    sums = node("add", x, _of_state(node, h, weights), hint="sums")
    i, o, f, g = node("split", sums, axis=1, ratios=[1] * 4)
    if weights.peepholes is not None:
        row = node.of_rank(weights.peepholes, 2)
        p_i, p_o, p_f = node("split", row, axis=1, ratios=[1] * 3)
        i = node("add", i, node("mul", p_i, c))
        f = node("add", f, node("mul", p_f, c))
    kept = node("mul", gate(f), c, hint="kept")
    c = node("add", kept, node("mul", gate(i), inner(g)), hint="cell")
    if weights.peepholes is not None:
        o = node("add", o, node("mul", p_o, c))
    return [node("mul", gate(o), outer(c), hint="state"), c]


def _gru(
    functions: list[Function], node: Node, states: list[Any], x: Any, weights: Weights
) -> list[Any]:
    (gate, inner), (h,) = functions, states
    xz, xr, xn = node("split", x, axis=1, ratios=[1] * 3)
    is_linear = bool(node.get("linear_before_reset", 0))
    if is_linear:
        own = _of_state(node, h, weights)
        hz, hr, hn = node("split", own, axis=1, ratios=[1] * 3)
    else:
        own = linear(node, h, _gates(node, weights.of_state, 0, 2), None)
        hz, hr = node("split", own, axis=1, ratios=[1] * 2)
    z = gate(node("add", xz, hz, hint="update"))
    r = gate(node("add", xr, hr, hint="reset"))
    if is_linear:
        hn = node("mul", r, hn)
    else:
        last = _gates(node, weights.of_state, 2, 3)
        hn = linear(node, node("mul", r, h), last, None)
    n = inner(node("add", xn, hn, hint="new"))
    change = node("mul", z, node("sub", h, n, hint="difference"), hint="change")
    return [node("add", n, change, hint="state")]


def _gates(node: Node, weights: Any, first: int, last: int) -> Any:
    rows = shape_of(weights)[0] // 3
    return node.piece(weights, 0, first * rows, last * rows, "gates")


def _rnn(
    functions: list[Function], node: Node, states: list[Any], x: Any, weights: Weights
) -> list[Any]:
    sums = node("add", x, _of_state(node, states[0], weights), hint="sums")
    return [functions[0](sums)]


def _of_state(node: Node, h: Any, weights: Weights) -> Any:
    return linear(node, h, weights.of_state, weights.state_bias)


_KINDS = {
    "LSTM": _Kind(2, ["Sigmoid", "Tanh", "Tanh"], _lstm),
    "GRU": _Kind(1, ["Sigmoid", "Tanh"], _gru),
    "RNN": _Kind(1, ["Tanh"], _rnn),
}
_ACTIVATIONS = (
    "Elu", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Softplus", "Softsign", "Tanh",
    "ThresholdedRelu",
)  # fmt: skip
# Whether each direction goes backward.
_DIRECTIONS = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}


@onnx_op(*_KINDS)
def _recurrent(node: Node, x: Any, w: Any, r: Any, *_: Any) -> list[Any]:
    """The results of all steps, and the last states. The layout is the axis of the steps: the
    batch has the other one of the first two.
    """
    kind = _KINDS[node.kind]
    directions = _DIRECTIONS[node.get("direction", "forward")]
    layout = node.get("layout", 0)
    _refuse_unusual(node)
    is_inside = _steps_inside(node, shape_of(x), layout)
    functions = _functions(node, kind, len(directions))
    sides = []
    for place, is_back in enumerate(directions):
        weights = _weights(node, place)
        states = [_state(node, x, number, place) for number in range(kind.states)]
        cell = partial(kind.step, [next(functions) for _ in kind.activations])
        rows, last = scan_along(
            *(node, cell, x, layout, states, weights),
            is_back=is_back,
            is_inside=is_inside,
        )
        if is_inside is not None:
            rows = node("select", is_inside, rows, 0.0, hint="inside")
        rows = node("unsqueeze", rows, axes=[1 + layout])
        sides.append([rows, *(node("unsqueeze", end, axes=[layout]) for end in last)])
    rows, *ends = zip(*sides, strict=True)
    return [node.joined(rows, 1 + layout), *(node.joined(end, layout) for end in ends)]


def _refuse_unusual(node: Node) -> None:
    node.require(node.get("input_forget", 0) == 0, "input_forget must be 0")
    node.require(node.get("clip", None) is None, "clip must be left out")


def _steps_inside(node: Node, shape: Shape, layout: int) -> Any:
    """Which steps each sequence has, [steps, batch, 1] or [batch, steps, 1]; None if these are
    all. The others return zeros and leave the states as they are, in both directions.
    """
    lengths, steps = node.operand(4), shape[layout]
    if lengths is None or (is_known(lengths) and np.all(np.asarray(lengths) == steps)):
        return None
    column = node("unsqueeze", node.scalars(lengths), hint="lengths", axes=[layout, 2])
    return node("lt", node.positions(steps, layout, 3), column, hint="is_inside")


def _functions(node: Node, kind: _Kind, directions: int) -> Iterator[Function]:
    """The activations, those of each direction after the other."""
    words = node.get("activations", kind.activations * directions)
    numbers: dict[str, Iterator[float]] = {
        name: iter(node.get(f"activation_{name}", [])) for name in ("alpha", "beta")
    }
    for word in words:
        word = word if isinstance(word, str) else word.decode()
        node.require(word in _ACTIVATIONS, f"the activation {word} is not supported")
        settings = settings_of(word, lambda name, value: next(numbers[name], value))
        yield partial(applied, node, word, settings=settings)


def _weights(node: Node, place: int) -> Weights:
    operands = map(node.operand, (1, 2, 3, 7))
    w, r, b, p = (None if x is None else part(node, x, 0, place) for x in operands)
    if b is None:
        return Weights(w, r, peepholes=p)
    of_input, of_state = node("split", b, axis=0, ratios=[1, 1])
    weights = Weights(w, r, of_input, of_state, peepholes=p)
    is_sum = node.kind != "GRU" or not node.get("linear_before_reset", 0)
    return with_one_bias(node, weights) if is_sum else weights


def _state(node: Node, x: Any, number: int, place: int) -> Any:
    given, layout = node.operand(5 + number), node.get("layout", 0)
    if given is not None:
        return part(node, given, layout, place)
    shape = [shape_of(x)[1 - layout], shape_of(node.operands[2])[2]]
    return node("constant", hint="zeros", dtype="scalar", shape=shape, value=[0.0])


# ---- Products ----


onnx_op("MatMul")(matmul)


@onnx_op("Gemm")
def _gemm(node: Node, a: Any, b: Any, c: Any = None) -> Any:
    """alpha * a * b + beta * c, in the shortest form in NNEF."""
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    flips: dict[str, Any] = {
        f"transpose{side}": bool(node.get(f"trans{side}", 0)) for side in "AB"
    }
    is_layer = list(flips.values()) == [False, True] and alpha == beta == 1.0
    if is_layer and c is not None:
        bias = node.of_rank(c, 2) if shape_of(c) else c
        if shape_of(bias)[:1] in ((), (1,)):
            return node("linear", a, b, bias)
    product = node("matmul", a, b, hint=None if c is None else "product", **flips)
    scaled = product if alpha == 1.0 else node("mul", product, float(alpha))
    if c is None or beta == 0.0:
        return scaled
    added = c if beta == 1.0 else node("mul", c, float(beta), hint="added")
    return node("add", *node.aligned(scaled, added))


@onnx_op("Einsum")
def _einsum(node: Node, *operands: Any) -> Any:
    return contract(node, operands, node.get("equation", ""))
