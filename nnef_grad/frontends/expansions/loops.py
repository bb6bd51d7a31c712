"""Loops of a graph whose body is what a function emits, and recurrent layers: their steps, one
after the other, or a loop where these are many. The products of the input are those of all
steps at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nnef_grad.emit.bodies import emit_loop
from nnef_grad.emit.emitter import Emitter
from nnef_grad.frontends.expansions.products import linear
from nnef_grad.frontends.values import shape_of
from nnef_grad.frontends.view import View
from nnef_grad.graph.extents import may_exceed
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.loops import Collected, Loop, ScanAxis
from nnef_grad.ops.shape import with_extent

# The inputs of a body to the next values of the states, and the parts that each step
# collects, with where they are put.
Body = Callable[
    [Sequence[Tensor]], tuple[Sequence[Tensor], Sequence[tuple[Tensor, ScanAxis]]]
]


def loop(
    view: View,
    name: str,
    operands: Mapping[str, Tensor],
    scan_axes: Sequence[ScanAxis],
    body: Body,
    hints: tuple[str, ...],
    reserved: Iterable[str] = (),
) -> tuple[Tensor, ...]:
    """The last values of the states of a loop, and what it collects.

    Args:
        view: the invocation that is a loop.
        name: the name of the body.
        operands: what each step sees whole, then the states, then what is scanned, by the
            names of the inputs of the body.
        scan_axes: how what is scanned is scanned.
        body: emits the body. Its results differ, and are no inputs.
        hints: what the results should be called.
        reserved: names that no tensor of the body may have by chance.
    """
    outer = view.reading.emitter
    emitter = Emitter(outer.opset)
    tensors = [*operands.values()]
    shapes = [x.shape for x in tensors[: -len(scan_axes)]]
    parts = zip(tensors[-len(scan_axes) :], scan_axes, strict=True)
    shapes += [with_extent(x.shape, along.axis, 1) for x, along in parts]
    inputs = [
        emitter.emit_named(own, "external", x.dtype, shape=shape)
        for (own, x), shape in zip(operands.items(), shapes, strict=True)
    ]
    with view.reading.emitting(emitter):
        states, collected = body(inputs)
    outputs = tuple(dict.fromkeys([*states, *(x for x, _ in collected)]))
    operations = tuple(emitter.operations)
    names = emitter.assigned_names(operations, [*emitter.names.values(), *reserved])
    graph = Graph(name, tuple(inputs), outputs, operations, names)
    gathered = tuple(Collected(outputs.index(x), along) for x, along in collected)
    whole = Loop(graph, len(states), tuple(scan_axes), gathered)
    return emit_loop(outer, whole, tensors, hints, view.span)


# ---- Recurrent layers ----


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


def scan_along(
    view: View,
    cell: Cell,
    x: Any,
    axis: int,
    states: list[Any],
    weights: Weights,
    *,
    is_back: bool,
    is_inside: Any = None,
) -> tuple[Any, list[Any]]:
    """The first states of all steps along an axis, and all states after the last one. Without
    `of_input`, x are the products of the input already. `is_inside` has one element for each
    step of each item of the batch: the others leave the states as they are.
    """
    products = x
    if weights.of_input is not None:
        products = linear(view, x, weights.of_input, weights.input_bias)
    scanned = [products] if is_inside is None else [products, is_inside]
    if may_exceed(shape_of(x)[axis], view.reading.unroll):
        along = ScanAxis(axis, -1 if is_back else 1)
        return _loop(view, cell, scanned, along, states, weights)
    steps = [view("unstack", each, axis=axis, hint="parts") for each in scanned]
    rows: list[Any] = []
    for parts in zip(*(e[::-1] if is_back else e for e in steps), strict=True):
        states = _after(view, cell, states, parts, weights)
        rows.append(states[0])
    return view("stack", rows[::-1] if is_back else rows, axis=axis), states


def _after(
    view: View, cell: Cell, states: list[Any], parts: Sequence[Any], weights: Weights
) -> list[Any]:
    """The states after a step: those before it, where this is not inside."""
    element, *masks = parts
    new = cell(view, states, element, weights)
    for mask in masks:
        pairs = zip(new, states, strict=True)
        new = [view("select", mask, x, old, hint="kept") for x, old in pairs]
    return new


def with_one_bias(view: View, weights: Weights) -> Weights:
    """The parameters of a cell that adds both biases: one is their sum for all steps."""
    if weights.state_bias is None:
        return weights
    bias = view("add", weights.input_bias, weights.state_bias, hint="bias")
    return weights._replace(input_bias=bias, state_bias=None)


def part(view: View, x: Any, axis: int, place: int) -> Any:
    """An element of an axis, which is gone."""
    if shape_of(x)[axis] != 1:
        x = view.piece(x, axis, place, place + 1, "part")
    return view("squeeze", x, axes=[axis])


def _loop(
    view: View,
    cell: Cell,
    scanned: Sequence[Any],
    along: ScanAxis,
    states: list[Any],
    weights: Weights,
) -> tuple[Any, list[Any]]:
    """The same as a loop."""
    inner = weights._replace(of_input=None, input_bias=None)._asdict()
    full = {name: x for name, x in inner.items() if x is not None}
    started = {f"state_{n}": x for n, x in enumerate(states)}
    operands = {n: view.tensor(x) for n, x in {**full, **started}.items()}

    def body(
        inputs: Sequence[Tensor],
    ) -> tuple[list[Tensor], list[tuple[Tensor, ScanAxis]]]:
        own = weights._replace(**dict(zip(full, inputs, strict=False)))
        first, last = len(full), len(operands) - len(scanned)
        parts = [view("squeeze", x, axes=[along.axis]) for x in inputs[last:]]
        new = _after(view, cell, list(inputs[first:last]), parts, own)
        row = view("unsqueeze", new[0], axes=[along.axis], hint="row")
        return new, [(row, along)]

    hints = (*(f"{view.hint}_last" for _ in states), view.hint)
    parts = map(view.tensor, scanned)
    operands |= dict(zip(("part", "is_inside"), parts, strict=False))
    scan_axes = [along for _ in scanned]
    *last, rows = loop(view, f"{view.hint}_step", operands, scan_axes, body, hints)
    return rows, last
