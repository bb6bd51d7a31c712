"""Recurrent layers: their steps, one after the other. The products of the input are those
of all steps at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from nnef_grad.build.emitter import Emitter
from nnef_grad.build.loops import LONGEST, emit_loop
from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.products import linear
from nnef_grad.frontends.torch.operations.random import dropout as drop
from nnef_grad.frontends.values import shape_of
from nnef_grad.graph.extents import may_exceed
from nnef_grad.graph.ir import Graph
from nnef_grad.graph.loops import Collected, Loop, Way
from nnef_grad.ops.shape import with_extent


class Weights(NamedTuple):
    """The parameters of a layer in one direction; without biases these are None."""

    of_input: Any
    of_state: Any
    input_bias: Any = None
    state_bias: Any = None
    projection: Any = None


# The states before a step, what the input gives it, and its parameters, to those after it.
Step = Callable[[Call, list[Any], Any, Weights], list[Any]]


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


def _rnn(name: str) -> Step:
    def step(call: Call, states: list[Any], given: Any, weights: Weights) -> list[Any]:
        own = linear(call, states[0], weights.of_state, weights.state_bias)
        return [call(name, call("add", given, own, hint="sums"))]

    return step


_STEPS: dict[str, Step] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _rnn("tanh"),
    "rnn_relu": _rnn("relu"),
}


@aten(*(f"{name}.input" for name in _STEPS))
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
    step = _STEPS[call.packet]
    states = [states] if not isinstance(states, (list, tuple)) else states
    axis = 1 if is_batch_first else 0
    groups = _groups(parameters, has_biases, count * (1 + is_bidirectional))
    last: list[list[Any]] = [[] for _ in states]
    for layer in range(count):
        results = []
        for direction in range(1 + is_bidirectional):
            place = layer * (1 + is_bidirectional) + direction
            first = [_part(call, s, 0, place) for s in states]
            rows, ends = _along(call, step, x, axis, first, next(groups), direction)
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


def _part(call: Call, x: Any, axis: int, place: int) -> Any:
    """An element of an axis, which is gone."""
    part = call("slice", x, hint="part", axes=[axis], begin=[place], end=[place + 1])
    return call("squeeze", part, axes=[axis])


def _joined(call: Call, parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else call("concat", list(parts), axis=0)


def _along(
    call: Call,
    step: Step,
    x: Any,
    axis: int,
    states: list[Any],
    weights: Weights,
    direction: int,
) -> tuple[Any, list[Any]]:
    """The results of all steps, and the states after the last."""
    given = linear(call, x, weights.of_input, weights.input_bias)
    if may_exceed(shape_of(x)[axis], LONGEST):
        return _loop(
            call, step, given, Way(axis, -1 if direction else 1), states, weights
        )
    places = range(shape_of(x)[axis])
    rows: dict[int, Any] = {}
    for place in reversed(places) if direction else places:
        states = step(call, states, _part(call, given, axis, place), weights)
        rows[place] = states[0]
    found = [rows[place] for place in places]
    return call("stack", found, axis=axis), states


def _loop(
    call: Call, step: Step, given: Any, way: Way, states: list[Any], weights: Weights
) -> tuple[Any, list[Any]]:
    """The same, where the steps are too many to be written one after the other."""
    used = {n: x for n, x in weights._asdict().items() if x is not None}
    full = {n: x for n, x in used.items() if n not in ("of_input", "input_bias")}
    tensors = [*full.values(), *map(call.tensor, states), given]
    part = with_extent(given.shape, way.axis, 1)
    shapes = [*(tensor.shape for tensor in tensors[:-1]), part]
    names = [*full, *(f"state_{n}" for n in range(len(states))), "part"]
    emitter = Emitter(call.reading.emitter.opset)
    with call.reading.emitting(emitter):
        inputs = tuple(
            emitter.emit_named(name, "external", "scalar", shape=shape)
            for name, shape in zip(names, shapes, strict=True)
        )
        own = weights._replace(**dict(zip(full, inputs, strict=False)))
        element = call("squeeze", inputs[-1], axes=[way.axis])
        made = step(call, list(inputs[len(full) : -1]), element, own)
        row = call("unsqueeze", made[0], axes=[way.axis], hint="row")
    operations = tuple(emitter.operations)
    called = emitter.assigned_names(operations, emitter.names.values())
    body = Graph(f"{call.hint}_step", inputs, (*made, row), operations, called)
    loop = Loop(body, len(made), (way,), (Collected(len(made), way),))
    hints = (*(f"{call.hint}_last" for _ in made), call.hint)
    *last, rows = emit_loop(call.reading.emitter, loop, tensors, hints, call.span)
    return rows, last


# ---- Cells ----


@aten("lstm_cell")
def lstm_cell(call: Call, x: Any, states: Sequence[Any], *parameters: Any) -> list[Any]:
    """A step of an LSTM."""
    return _cell(call, _lstm, x, list(states), parameters)


@aten("gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def cell(call: Call, x: Any, state: Any, *parameters: Any) -> Any:
    """A step of another recurrent layer."""
    name = call.packet.removesuffix("_cell")
    return _cell(call, _STEPS[name], x, [state], parameters)[0]


def _cell(
    call: Call, step: Step, x: Any, states: list[Any], parameters: Sequence[Any]
) -> list[Any]:
    weights = Weights(*parameters)
    given = linear(call, x, weights.of_input, weights.input_bias)
    return step(call, states, given, weights)
