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
    collected. What is the same at each step is computed before it. The operands are a
    tensor for each input of its body: a whole one where it scans.
    """
    loop, operands = hoisted(emit, loop, operands)
    call = Call(declaration(loop), tuple(operands), {"loop": loop}, None)
    results: Any = emit.emit_op(call, hints=hints, span=span)
    return results  # type: ignore[no-any-return]


# ---- What is the same at each step ----


def hoisted(
    emit: Emitter, loop: Loop, operands: Sequence[Tensor], *, constants: bool = False
) -> tuple[Loop, tuple[Tensor, ...]]:
    """The loop without operations that do not depend on the step, which are emitted before
    it, and its operands, with the results of these in place of what they are made of.
    `constants` says whether constants leave the body, too.
    """
    body, count = loop.body, len(loop.full)
    before = _invariant(loop, constants)
    moved = [tensor for op in before for tensor in op.outputs]
    moving = body_of(loop.full, before, moved, body.names.__getitem__)
    results = instantiate(moving, emit, operands[:count], naming=str, fill=True)
    assert results is not None
    outside = dict(
        zip((*loop.full, *moved), (*operands[:count], *results), strict=True)
    )
    sources = {*before, *(op for op in body.operations if op.name == "external")}
    inner = [op for op in body.operations if op not in sources]
    read = {t for op in inner for t in op.inputs}
    full = [tensor for tensor in outside if tensor in read]
    inputs = (*full, *body.inputs[count:])
    changed = replace(body, inputs=inputs, operations=(*map(external, inputs), *inner))
    before_steps = (outside[tensor] for tensor in full)
    return replace(loop, body=changed), (*before_steps, *operands[count:])


def _invariant(loop: Loop, constants: bool) -> list[Operation]:
    """The operations that see what all steps see, and whose results stay inside."""
    same, moved = {*loop.full}, list[Operation]()
    for op in loop.body.operations:
        is_source = op.name == "constant" and not constants
        is_same = op.name != "external" and same.issuperset(op.inputs)
        is_inside = set(op.outputs).isdisjoint(loop.body.outputs)
        if is_same and is_inside and not is_source:
            same.update(op.outputs)
            moved.append(op)
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
    body, steps = loop.body, list[Sequence[Any]]()
    inner = [op for op in body.operations if op.name != "external"]
    one = body_of(body.inputs, inner, body.outputs, body.names.__getitem__)
    for step in range(count):
        parts = []
        for x, way in zip(whole, loop.scanned, strict=True):
            at = step if way.direction > 0 else count - 1 - step
            parts.append(emit("slice", x, axes=[way.axis], begin=[at], end=[at + 1]))
        results = instantiate(one, emit, [*full, *states, *parts], fill=True)
        assert results is not None
        steps.append(results)
        states = results[: loop.states]
    gathered = [
        emit("concat", [s[output] for s in steps][:: way.direction], axis=way.axis)
        for output, way in loop.collected
    ]
    return [*states, *gathered]
