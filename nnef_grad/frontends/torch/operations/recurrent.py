"""Recurrent layers, and single steps of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nnef_grad.frontends.products import linear
from nnef_grad.frontends.recurrence import Cell, Weights, along, part, with_one_bias
from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.random import dropout as drop


def _lstm(call: Call, states: list[Any], given: Any, weights: Weights) -> list[Any]:
    h, c = states
    sums = call("add", given, linear(call, h, weights.of_state, weights.state_bias))
    h, c = call.expand("lstm_step", sums, c)
    if weights.projection is not None:
        h = linear(call, h, weights.projection, None)
    return [h, c]


def _gru(call: Call, states: list[Any], given: Any, weights: Weights) -> list[Any]:
    (h,) = states
    own = linear(call, h, weights.of_state, weights.state_bias)
    return [call.expand("gru_step", given, own, h)]


def _rnn(name: str) -> Cell:
    def step(call: Call, states: list[Any], given: Any, weights: Weights) -> list[Any]:
        own = linear(call, states[0], weights.of_state, weights.state_bias)
        return [call(name, call("add", given, own, hint="sums"))]

    return step


_CELLS: dict[str, Cell] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _rnn("tanh"),
    "rnn_relu": _rnn("relu"),
}


@aten(*(f"{name}.input" for name in _CELLS))
def layers(
    call: Call,
    x: Any,
    states: Any,
    parameters: Sequence[Any],
    has_biases: bool,
    count: int,
    dropout: float,
    is_training: bool,
    is_bidirectional: bool,
    is_batch_first: bool,
) -> list[Any]:
    """Several layers, each of one direction or of two."""
    cell = _CELLS[call.packet]
    states = [states] if not isinstance(states, (list, tuple)) else states
    axis = 1 if is_batch_first else 0
    groups = _groups(parameters, has_biases, count * (1 + is_bidirectional))
    last: list[list[Any]] = [[] for _ in states]
    for layer in range(count):
        results = []
        for direction in range(1 + is_bidirectional):
            place = layer * (1 + is_bidirectional) + direction
            first, weights = [part(call, s, 0, place) for s in states], next(groups)
            if cell is not _gru:
                weights = with_one_bias(call, weights)
            is_back = bool(direction)
            rows, ends = along(call, cell, x, axis, first, weights, is_back=is_back)
            results.append(rows)
            for found, end in zip(last, ends, strict=True):
                found.append(call("unsqueeze", end, axes=[0]))
        x = results[0] if len(results) == 1 else call("concat", results, axis=2)
        if layer < count - 1:
            x = drop(call, x, dropout, is_training)
    return [x, *(_joined(call, ends) for ends in last)]


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


def _joined(call: Call, parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else call("concat", list(parts), axis=0)


# ---- Cells ----


@aten("lstm_cell")
def lstm_cell(call: Call, x: Any, states: Sequence[Any], *parameters: Any) -> list[Any]:
    """A step of an LSTM."""
    return _cell(call, _lstm, x, list(states), parameters)


@aten("gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def other_cells(call: Call, x: Any, state: Any, *parameters: Any) -> Any:
    """A step of another recurrent layer."""
    name = call.packet.removesuffix("_cell")
    return _cell(call, _CELLS[name], x, [state], parameters)[0]


def _cell(
    call: Call, cell: Cell, x: Any, states: list[Any], parameters: Sequence[Any]
) -> list[Any]:
    weights = Weights(*parameters)
    given = linear(call, x, weights.of_input, weights.input_bias)
    return cell(call, states, given, weights)
