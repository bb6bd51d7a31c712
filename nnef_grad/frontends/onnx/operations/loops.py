"""Loops: Scan, and Loop. Scan is a loop of the graph; the iterations of Loop, too, where they
are many or of an open number. Otherwise these are put one after the other: their number is
known in each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx.numpy_helper import to_array

from nnef_grad.emit.loops import LONGEST
from nnef_grad.frontends.loops import loop as emit_loop
from nnef_grad.frontends.onnx.node import Node, with_graphs
from nnef_grad.frontends.onnx.operations.control import known_number, stacked
from nnef_grad.frontends.values import dtype_of, is_known, shape_of
from nnef_grad.graph.extents import may_exceed
from nnef_grad.graph.ir import Tensor
from nnef_grad.graph.loops import Way

# A loop that is longer, and ends by a condition, would make a graph that nobody can use.
_MOST = 10_000


@with_graphs("Scan")
def scan(node: Node, known: Mapping[str, Any]) -> list[Any]:
    """A loop over the elements of an axis of each tensor that it scans."""
    node.require(node.version >= 9, "the version must be at least 9")
    body, count = node.attributes["body"], node.get("num_scan_inputs", 1)
    first = len(node.operands) - count
    states, whole = node.operands[:first], node.operands[first:]
    ways = [
        Way(node.axis(axis, len(shape_of(x))), -1 if is_back else 1)
        for x, axis, is_back in zip(
            whole,
            node.get("scan_input_axes", [0] * count),
            node.get("scan_input_directions", [0] * count),
            strict=True,
        )
    ]
    made = len(body.output) - first
    axes = node.get("scan_output_axes", [0] * made)
    backward = node.get("scan_output_directions", [0] * made)
    outward = [Way(a, -1 if d else 1) for a, d in zip(axes, backward, strict=True)]
    return _Loop(node, known, 0, outward).results(states, whole, ways, list)


@with_graphs("Loop")
def loop(node: Node, known: Mapping[str, Any]) -> list[Any]:
    """The body, as often as it runs."""
    limit, condition, *states = node.operands
    body = node.attributes["body"]
    count = _MOST + 1 if limit is None else known_number(node, limit, "its length")
    if limit is None or not may_exceed(count, LONGEST):
        return _one_by_one(node, known, count)
    node.require(_goes_on(node, condition), "its condition must be true")
    numbers = node("cast", node.positions(count, 0, 1), dtype="integer", hint="numbers")
    outward = [Way(0)] * (len(body.output) - 1 - len(states))

    def given(inner: Sequence[Any]) -> list[Any]:
        *own, number = inner
        return [number, np.array(True), *own]

    return _Loop(node, known, 1, outward).results(states, [numbers], [Way(0)], given)


class _Loop:
    """A loop of the graph.

    Args:
        node: the node.
        known: the values around it, by name.
        skipped: how many results of its body come before the next states: a condition.
        outward: where each of the others is put.
    """

    def __init__(
        self, node: Node, known: Mapping[str, Any], skipped: int, outward: Sequence[Way]
    ) -> None:
        self.node, self.known = node, known
        self.graph = node.attributes["body"]
        self.skipped, self.outward = skipped, outward

    def results(
        self,
        states: Sequence[Any],
        whole: Sequence[Any],
        ways: Sequence[Way],
        given: Callable[[Sequence[Any]], list[Any]],
    ) -> list[Any]:
        """The results, for states to begin with, and what is scanned in some ways; `given`
        makes the arguments of the body of the states, and elements of what is scanned.
        """
        node, full = self.node, dict(self._outer())
        started = [*map(self._tensor, states)]
        operands = [*full.values(), *started, *map(node.tensor, whole)]

        def body(inputs: Sequence[Tensor]) -> Any:
            inner = [*inputs[len(full) :]]
            for place, way in enumerate(ways, len(started)):
                axes = [way.axis]
                inner[place] = node("squeeze", inner[place], hint="element", axes=axes)
            names = (value.name for value in self.graph.input)
            own = dict(zip(names, given(inner), strict=True))
            around = dict(zip(full, inputs, strict=False))
            found = self._run({**self.known, **around, **own}, started)
            return self._without_inputs(inputs, found, len(started))

        named = {f"input_{place}": x for place, x in enumerate(operands)}
        count = len(states) + len(self.outward)
        hints = [f"{node.hint}_{i}" if i else node.hint for i in range(count)]
        made = emit_loop(node, f"{node.hint}_body", named, ways, body, tuple(hints))
        return list(made)

    def _outer(self) -> Iterator[tuple[str, Tensor]]:
        """The values that the body reads whole, by name: tensors of the graph around it, and
        possible parameters.
        """
        reading = self.node.reading
        for stored in self.graph.initializer:
            array = to_array(stored)
            if array.dtype.kind == "f" and array.ndim:
                yield stored.name, reading.stored(stored.name, array)
        for name in dict.fromkeys(_free_names(self.graph)):
            if name not in self.known:
                continue
            value = reading.value(self.known, name)
            if is_known(value) and reading.is_parameter(value):
                value = self.node.tensor(value)
            if isinstance(value, Tensor):
                yield name, value

    def _tensor(self, x: Any) -> Tensor:
        """A state to begin with: a number is one as well."""
        made = self.node.tensor(x)
        if isinstance(made, Tensor):
            return made
        row = self.node.constant(np.array([made]), dtype_of(x))
        squeezed: Tensor = self.node("squeeze", row, axes=[0])
        return squeezed

    def _run(self, inner: dict[str, Any], states: Sequence[Tensor]) -> list[Tensor]:
        """The next states, and the others of the results of the body."""
        node = self.node
        found = node.reading.run(self.graph, inner)
        for condition in found[: self.skipped]:
            goes_on = is_known(condition) and bool(condition)
            node.require(goes_on, "its condition must be true")
        results = [*map(self._tensor, found[self.skipped :])]
        for state, result in zip(states, results, strict=False):
            is_same = (state.shape, state.dtype) == (result.shape, result.dtype)
            node.require(is_same, "its states must keep their shapes and types")
        return results

    def _without_inputs(
        self, inputs: Sequence[Tensor], found: Sequence[Tensor], count: int
    ) -> tuple[list[Tensor], list[tuple[Tensor, Way]]]:
        """The next states, and the rows of what is collected: copies where they do not
        differ, or are inputs.
        """
        node, taken = self.node, {*inputs}

        def own(x: Tensor) -> Tensor:
            made: Tensor = node("copy", x, hint="result") if x in taken else x
            taken.add(made)
            return made

        states, rows = [*map(own, found[:count])], []
        for x, (axis, direction) in zip(found[count:], self.outward, strict=True):
            way = Way(node.axis(axis, x.rank + 1), direction)
            row = node("unsqueeze", x, hint="row", axes=[way.axis])
            rows.append((own(row), way))
        return states, rows


def _free_names(graph: Any) -> Iterator[str]:
    """The names that a graph reads from outside, and the graphs in it."""
    made = {value.name for value in graph.input}
    made |= {stored.name for stored in graph.initializer}
    for node in graph.node:
        yield from (name for name in node.input if name and name not in made)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from (n for n in _free_names(attribute.g) if n not in made)
        made.update(node.output)
    yield from (value.name for value in graph.output if value.name not in made)


# ---- Iterations one after the other ----


def _one_by_one(node: Node, known: Mapping[str, Any], count: int) -> list[Any]:
    _, condition, *states = node.operands
    body = node.attributes["body"]
    names = [item.name for item in body.input]
    rows: list[list[Any]] = []
    while len(rows) < count and _goes_on(node, condition):
        message = f"it has more than {_MOST} iterations"
        node.require(len(rows) < _MOST, message)
        given = [np.int64(len(rows)), np.bool_(True), *states]
        inner = {**known, **dict(zip(names, map(_array, given), strict=True))}
        condition, *results = node.reading.run(body, inner)
        states, row = results[: len(states)], results[len(states) :]
        rows.append(row)
    columns = zip(*rows, strict=True)
    return [*states, *(stacked(node, list(column), 0) for column in columns)]


def _array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic) else value


def _goes_on(node: Node, condition: Any) -> bool:
    return condition is None or bool(known_number(node, condition, "its condition"))
