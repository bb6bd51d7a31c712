"""Recurrent layers; PyTorch decomposes single steps of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nnef_grad.frontends.expansions.products import linear
from nnef_grad.frontends.expansions.recurrence import (
    Cell,
    Weights,
    along,
    part,
    with_one_bias,
)
from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.random import dropout as drop


def _lstm(call: Call, states: list[Any], x: Any, weights: Weights) -> list[Any]:
    h, c = states
    sums = call("add", x, linear(call, h, weights.of_state, weights.state_bias))
    h, c = call.expand("lstm_step", sums, c)
    if weights.projection is not None:
        h = linear(call, h, weights.projection, None)
    return [h, c]


def _gru(call: Call, states: list[Any], x: Any, weights: Weights) -> list[Any]:
    (h,) = states
    own = linear(call, h, weights.of_state, weights.state_bias)
    return [call.expand("gru_step", x, own, h)]


def _rnn(name: str) -> Cell:
    def step(call: Call, states: list[Any], x: Any, weights: Weights) -> list[Any]:
        own = linear(call, states[0], weights.of_state, weights.state_bias)
        return [call(name, call("add", x, own, hint="sums"))]

    return step


_CELLS: dict[str, Cell] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _rnn("tanh"),
    "rnn_relu": _rnn("relu"),
}


@aten(*(f"{name}.input" for name in _CELLS))
def layers(
    call: Call, x: Any, states: Any, parameters: Sequence[Any], *_: Any
) -> list[Any]:
    """Several layers, each of one direction or of two."""
    cell, args = _CELLS[call.packet], call.args
    states = [states] if not isinstance(states, (list, tuple)) else states
    axis, count = 1 if args["batch_first"] else 0, args["num_layers"]
    directions = [False, True] if args["bidirectional"] else [False]
    groups = _groups(parameters, args["has_biases"], count * len(directions))
    last: list[list[Any]] = [[] for _ in states]
    for layer in range(count):
        results = []
        for place, is_back in enumerate(directions, layer * len(directions)):
            first, weights = [part(call, s, 0, place) for s in states], next(groups)
            if cell is not _gru:
                weights = with_one_bias(call, weights)
            rows, ends = along(call, cell, x, axis, first, weights, is_back=is_back)
            results.append(rows)
            for found, end in zip(last, ends, strict=True):
                found.append(call("unsqueeze", end, axes=[0]))
        x = call.joined(results, 2)
        if layer < count - 1:
            x = drop(call, x, args["dropout"], args["train"])
    return [x, *(call.joined(ends, 0) for ends in last)]


def _groups(
    parameters: Sequence[Any], has_biases: bool, count: int
) -> Iterator[Weights]:
    """The parameters of each layer and direction."""
    size = len(parameters) // count
    for place in range(count):
        own = parameters[place * size : (place + 1) * size]
        biases = own[2:4] if has_biases else [None, None]
        rest = own[4:] if has_biases else own[2:]
        yield Weights(*own[:2], *biases, *rest)
