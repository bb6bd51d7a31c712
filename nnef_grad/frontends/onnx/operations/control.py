"""Branches, loops and sequences. The branch of a known condition is taken; of another one both
are computed. A sequence is a list of values. Scan is a loop of the graph; the iterations of
Loop, too, where they are many or of an open number. Otherwise these are put one after the
other: their number is known in each of them. Where a loop may end early, the states stay as
they are from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from onnx.numpy_helper import to_array

from nnef_grad.emit.arithmetic import MAX_TENSORS
from nnef_grad.frontends.expansions.branches import branch_results
from nnef_grad.frontends.expansions.loops import loop
from nnef_grad.frontends.onnx.counters import counted_loop
from nnef_grad.frontends.onnx.node import Node, onnx_op
from nnef_grad.frontends.onnx.validity import graphs_of
from nnef_grad.frontends.values import is_known, shape_of
from nnef_grad.graph.extents import may_exceed
from nnef_grad.graph.ir import Tensor
from nnef_grad.graph.loops import ScanAxis


@onnx_op("If")
def _branch(node: Node, condition: Any) -> list[Any]:
    then, otherwise = (node.attributes[f"{name}_branch"] for name in ("then", "else"))
    if is_known(condition):
        taken = then if np.asarray(condition).item() else otherwise
        return node.reading.run(taken, dict(node.around))
    settings = node.reading.settings_behind(condition)
    advice = f"; with {settings} as a constant, only one is"
    told = f"both branches are computed{advice if settings else ''}"
    node.warn(told)
    with node.reading.blaming(node, told, condition):
        graphs = (then, otherwise)
        results = [node.reading.run(graph, dict(node.around)) for graph in graphs]
        return branch_results(node, condition, *results)


def known_number(node: Node, value: Any, what: str) -> Any:
    """The number that a value is known to be."""
    return np.asarray(node.known(value, what)).item()


def stacked(node: Node, parts: Sequence[Any], axis: int) -> Any:
    """Values along a new axis."""
    wide = [node("unsqueeze", x, hint="row", axes=[axis]) for x in parts]
    return node("concat", wide, axis=axis)


# ---- Sequences ----


@onnx_op("SequenceEmpty", "SequenceConstruct")
def _sequence(node: Node, *items: Any) -> list[Any]:
    return [list(items)]


@onnx_op("SequenceInsert")
def _insert(node: Node, items: list[Any], item: Any, place: Any = None) -> list[Any]:
    """A sequence with one more value, at the end if no place is given."""
    at = len(items) if place is None else known_number(node, place, "its position")
    return [[*items[:at], item, *items[at:]]]


@onnx_op("SequenceErase")
def _erase(node: Node, items: list[Any], place: Any = None) -> list[Any]:
    """A sequence without a value, the last one if no place is given."""
    at = -1 if place is None else known_number(node, place, "its position")
    rest = list(items)
    del rest[at]
    return [rest]


@onnx_op("SequenceAt")
def _item(node: Node, items: list[Any], place: Any) -> Any:
    return items[known_number(node, place, "its position")]


onnx_op("SequenceLength")(lambda node, items: np.asarray(len(items), np.int64))


@onnx_op("ConcatFromSequence")
def _concatenate(node: Node, items: list[Any]) -> Any:
    """The values, along an axis that they have, or a new one."""
    axis = node.get("axis", 0)
    if node.get("new_axis", 0):
        return stacked(node, items, axis % (len(shape_of(items[0])) + 1))
    return node("concat", items, axis=node.along(0, items[0]))


_EXTENTS = "the extents of its parts"


@onnx_op("SplitToSequence")
def _split(node: Node, x: Any, sizes: Any = None) -> list[Any]:
    """Parts of given extents; or of extent 1, whose axis may go."""
    axis = node.along(0, x)
    extent = shape_of(x)[axis]
    extents = np.asarray(1 if sizes is None else node.known(sizes, _EXTENTS))
    if extents.ndim:
        ends = np.cumsum(extents).tolist()
    else:
        count = -(-extent // extents.item())
        node.require(count <= MAX_TENSORS, f"it has more than {MAX_TENSORS} parts")
        ends = [*range(extents.item(), extent, extents.item()), extent]
    pairs = zip([0, *ends], ends, strict=False)
    parts = [node.piece(x, axis, begin, end, "part") for begin, end in pairs]
    if sizes is None and not node.get("keepdims", 1):
        parts = [node("squeeze", part, hint="row", axes=[axis]) for part in parts]
    return [parts]


# ---- Loops ----


# A loop that is longer, and ends by a condition, would make a graph that nobody can use.
_MOST = 10_000


@onnx_op("Scan")
def _scan(node: Node, *operands: Any) -> list[Any]:
    """A loop over the elements of an axis of each tensor that it scans."""
    node.require(node.version >= 9, "the version must be at least 9")
    count = node.get("num_scan_inputs", 1)
    node.require(0 < count <= len(operands), f"it cannot scan {count} operands")
    first = len(operands) - count
    scanned = [
        (x, along._replace(axis=node.axis(along.axis, len(shape_of(x)))))
        for x, along in zip(
            operands[first:], _scan_axes(node, "input", count), strict=True
        )
    ]
    outward = _scan_axes(node, "output", len(node.attributes["body"].output) - first)
    return _kept(
        node, operands[:first], scanned, outward, list, lambda _, outcome: outcome
    )


def _scan_axes(node: Node, side: str, count: int) -> list[ScanAxis]:
    names = (f"scan_{side}_axes", f"scan_{side}_directions")
    axes, turns = (node.get(name, [0] * count) for name in names)
    return [ScanAxis(a, -1 if d else 1) for a, d in zip(axes, turns, strict=True)]


@onnx_op("Loop")
def _loop(node: Node, limit: Any, condition: Any, *states: Any) -> list[Any]:
    if (form := counted_loop(node, limit, condition, states)) is not None:
        own = _loop(form.node, form.count, None, *form.states.values())
        return form.results(own)
    count = _MOST + 1 if limit is None else known_number(node, limit, "its length")
    if limit is None or not may_exceed(count, node.reading.unroll):
        return _one_by_one(node, count, condition, states)
    numbers = node("cast", node.positions(count, 0, 1), dtype="integer", hint="numbers")
    outward = [ScanAxis(0)] * (len(node.attributes["body"].output) - 1 - len(states))
    whole = [(numbers, ScanAxis(0))], outward
    is_on = True if condition is None else condition
    if is_known(is_on):
        node.require(bool(is_on), "its condition must be true")
        with suppress(_EndsByValueError):
            return _kept(node, states, *whole, _numbered, _endless)
    _refuse_rows(node, len(states))
    _, *results = _kept(
        *(node, [node.reshaped(is_on, []), *states], *whole),
        lambda inner: [inner[-1], np.array(True), *inner[1:-1]],
        lambda inner, outcome: _after(node, inner[0], inner[1:-1], outcome),
    )
    return results


class _EndsByValueError(Exception):
    """A loop may end early, by a condition that is not known."""


def _numbered(inner: Sequence[Any]) -> list[Any]:
    return [inner[-1], np.array(True), *inner[:-1]]


def _endless(_: Sequence[Any], outcome: Sequence[Any]) -> Sequence[Any]:
    """The results of an iteration that another one follows."""
    goes_on, *results = outcome
    if not is_known(goes_on) or not bool(goes_on):
        raise _EndsByValueError
    return results


def _after(
    node: Node, is_on: Any, states: Sequence[Any], outcome: Sequence[Any]
) -> list[Any]:
    """Whether a loop goes on after an iteration, the states, and rows. Where it had ended
    before, the states are as they were.
    """
    goes_on, *results = outcome
    count = len(states)
    if not is_known(is_on):
        results[:count] = branch_results(node, is_on, results[:count], states)
    if not (is_known(is_on) or is_known(goes_on)):
        goes_on = node("and", node.reshaped(is_on, []), node.reshaped(goes_on, []))
    elif not is_known(is_on) and bool(goes_on):
        goes_on = is_on
    return [goes_on, *results]


def _refuse_rows(node: Node, states: int) -> None:
    """Refuses rows of which there are as many as there are iterations."""
    node.warn(
        "all iterations are computed, as which of them is the last depends on values"
    )
    is_used = any(map(node.uses, range(states, len(node.proto.output))))
    what = "how often it is repeated depends on values, and it returns what it collects"
    node.require(not is_used, what)


# ---- A loop of the graph ----


def _kept(
    node: Node,
    states: Sequence[Any],
    scanned: Sequence[tuple[Any, ScanAxis]],
    outward: Sequence[ScanAxis],
    arguments: Callable[[Sequence[Any]], list[Any]],
    outcome_of: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
) -> list[Any]:
    """The last states, and what is collected. Of the states and the parts of a step
    `arguments` makes those of the body; of these, and of what the body returns,
    `outcome_of` the next states and the rows.
    """
    graph, full = node.attributes["body"], dict(_outer(node))
    started = [node.tensor_of(x) for x in states]
    scan_axes = [along for _, along in scanned]
    operands = [*full.values(), *started, *(node.tensor(x) for x, _ in scanned)]
    first, last = len(full), len(full) + len(started)

    def body(inputs: Sequence[Tensor]) -> Any:
        pairs = zip(inputs[last:], scan_axes, strict=True)
        parts = [node("squeeze", x, hint="element", axes=[w.axis]) for x, w in pairs]
        names = (value.name for value in graph.input)
        inner = [*inputs[first:last], *parts]
        own = dict(zip(names, arguments(inner), strict=True))
        around = {**node.around, **dict(zip(full, inputs, strict=False))}
        outcome = node.reading.run(graph, {**around, **own})
        results = [node.tensor_of(x) for x in outcome_of(inner, outcome)]
        for state, result in zip(started, results, strict=False):
            is_same = (state.shape, state.dtype) == (result.shape, result.dtype)
            node.require(is_same, "its states must keep their shapes and types")
        return _without_inputs(node, inputs, results, outward)

    named = {f"input_{place}": x for place, x in enumerate(operands)}
    count = len(states) + len(outward)
    hints = [f"{node.hint}_{i}" if i else node.hint for i in range(count)]
    return [*loop(node, f"{node.hint}_body", named, scan_axes, body, tuple(hints))]


def _outer(node: Node) -> Iterator[tuple[str, Tensor]]:
    """The tensors that the body reads whole, by name: outer ones, and possible parameters."""
    reading, graph = node.reading, node.attributes["body"]
    for stored in graph.initializer:
        array = to_array(stored)
        if array.dtype.kind == "f" and array.ndim:
            yield stored.name, reading.stored(stored.name, array)
    for name in dict.fromkeys(free_names(graph)):
        if name not in node.around:
            continue
        value = reading.value(node.around, name)
        if is_known(value) and reading.is_parameter(value):
            value = node.tensor(value)
        if isinstance(value, Tensor):
            yield name, value


def free_names(graph: Any) -> Iterator[str]:
    """The names that a graph reads from outside, and the graphs in it."""
    own = {value.name for value in (*graph.input, *graph.initializer)}
    for node in graph.node:
        yield from (name for name in node.input if name and name not in own)
        for inner in graphs_of(node):
            yield from (name for name in free_names(inner) if name not in own)
        own.update(node.output)
    yield from (value.name for value in graph.output if value.name not in own)


def _without_inputs(
    node: Node,
    inputs: Sequence[Tensor],
    results: Sequence[Tensor],
    outward: Sequence[ScanAxis],
) -> tuple[list[Tensor], list[tuple[Tensor, ScanAxis]]]:
    """The next states, and rows to collect: copies of equal ones, and of inputs."""
    taken, count = {*inputs}, len(results) - len(outward)

    def own(x: Tensor) -> Tensor:
        y: Tensor = node("copy", x, hint="result") if x in taken else x
        taken.add(y)
        return y

    states, rows = [*map(own, results[:count])], []
    for x, (axis, direction) in zip(results[count:], outward, strict=True):
        along = ScanAxis(node.axis(axis, x.rank + 1), direction)
        row = node("unsqueeze", x, hint="row", axes=[along.axis])
        rows.append((own(row), along))
    return states, rows


# ---- Iterations one after the other ----


def _one_by_one(
    node: Node, count: int, condition: Any, states: Sequence[Any]
) -> list[Any]:
    body = node.attributes["body"]
    names = [item.name for item in body.input]
    rows: list[list[Any]] = []
    is_on, ends_by_value = True if condition is None else condition, False
    while len(rows) < count and not (is_known(is_on) and not bool(is_on)):
        if count > _MOST:
            known_number(node, is_on, "its condition")
        if not is_known(is_on) and not ends_by_value:
            ends_by_value = True
            _refuse_rows(node, len(states))
        node.require(len(rows) < _MOST, f"it has more than {_MOST} iterations")
        states = [np.asarray(x) if isinstance(x, np.generic) else x for x in states]
        arguments = np.asarray(len(rows)), np.asarray(True), *states
        inner = {**node.around, **dict(zip(names, arguments, strict=True))}
        outcome = node.reading.run(body, inner)
        is_on, *results = _after(node, is_on, states, outcome)
        states, row = results[: len(states)], results[len(states) :]
        rows.append(row)
    collected = range(len(states), len(node.proto.output))
    is_empty = not rows and any(map(node.uses, collected))
    node.require(not is_empty, "it has no iterations, whose results are collected")
    columns = zip(*rows, strict=True)
    return [*states, *(stacked(node, list(column), 0) for column in columns)]
