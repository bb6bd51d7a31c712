"""Loops, for runtimes that have none, and constants in them."""

from __future__ import annotations

from collections.abc import Sequence

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.inline import put_bodies
from nnef_grad.emit.loops import emit_loop, hoisted, is_short, unrolled
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import LOOP, Graph, Operand, Operation
from nnef_grad.graph.loops import is_loop, loop_of
from nnef_grad.targets.registry import lowering, replaced


@lowering(LOOP, applies=is_short)
def scan_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Its steps."""
    return unrolled(emit, op)


def put_steps(graph: Graph) -> Graph:
    """The graph with steps in the place of loops, of those inside of others too, unless
    they are long.
    """
    while any(map(is_short, graph.operations)):
        forms = [scan_lowered if is_short(op) else None for op in graph.operations]
        graph = put_bodies(graph, forms)
    return graph


def join_copies(body: Graph) -> Graph:
    """The body of a loop without `tile`. tract moves one that is collected out of the loop,
    with the shape of a step, and then refuses the graph.
    """
    return replaced(body, {"tile"}, _joined_copies, _has_known_repeats)


def _has_known_repeats(op: Operation) -> bool:
    return not has_symbols(op.attributes["repeats"])


def _joined_copies(emit: Emitter, op: Operation) -> Sequence[Operand]:
    (made,) = op.inputs
    for axis, count in enumerate(op.attributes["repeats"]):
        if count > 1:
            made = emit("concat", (made,) * count, axis=axis, hint="copies")
    return [made]


def put_constants_before_loops(graph: Graph) -> Graph:
    """The graph without constants in the bodies of loops."""
    return put_bodies(
        graph, [_with_constants if is_loop(op) else None for op in graph.operations]
    )


def _with_constants(emit: Emitter, op: Operation) -> Sequence[Operand]:
    loop, operands = hoisted(emit, loop_of(op), op.inputs, constants=True)
    return emit_loop(emit, loop, operands)
