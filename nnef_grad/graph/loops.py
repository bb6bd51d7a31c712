"""Loops: one operation of a graph that applies another graph, its body, to each part of what
it scans.

    Loop ::= body, the number of states, Way*, Collected*

The inputs of the body are, in order, what it sees whole at every step, its states, and a part
of each tensor that is scanned. Its outputs are the next value of each state, and whatever is
collected besides. The results of the loop are the last value of each state, and what was
collected, side by side. In a text its body is a fragment. The standard has no loops: what a
document calls one is the affair of its dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from nnef_grad.base.source import Source, Span
from nnef_grad.graph.extents import Dimension
from nnef_grad.graph.ir import (
    LOOP,
    Graph,
    Operation,
    Result,
    Shape,
    Tensor,
    map_tensors,
)
from nnef_grad.graph.names import NameSupply
from nnef_grad.graph.rewriting import sweep
from nnef_grad.language import types
from nnef_grad.language.library import STDLIB
from nnef_grad.language.syntax import Fragment, Parameter
from nnef_grad.language.syntax import Result as Declared


class ScanAxis(NamedTuple):
    """How the steps of a loop go along a tensor, an element of an axis at a time."""

    axis: int
    # 1 from its beginning, -1 from its end.
    direction: int = 1

    @property
    def reversed(self) -> ScanAxis:
        """The same axis from the other end."""
        return ScanAxis(self.axis, -self.direction)

    def fits(self, part: Shape) -> bool:
        """Whether a part has an element along the axis."""
        return part[self.axis : self.axis + 1] == (1,)


class Collected(NamedTuple):
    """An output that a loop collects: its place among the body's, and where parts go."""

    output: int
    along: ScanAxis


@dataclass(frozen=True)
class Loop:
    """The body of a loop, and the use of its operands."""

    # A flat graph without variables; its outputs differ, and are no inputs.
    body: Graph
    # How many of its inputs are states, whose next values are its first outputs.
    states: int
    # For each of its last inputs, how it is scanned: at least one.
    scanned: tuple[ScanAxis, ...]
    collected: tuple[Collected, ...]

    def __repr__(self) -> str:
        """Equal for equal loops, as operations that compute the same are found by it."""
        return repr((_content(self.body), self.states, self.scanned, self.collected))

    @property
    def along(self) -> ScanAxis:
        """How its steps go, as far as one can say: along the first that is scanned.
        What else is collected goes so too, as runtimes move work out of a loop.
        """
        return self.scanned[0]

    @property
    def full(self) -> tuple[Tensor, ...]:
        """The inputs that the body sees whole."""
        return self.body.inputs[: -self.states - len(self.scanned)]

    @property
    def state_inputs(self) -> tuple[Tensor, ...]:
        """The inputs that are states."""
        count = len(self.full)
        return self.body.inputs[count : count + self.states]

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """The inputs that are parts of what is scanned."""
        return self.body.inputs[-len(self.scanned) :]

    @property
    def next_values(self) -> tuple[Tensor, ...]:
        """The outputs that are the next values of the states."""
        return self.body.outputs[: self.states]

    @property
    def made(self) -> tuple[Tensor, ...]:
        """For each result, the output of the body that it comes from."""
        gathered = (self.body.outputs[output] for output, _ in self.collected)
        return (*self.next_values, *gathered)


def _content(body: Graph) -> object:
    """Of equal text for bodies that do the same under the same names."""
    named = partial(map_tensors, lambda tensor: (body.names[tensor], tensor))
    operations = [
        (op.name, op.dtype, named(op.operands), op.attributes, named(op.results))
        for op in body.operations
    ]
    return named(body.inputs), named(body.outputs), operations


def is_loop(operation: Operation) -> bool:
    """Whether an operation is a loop, whatever it is called."""
    attributes = operation.attributes
    return "loop" in attributes and isinstance(attributes["loop"], Loop)


def loop_of(operation: Operation) -> Loop:
    """The loop that an operation is."""
    loop = operation.attributes["loop"]
    assert isinstance(loop, Loop)
    return loop


def steps_of(operation: Operation) -> Dimension:
    """How many steps a loop takes."""
    loop = loop_of(operation)
    scanned = operation.operands[-1]
    assert isinstance(scanned, Tensor)
    return scanned.shape[loop.scanned[-1].axis]


def external(tensor: Tensor) -> Operation:
    """The operation that introduces a tensor as an input."""
    return Operation(
        STDLIB["external"], (), {"shape": tensor.shape}, (tensor,), tensor.dtype
    )


def declaration(loop: Loop) -> Fragment:
    """The declaration of a loop: operands called like the inputs of its body."""
    span, names = Span(Source(LOOP, ""), 0, 0), loop.body.names
    operands = ((names[t], types.TensorType(t.dtype)) for t in loop.body.inputs)
    results = ((names[t], types.TensorType(t.dtype)) for t in loop.made)
    typed: list[tuple[str, types.Type]] = [*operands, ("loop", types.STRING)]
    parameters = tuple(Parameter(*pair, None, span=span) for pair in typed)
    declared = tuple(Declared(*pair, span=span) for pair in results)
    return Fragment(LOOP, None, parameters, declared, None, span=span)


def as_loop(
    operation: Operation,
    loop: Loop,
    operands: Iterable[Tensor],
    results: Iterable[Result],
) -> Operation:
    """The operation as another loop, of other operands, to other results."""
    like = operation.definition
    declared = replace(declaration(loop), name=like.name, registry=like.registry)
    new = replace(operation, definition=declared, attributes={"loop": loop})
    return new.rewired(tuple(operands), tuple(results))


# ---- Passes ----


def with_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """The graph with changed bodies of its loops; the same graph, if none changes."""

    def with_body(op: Operation) -> Operation:
        if not is_loop(op):
            return op
        loop = loop_of(op)
        body = change(loop.body)
        is_same = body is loop.body
        other = loop if is_same else replace(loop, body=body)
        return op if is_same else as_loop(op, other, op.inputs, op.results)

    return sweep(graph, with_body) if any(map(is_loop, graph.operations)) else graph


def loops_in(graph: Graph) -> Iterator[Loop]:
    """The loops of a graph, those inside of another one before it."""
    for operation in graph.operations:
        if is_loop(operation):
            loop = loop_of(operation)
            yield from loops_in(loop.body)
            yield loop


def with_named_bodies(graph: Graph) -> Graph:
    """The graph with different names for the different bodies of its loops."""
    loops = [*loops_in(graph)]
    if not loops:
        return graph
    operations = {
        op.name for g in (graph, *(loop.body for loop in loops)) for op in g.operations
    }
    return _with_names(graph, NameSupply({*STDLIB, *operations}), {})


def _with_names(graph: Graph, supply: NameSupply, names: dict[str, str]) -> Graph:
    def named(body: Graph) -> Graph:
        body = _with_names(body, supply, names)
        key = repr(_content(body))
        if key not in names:
            names[key] = supply.fresh(body.name)
        return body if body.name == names[key] else replace(body, name=names[key])

    return with_bodies(graph, named)
