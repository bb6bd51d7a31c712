"""Loops that end by a counter of their own, as those of TensorFlow do in files of tf2onnx:

    while i < n and number < n: i, states, constants = i + 1, ..., constants

Such a loop has n iterations, and its counter is the number of each. What all iterations pass
on as it is becomes a value around them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from onnx import GraphProto
from onnx.helper import make_node
from onnx.numpy_helper import to_array

from nnef_grad.frontends.onnx.node import Node
from nnef_grad.frontends.values import dtype_of, is_known, shape_of

# What passes a whole number on.
_SAME = ("Cast", "Identity")


class Counted(NamedTuple):
    """A loop by its number of iterations, without its counter and its constants.

    Attributes:
        node: the loop, with another body.
        count: how many iterations it has.
        states: those that are left, by their places.
        ends: the last values of the others, by their places.
    """

    node: Node
    count: Any
    states: dict[int, Any]
    ends: dict[int, Any]

    def results(self, own: Sequence[Any]) -> list[Any]:
        """The results of the loop, of those of this one."""
        count = len(self.states)
        last = self.ends | dict(zip(self.states, own, strict=False))
        return [*(last[place] for place in sorted(last)), *own[count:]]


def counted_loop(
    node: Node, limit: Any, condition: Any, states: Sequence[Any]
) -> Counted | None:
    """A loop by the number of its iterations, if a counter from 0, and a limit, if there is
    one, say that before it is run.
    """
    body = _Body(node)
    counter, names = body.bounds()
    ends = {n: states[n] for n in body.constants()}
    values = {**node.around, **{body.states[n]: x for n, x in ends.items()}}
    given = [node.reading.value(values, name) for name in names if name in values]
    counts = given if limit is None else [*given, limit]
    is_known_there = len(given) == len(names) > 0 and all(map(_is_whole, counts))
    if not is_known_there or counts.count(counts[0]) < len(counts):
        return None
    if counter is not None:
        if not _is_whole(states[counter]) or states[counter] != 0:
            return None
        ends[counter] = counts[0]
    is_bounded = counter is not None or limit is not None
    if not is_bounded or not _begins(node, condition, counts[0]):
        return None
    left = {n: x for n, x in enumerate(states) if n not in ends}
    other = copy(node)
    other.around = values
    other.attributes = {**node.attributes, "body": body.numbered(counter, ends)}
    return Counted(other, counts[0], left, ends)


def _is_whole(value: Any) -> bool:
    is_number = is_known(value) and not shape_of(value)
    return is_number and dtype_of(value) == "integer"


def _begins(node: Node, condition: Any, count: Any) -> bool:
    """Whether a loop has the first of its iterations by the condition that 0 is less than
    their number, if it has any.
    """
    if condition is None or is_known(condition):
        return condition is None or bool(np.all(condition))
    pairs = _compared(node.reading.makers, node.proto.input[1])
    values = [node.reading.value(node.around, name) for pair in pairs for name in pair]
    wanted = [0, count] * len(pairs)
    return bool(pairs) and all(map(is_known, values)) and values == wanted


def _source(makers: Mapping[str, Any], name: str) -> str:
    """The name of a whole number that others pass on."""
    while name in makers and makers[name].op_type in _SAME:
        name = makers[name].input[0]
    return name


def _compared(makers: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    """The names of what must be less and greater for a condition, if it is so made."""
    maker = makers.get(_source(makers, name))
    if maker is None or maker.op_type not in ("And", "Less", "Greater"):
        return []
    if maker.op_type == "And":
        parts = [_compared(makers, x) for x in maker.input]
        return [*chain(*parts)] if all(parts) else []
    less, greater = (_source(makers, x) for x in maker.input)
    return [(less, greater) if maker.op_type == "Less" else (greater, less)]


class _Body:
    """The graph of an iteration.

    Attributes:
        states: the names of the states before it.
    """

    def __init__(self, node: Node) -> None:
        self._graph, self._around = node.attributes["body"], node.around
        self.states = [value.name for value in self._graph.input[2:]]
        after = self._graph.output[1 : len(self.states) + 1]
        self._makers = {name: n for n in self._graph.node for name in n.output}
        self._after = [_source(self._makers, value.name) for value in after]

    def constants(self) -> Iterator[int]:
        """The places of the states that stay as they are."""
        pairs = enumerate(zip(self.states, self._after, strict=True))
        return (place for place, (before, after) in pairs if before == after)

    def bounds(self) -> tuple[int | None, list[str]]:
        """The place of the state that counts, if any does, and the names of what it and the
        number of the iteration stay less than.
        """
        pairs = _compared(self._makers, self._graph.output[0].name)
        counting = {less for less, _ in pairs} - {self._graph.input[0].name}
        places = [n for n, name in enumerate(self._after) if name in counting]
        is_one = len(places) == len(counting) <= 1
        if not is_one or not all(map(self._is_one_more, places)):
            return None, []
        return next(iter(places), None), [greater for _, greater in pairs]

    def _is_one_more(self, place: int) -> bool:
        maker = self._makers.get(self._after[place])
        if maker is None or maker.op_type != "Add":
            return False
        terms = [_source(self._makers, x) for x in maker.input]
        return self.states[place] in terms and any(map(self._is_one, terms))

    def _is_one(self, name: str) -> bool:
        stored = {x.name: x for x in self._graph.initializer}
        maker = self._makers.get(name)
        if maker is not None and maker.op_type == "Constant":
            stored[name] = maker.attribute[0].t
        outer: Any = self._around.get(name)
        value = to_array(stored[name]) if name in stored else outer
        return is_known(value) and np.size(value) == 1 and np.ravel(value)[0] == 1

    def numbered(self, counter: int | None, ends: Mapping[int, Any]) -> Any:
        """The graph without some states, of which the counter is its number; it goes on."""
        graph = GraphProto()
        graph.CopyFrom(self._graph)
        for place in sorted(ends, reverse=True):
            del graph.input[2 + place], graph.output[1 + place]
        number, goes_on = (value.name for value in graph.input[:2])
        graph.output[0].name = goes_on
        if counter is not None:
            kind = self._graph.input[2 + counter].type.tensor_type.elem_type
            cast = make_node("Cast", [number], [self.states[counter]], to=kind)
            graph.node.insert(0, cast)
        return graph
