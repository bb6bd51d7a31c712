"""Recurrent layers: their steps, one after the other, or a loop where these are many. The
products of the input are those of all steps at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nnef_grad.emit.loops import LONGEST
from nnef_grad.frontends.expansions.loops import loop
from nnef_grad.frontends.expansions.products import linear
from nnef_grad.frontends.step import Step
from nnef_grad.frontends.values import shape_of
from nnef_grad.graph.extents import may_exceed
from nnef_grad.graph.ir import Tensor
from nnef_grad.graph.loops import Way


class Weights(NamedTuple):
    """The parameters of a layer in one direction; those that it does not have are None.

    Attributes:
        of_input: [gates * hidden, inputs].
        of_state: [gates * hidden, hidden].
        input_bias: [gates * hidden].
        state_bias: the same.
        projection: [outputs, hidden].
        peepholes: [gates * hidden].
    """

    of_input: Any
    of_state: Any
    input_bias: Any = None
    state_bias: Any = None
    projection: Any = None
    peepholes: Any = None


# The states before a step, what the input gives it, and its parameters, to those after it.
Cell = Callable[[Any, list[Any], Any, Weights], list[Any]]


def along(
    step: Step,
    cell: Cell,
    x: Any,
    axis: int,
    states: list[Any],
    weights: Weights,
    *,
    is_back: bool,
) -> tuple[Any, list[Any]]:
    """The first states of all steps along an axis, and all states after the last one."""
    given = linear(step, x, weights.of_input, weights.input_bias)
    if may_exceed(shape_of(x)[axis], LONGEST):
        return _loop(
            step, cell, given, Way(axis, -1 if is_back else 1), states, weights
        )
    parts = step("unstack", given, axis=axis, hint="parts")
    rows: list[Any] = []
    for element in reversed(parts) if is_back else parts:
        states = cell(step, states, element, weights)
        rows.append(states[0])
    return step("stack", rows[::-1] if is_back else rows, axis=axis), states


def with_one_bias(step: Step, weights: Weights) -> Weights:
    """The parameters of a cell in which both biases enter one sum, which is that of all
    steps then.
    """
    if weights.state_bias is None:
        return weights
    bias = step("add", weights.input_bias, weights.state_bias, hint="bias")
    return weights._replace(input_bias=bias, state_bias=None)


def part(step: Step, x: Any, axis: int, place: int) -> Any:
    """An element of an axis, which is gone."""
    if shape_of(x)[axis] != 1:
        x = step.piece(x, axis, place, place + 1, "part")
    return step("squeeze", x, axes=[axis])


def _loop(
    step: Step, cell: Cell, given: Any, way: Way, states: list[Any], weights: Weights
) -> tuple[Any, list[Any]]:
    """The same as a loop."""
    used = {n: x for n, x in weights._asdict().items() if x is not None}
    full = {n: x for n, x in used.items() if n not in ("of_input", "input_bias")}
    started = {f"state_{n}": x for n, x in enumerate(states)}
    operands = {n: step.tensor(x) for n, x in {**full, **started}.items()}

    def body(inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[tuple[Tensor, Way]]]:
        own = weights._replace(**dict(zip(full, inputs, strict=False)))
        element = step("squeeze", inputs[-1], axes=[way.axis])
        made = cell(step, list(inputs[len(full) : -1]), element, own)
        row = step("unsqueeze", made[0], axes=[way.axis], hint="row")
        return made, [(row, way)]

    hints = (*(f"{step.hint}_last" for _ in states), step.hint)
    operands["part"] = given
    *last, rows = loop(step, f"{step.hint}_step", operands, [way], body, hints)
    return rows, last
