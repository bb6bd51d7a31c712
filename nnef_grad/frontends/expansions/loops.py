"""Loops of a graph whose body is what a function emits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.loops import emit_loop
from nnef_grad.frontends.step import Step
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.loops import Collected, Loop, Way
from nnef_grad.ops.shape import with_extent

# The inputs of a body to the next values of the states, and the parts that each step
# collects, with where they are put.
Body = Callable[
    [Sequence[Tensor]], tuple[Sequence[Tensor], Sequence[tuple[Tensor, Way]]]
]


def loop(
    step: Step,
    name: str,
    operands: Mapping[str, Tensor],
    ways: Sequence[Way],
    body: Body,
    hints: tuple[str, ...],
    reserved: Iterable[str] = (),
) -> tuple[Tensor, ...]:
    """The last values of the states of a loop, and what it collects.

    Args:
        step: the invocation that is a loop.
        name: the name of the body.
        operands: what each step sees whole, then the states, then what is scanned, by the
            names of the inputs of the body.
        ways: how what is scanned is scanned.
        body: emits the body. Its results differ, and are no inputs.
        hints: what the results should be called.
        reserved: names that no tensor of the body may have by chance.
    """
    outer = step.reading.emitter
    emitter = Emitter(outer.opset)
    tensors = [*operands.values()]
    shapes = [x.shape for x in tensors[: -len(ways)]]
    parts = zip(tensors[-len(ways) :], ways, strict=True)
    shapes += [with_extent(x.shape, way.axis, 1) for x, way in parts]
    inputs = [
        emitter.emit_named(own, "external", x.dtype, shape=shape)
        for (own, x), shape in zip(operands.items(), shapes, strict=True)
    ]
    with step.reading.emitting(emitter):
        states, collected = body(inputs)
    outputs = tuple(dict.fromkeys([*states, *(x for x, _ in collected)]))
    operations = tuple(emitter.operations)
    names = emitter.assigned_names(operations, [*emitter.names.values(), *reserved])
    graph = Graph(name, tuple(inputs), outputs, operations, names)
    gathered = tuple(Collected(outputs.index(x), way) for x, way in collected)
    made = Loop(graph, len(states), tuple(ways), gathered)
    return emit_loop(outer, made, tensors, hints, step.span)
