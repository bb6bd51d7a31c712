"""Builds loops, and unrolls them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nnef_grad.base.source import Span
from nnef_grad.emit.arguments import Call
from nnef_grad.emit.bodies import body_of, instantiate
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.extents import has_symbols, may_exceed
from nnef_grad.graph.ir import Operand, Operation, Tensor
from nnef_grad.graph.loops import (
    Loop,
    Way,
    declaration,
    external,
    is_loop,
    loop_of,
    steps_of,
)

# A graph that is longer would take minutes to load.
LONGEST = 1000
# So many steps one after the other are about as fast as a loop, where there are loops.
SHORT = 4


def emit_loop(
    emit: Emitter,
    loop: Loop,
    operands: Sequence[Tensor],
    hints: tuple[str, ...] = (),
    span: Span | None = None,
) -> tuple[Tensor, ...]:
    """Emits a loop and returns its results: the last value of each state, then what is
    collected. What is the same at each step is computed before it.

    Args:
        emit: emits it.
        loop: the loop.
        operands: a tensor for each input of its body: a whole one where it scans.
        hints: for each result the name that it should get.
        span: the place in the source.
    """
    loop, operands = hoisted(emit, loop, operands)
    call = Call(declaration(loop), tuple(operands), {"loop": loop}, None)
    results: Any = emit.emit_op(call, hints=hints, span=span)
    return results  # type: ignore[no-any-return]


# ---- What is the same at each step ----


def hoisted(
    emit: Emitter, loop: Loop, operands: Sequence[Tensor], *, constants: bool = False
) -> tuple[Loop, tuple[Tensor, ...]]:
    """The loop without operations that do not depend on the step, and its operands, with
    the results of these in place of what they are made of.

    Args:
        emit: emits these operations, before the loop.
        loop: the loop.
        operands: its operands.
        constants: whether constants leave the body, too.
    """
    body, count = loop.body, len(loop.full)
    moved = _invariant(loop, constants)
    kept = [op for op in body.operations if op.outputs not in moved]
    outside = dict(zip(loop.full, operands, strict=False))
    made = [t for outputs in moved for t in outputs]
    before = [op for op in body.operations if op.outputs in moved]
    moving = body_of(loop.full, before, made, body.names.__getitem__)
    found = instantiate(moving, emit, operands[:count], naming=str, fill=True)
    assert found is not None
    outside.update(zip(made, found, strict=True))
    read = {t for op in kept for t in op.inputs}
    full = [t for t in (*loop.full, *made) if t in read]
    own = body.inputs[count:]
    inner = [op for op in kept if op.name != "external"]
    changed = replace(
        body,
        inputs=(*full, *own),
        operations=(*map(external, (*full, *own)), *inner),
    )
    there = (outside[tensor] for tensor in full)
    return replace(loop, body=changed), (*there, *operands[count:])


def _invariant(loop: Loop, constants: bool) -> list[tuple[Tensor, ...]]:
    """The results of the operations to move out of a loop: of those that see nothing but
    what all steps see. What the body returns stays in it.
    """
    known, moved = {*loop.full}, list[tuple[Tensor, ...]]()
    for op in loop.body.operations:
        is_source = op.name == "constant" and not constants
        is_same = op.name != "external" and known.issuperset(op.inputs)
        is_inside = set(op.outputs).isdisjoint(loop.body.outputs)
        if is_same and is_inside and not is_source:
            known.update(op.outputs)
            moved.append(op.outputs)
    return moved


# ---- Steps one after the other ----


def is_short(operation: Operation) -> bool:
    """Whether an operation is a loop whose steps may be put one after the other."""
    return is_loop(operation) and not may_exceed(steps_of(operation), LONGEST)


def has_open_count(operation: Operation) -> bool:
    """Whether an operation is a loop whose number of steps has symbols."""
    return is_loop(operation) and has_symbols(steps_of(operation))


def unrolled(emit: Emitter, operation: Operation) -> Sequence[Operand]:
    """Emits a loop as its steps, one after the other, and returns its results."""
    loop, count = loop_of(operation), steps_of(operation)
    whole = operation.inputs[len(loop.full) + loop.states :]
    full = operation.inputs[: len(loop.full)]
    states: Sequence[Any] = operation.inputs[len(full) : len(full) + loop.states]
    body, made = loop.body, list[Sequence[Any]]()
    inner = [op for op in body.operations if op.name != "external"]
    one = body_of(body.inputs, inner, body.outputs, body.names.__getitem__)
    for step in range(count):
        ways = zip(whole, loop.scanned, strict=True)
        given = [*full, *states, *(_part(emit, x, w, step, count) for x, w in ways)]
        found = instantiate(one, emit, given, fill=True)
        assert found is not None
        made.append(found)
        states = found[: loop.states]
    gathered = (_gathered(emit, made, *one) for one in loop.collected)
    return [*states, *gathered]


def _part(emit: Emitter, x: Tensor, way: Way, step: int, count: int) -> Tensor:
    place = step if way.direction > 0 else count - 1 - step
    return emit("slice", x, axes=[way.axis], begin=[place], end=[place + 1])


def _gathered(
    emit: Emitter, made: Sequence[Sequence[Any]], output: int, way: Way
) -> Tensor:
    parts = [outputs[output] for outputs in made]
    return emit("concat", parts[:: way.direction], axis=way.axis)
