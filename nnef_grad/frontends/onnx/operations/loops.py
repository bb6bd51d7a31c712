"""Loops: Scan, and Loop. Scan is a loop of the graph; the iterations of Loop, too, where they
are many or of an open number. Otherwise these are put one after the other: their number is
known in each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx.numpy_helper import to_array

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.loops import LONGEST, emit_loop
from nnef_grad.frontends.onnx.node import Node, with_graphs
from nnef_grad.frontends.onnx.operations.control import known_number, stacked
from nnef_grad.frontends.values import dtype_of, is_known, shape_of
from nnef_grad.graph.extents import may_exceed
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.loops import Collected, Loop, Way
from nnef_grad.ops.shape import with_extent

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
    outward = [(a, -1 if d else 1) for a, d in zip(axes, backward, strict=True)]
    names = [value.name for value in body.input]
    results = _Body(node, known, body, states, whole, ways)
    return results.of_loop(dict(zip(names, results.inner(), strict=True)), 0, outward)


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
    results = _Body(node, known, body, states, [numbers], [Way(0)])
    *own, number = results.inner()
    names = [value.name for value in body.input]
    given = dict(zip(names, [number, np.array(True), *own], strict=True))
    made = len(body.output) - 1 - len(states)
    return results.of_loop(given, 1, [(0, 1)] * made)


class _Body:
    """A loop of the graph, while its body is read."""

    def __init__(
        self,
        node: Node,
        known: Mapping[str, Any],
        body: Any,
        states: Sequence[Any],
        whole: Sequence[Any],
        ways: Sequence[Way],
    ) -> None:
        self.node, self.known, self.body, self.ways = node, known, body, ways
        self.full = dict(self._outer())
        self.states, self.whole = (
            [*map(self._tensor, states)],
            [*map(node.tensor, whole)],
        )
        self.emitter = Emitter(node.reading.emitter.opset)
        shapes = [tensor.shape for tensor in (*self.full.values(), *self.states)]
        shapes += [
            with_extent(x.shape, way.axis, 1)
            for x, way in zip(self.whole, ways, strict=True)
        ]
        self.operands = [*self.full.values(), *self.states, *self.whole]
        self.inputs = [
            self.emitter.emit_named(f"input_{place}", "external", x.dtype, shape=shape)
            for place, (x, shape) in enumerate(zip(self.operands, shapes, strict=True))
        ]

    def _outer(self) -> Iterator[tuple[str, Tensor]]:
        """The values that the body reads whole, by name: tensors of the graph around it, and
        possible parameters.
        """
        reading = self.node.reading
        for stored in self.body.initializer:
            array = to_array(stored)
            if array.dtype.kind == "f" and array.ndim:
                yield stored.name, reading.stored(stored.name, array)
        for name in dict.fromkeys(_free_names(self.body)):
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

    def inner(self) -> list[Any]:
        """The states, and the elements of what is scanned, as the body gets them."""
        states = self.inputs[len(self.full) : len(self.full) + len(self.states)]
        parts = self.inputs[len(self.full) + len(self.states) :]
        with self.node.reading.emitting(self.emitter):
            return [
                *states,
                *(
                    self.node("squeeze", part, hint="element", axes=[way.axis])
                    for part, way in zip(parts, self.ways, strict=True)
                ),
            ]

    def of_loop(
        self, given: Mapping[str, Any], skipped: int, outward: list[tuple[int, int]]
    ) -> list[Any]:
        """The results of the loop.

        Args:
            given: what the body gets, by name.
            skipped: how many of its results come before the next states: a condition.
            outward: the axis and the direction of each of the others.
        """
        node, emitter, count = self.node, self.emitter, len(self.states)
        inner = {
            **self.known,
            **dict(zip(self.full, self.inputs, strict=False)),
            **given,
        }
        with node.reading.emitting(emitter):
            found = node.reading.run(self.body, inner)
            for condition in found[:skipped]:
                node.require(
                    is_known(condition) and bool(condition),
                    "its condition must be true",
                )
            results = [*map(self._tensor, found[skipped:])]
            self._refuse_other_shapes(results)
            ways = [
                Way(node.axis(axis, x.rank + 1), direction)
                for x, (axis, direction) in zip(results[count:], outward, strict=True)
            ]
            made = self._own(results[:count])
            made += self._own(
                node("unsqueeze", x, hint="row", axes=[way.axis])
                for x, way in zip(results[count:], ways, strict=True)
            )
        operations = tuple(emitter.operations)
        names = emitter.assigned_names(operations, emitter.names.values())
        graph = Graph(
            f"{node.hint}_body", tuple(self.inputs), tuple(made), operations, names
        )
        gathered = tuple(Collected(count + i, way) for i, way in enumerate(ways))
        loop = Loop(graph, count, tuple(self.ways), gathered)
        hints = tuple(f"{node.hint}_{i}" if i else node.hint for i in range(len(made)))
        return list(
            emit_loop(node.reading.emitter, loop, self.operands, hints, node.span)
        )

    def _refuse_other_shapes(self, results: Sequence[Tensor]) -> None:
        for state, result in zip(self.states, results, strict=False):
            is_same = (state.shape, state.dtype) == (result.shape, result.dtype)
            self.node.require(is_same, "its states must keep their shapes and types")

    def _own(self, results: Iterable[Tensor]) -> list[Tensor]:
        """Results that differ, and are no inputs: copies where they are not."""
        taken = {*self.inputs}
        made = []
        for x in results:
            own = self.node("copy", x, hint="result") if x in taken else x
            taken.add(own)
            made.append(own)
        return made


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
