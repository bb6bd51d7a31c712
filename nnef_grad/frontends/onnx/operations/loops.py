"""Loops: Scan, and Loop. Scan is a loop of the graph; the iterations of Loop, too, where they
are many or of an open number. Otherwise these are put one after the other: their number is
known in each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from onnx.numpy_helper import to_array

from nnef_grad.emit.loops import LONGEST
from nnef_grad.frontends.expansions.loops import loop
from nnef_grad.frontends.onnx.operations.control import known_number, stacked
from nnef_grad.frontends.onnx.reading import Node, onnx_op
from nnef_grad.frontends.values import dtype_of, is_known, shape_of
from nnef_grad.graph.extents import may_exceed
from nnef_grad.graph.ir import Tensor
from nnef_grad.graph.loops import Way

# A loop that is longer, and ends by a condition, would make a graph that nobody can use.
_MOST = 10_000


@onnx_op("Scan")
def _scan(node: Node, *operands: Any) -> list[Any]:
    """A loop over the elements of an axis of each tensor that it scans."""
    node.require(node.version >= 9, "the version must be at least 9")
    count = node.get("num_scan_inputs", 1)
    first = len(operands) - count
    scanned = [
        (x, way._replace(axis=node.axis(way.axis, len(shape_of(x)))))
        for x, way in zip(operands[first:], _ways(node, "input", count), strict=True)
    ]
    outward = _ways(node, "output", len(node.attributes["body"].output) - first)
    return _kept(node, operands[:first], scanned, outward, list)


def _ways(node: Node, side: str, count: int) -> list[Way]:
    axes, turns = (
        node.get(f"scan_{side}_{name}", [0] * count) for name in ("axes", "directions")
    )
    return [Way(a, -1 if d else 1) for a, d in zip(axes, turns, strict=True)]


@onnx_op("Loop")
def _loop(node: Node, limit: Any, condition: Any, *states: Any) -> list[Any]:
    count = _MOST + 1 if limit is None else known_number(node, limit, "its length")
    if limit is None or not may_exceed(count, LONGEST):
        return _one_by_one(node, count, condition, states)
    node.require(_goes_on(node, condition), "its condition must be true")
    numbers = node("cast", node.positions(count, 0, 1), dtype="integer", hint="numbers")
    outward = [Way(0)] * (len(node.attributes["body"].output) - 1 - len(states))

    def given(inner: Sequence[Any]) -> list[Any]:
        *own, number = inner
        return [number, np.array(True), *own]

    return _kept(node, states, [(numbers, Way(0))], outward, given, skipped=1)


# ---- A loop of the graph ----


def _kept(
    node: Node,
    states: Sequence[Any],
    scanned: Sequence[tuple[Any, Way]],
    outward: Sequence[Way],
    given: Callable[[Sequence[Any]], list[Any]],
    skipped: int = 0,
) -> list[Any]:
    """The last states, and what is collected.

    Args:
        node: the node.
        states: the first states.
        scanned: what is scanned, and how.
        outward: how each result that is no state is collected.
        given: makes the arguments of the body of the states, and an element of each
            tensor that is scanned.
        skipped: how many results of the body come before the next states: a condition.
    """
    graph, full = node.attributes["body"], dict(_outer(node))
    started = [_tensor(node, x) for x in states]
    ways = [way for _, way in scanned]
    operands = [*full.values(), *started, *(node.tensor(x) for x, _ in scanned)]
    first, last = len(full), len(full) + len(started)

    def body(inputs: Sequence[Tensor]) -> Any:
        pairs = zip(inputs[last:], ways, strict=True)
        parts = [node("squeeze", x, hint="element", axes=[w.axis]) for x, w in pairs]
        names = (value.name for value in graph.input)
        own = dict(zip(names, given([*inputs[first:last], *parts]), strict=True))
        around = {**node.around, **dict(zip(full, inputs, strict=False))}
        found = node.reading.run(graph, {**around, **own})
        goes_on = all(is_known(x) and bool(x) for x in found[:skipped])
        node.require(goes_on, "its condition must be true")
        results = [_tensor(node, x) for x in found[skipped:]]
        for state, result in zip(started, results, strict=False):
            is_same = (state.shape, state.dtype) == (result.shape, result.dtype)
            node.require(is_same, "its states must keep their shapes and types")
        return _without_inputs(node, inputs, results, outward)

    named = {f"input_{place}": x for place, x in enumerate(operands)}
    count = len(states) + len(outward)
    hints = [f"{node.hint}_{i}" if i else node.hint for i in range(count)]
    return [*loop(node, f"{node.hint}_body", named, ways, body, tuple(hints))]


def _outer(node: Node) -> Iterator[tuple[str, Tensor]]:
    """The values that the body reads whole, by name: tensors of the graph around it, and
    possible parameters.
    """
    reading, graph = node.reading, node.attributes["body"]
    for stored in graph.initializer:
        array = to_array(stored)
        if array.dtype.kind == "f" and array.ndim:
            yield stored.name, reading.stored(stored.name, array)
    for name in dict.fromkeys(_free_names(graph)):
        if name not in node.around:
            continue
        value = reading.value(node.around, name)
        if is_known(value) and reading.is_parameter(value):
            value = node.tensor(value)
        if isinstance(value, Tensor):
            yield name, value


def _free_names(graph: Any) -> Iterator[str]:
    """The names that a graph reads from outside, and the graphs in it."""
    made = {value.name for value in (*graph.input, *graph.initializer)}
    for node in graph.node:
        yield from (name for name in node.input if name and name not in made)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from (n for n in _free_names(attribute.g) if n not in made)
        made.update(node.output)
    yield from (value.name for value in graph.output if value.name not in made)


def _tensor(node: Node, x: Any) -> Tensor:
    """A value as a state: a number is one as well."""
    made = node.tensor(x)
    if isinstance(made, Tensor):
        return made
    row = node.constant(np.array([made]), dtype_of(x))
    squeezed: Tensor = node("squeeze", row, axes=[0])
    return squeezed


def _without_inputs(
    node: Node,
    inputs: Sequence[Tensor],
    found: Sequence[Tensor],
    outward: Sequence[Way],
) -> tuple[list[Tensor], list[tuple[Tensor, Way]]]:
    """The next states, and the rows of what is collected: copies where they do not differ,
    or are inputs.
    """
    taken, count = {*inputs}, len(found) - len(outward)

    def own(x: Tensor) -> Tensor:
        made: Tensor = node("copy", x, hint="result") if x in taken else x
        taken.add(made)
        return made

    states, rows = [*map(own, found[:count])], []
    for x, (axis, direction) in zip(found[count:], outward, strict=True):
        way = Way(node.axis(axis, x.rank + 1), direction)
        row = node("unsqueeze", x, hint="row", axes=[way.axis])
        rows.append((own(row), way))
    return states, rows


# ---- Iterations one after the other ----


def _one_by_one(
    node: Node, count: int, condition: Any, states: Sequence[Any]
) -> list[Any]:
    body = node.attributes["body"]
    names = [item.name for item in body.input]
    rows: list[list[Any]] = []
    while len(rows) < count and _goes_on(node, condition):
        node.require(len(rows) < _MOST, f"it has more than {_MOST} iterations")
        known = np.int64(len(rows)), np.bool_(True), *states
        given = [np.asarray(x) if isinstance(x, np.generic) else x for x in known]
        inner = {**node.around, **dict(zip(names, given, strict=True))}
        condition, *results = node.reading.run(body, inner)
        states, row = results[: len(states)], results[len(states) :]
        rows.append(row)
    columns = zip(*rows, strict=True)
    return [*states, *(stacked(node, list(column), 0) for column in columns)]


def _goes_on(node: Node, condition: Any) -> bool:
    return condition is None or bool(known_number(node, condition, "its condition"))
