"""Bodies: operations that were emitted once, and are emitted again for other inputs.

What rules emit for operations that are alike, the steps of a loop, what moves out of a loop:
all of it is instantiated here. What is shorter for some inputs, as `simplify` knows, is
simplified each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from nnef_grad.base.source import Span
from nnef_grad.emit.arguments import Call, settings_key
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.extents import has_symbols, may_exceed
from nnef_grad.graph.ir import (
    Operand,
    Operation,
    Tensor,
    map_tensors,
    tensors,
)
from nnef_grad.graph.loops import (
    Loop,
    declaration,
    external,
    is_loop,
    loop_of,
    steps_of,
)

# The longest name that gets further words.
LONG_NAME = 60
# The end of the name of a value inside a body, in the hint for a step on the way to it.
MARK = "/"


class Inner(NamedTuple):
    """An operation of a body, with its `settings_key`."""

    operation: Operation
    settings: str
    # For each result its shape, or a tuple of shapes.
    shapes: tuple[Any, ...]
    # For each result the name of a value inside the body, and words for a step to it.
    words: list[tuple[str, str]]


class Body(NamedTuple):
    """Operations in order, their inputs, which stand for any tensors of their data types
    and shapes, and what is returned: tensors and numbers, in nested tuples.
    """

    inputs: tuple[Tensor, ...]
    steps: list[Inner]
    results: tuple[Any, ...]


def body_of(
    inputs: Iterable[Tensor],
    operations: Iterable[Operation],
    results: Iterable[Any],
    called: Callable[[Tensor], str],
) -> Body:
    """The body that operations are; `called` says what their results are called in it."""
    steps = []
    for op in operations:
        parts = [called(tensors((r,))[0]).partition(MARK) for r in op.results]
        words = [(name, suffix) for name, _, suffix in parts]
        shapes = map_tensors(attrgetter("shape"), op.results)
        steps.append(Inner(op, settings_key(op), shapes, words))
    return Body(tuple(inputs), steps, tuple(results))


def instantiate(
    body: Body,
    emit: Emitter,
    inputs: Sequence[Any],
    *,
    naming: Callable[[str], str] | None = None,
    caller: Span | None = None,
    fill: bool = False,
) -> tuple[Any, ...] | None:
    """Emits a body for some inputs, and returns its results; None where one is simplified
    to a number, unless it is to become a constant by `fill`, or where a name is too long: it
    would be another one, had the operations been emitted for these inputs first. `naming`
    turns names inside the body into hints; `caller` is the place of what it is emitted for.
    """
    naming = naming or emit.naming
    values: dict[Tensor, Any] = dict(zip(body.inputs, inputs, strict=True))
    place = values.__getitem__
    for op, settings, shapes, words in body.steps:
        hints = _hints(words, naming)
        if hints is None:
            return None
        operands = tuple(
            [
                values[o] if type(o) is Tensor else map_tensors(place, o)
                for o in op.operands
            ]
        )
        call = Call(op.definition, operands, op.settings, op.dtype)
        at = op.span
        span = None if at is None else Span(at.source, at.start, at.end, caller)
        emitted = emit.emit_op(
            call, hints=hints, span=span, settings=settings, shapes=shapes
        )
        for result, value in zip(op.results, emitted, strict=True):
            if isinstance(result, tuple):
                values.update(zip(result, value, strict=True))  # type: ignore[arg-type]
            elif type(value) is Tensor and value.shape == result.shape:
                values[result] = value
            elif fill:
                values[result] = emit(
                    "constant", shape=result.shape, value=(value,), dtype=result.dtype
                )
            else:
                return None
    results: tuple[Any, ...] = map_tensors(place, body.results)
    return results


def _hints(
    words: list[tuple[str, str]], naming: Callable[[str], str]
) -> tuple[str, ...] | None:
    """The hints for results, with the words of steps; None, if one is too long with them."""
    hints = []
    for word, suffix in words:
        name = naming(word)
        if suffix and len(name) < LONG_NAME:
            name += suffix
            if len(name) >= LONG_NAME:
                return None
        hints.append(name)
    return tuple(hints)


# ---- Loops ----

# A graph that is longer would take minutes to load.
LONGEST = 1000
# So many steps one after the other are no slower than a loop, in targets that have loops:
# they run without its overhead, but loading takes more than linear time.
_SHORT = {"tract": 4, "onnx": 64}


def runs_loops(target: str) -> bool:
    """Whether loops stay loops for a target, unless they are short."""
    return target in _SHORT


def most_steps(target: str) -> int:
    """The most steps of a loop that are put one after the other for a target."""
    return _SHORT.get(target, LONGEST)


def emit_loop(
    emit: Emitter,
    loop: Loop,
    operands: Sequence[Tensor],
    hints: tuple[str, ...] = (),
    span: Span | None = None,
) -> tuple[Tensor, ...]:
    """Emits a loop on a tensor for each input of its body, a whole one where it scans, and
    returns its results. What is the same at each step is computed before it.
    """
    loop, operands = hoisted(emit, loop, operands)
    call = Call(declaration(loop), tuple(operands), {"loop": loop}, None)
    results: Any = emit.emit_op(call, hints=hints, span=span)
    return results  # type: ignore[no-any-return]


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
        for x, along in zip(whole, loop.scanned, strict=True):
            at = step if along.direction > 0 else count - 1 - step
            parts.append(emit("slice", x, axes=[along.axis], begin=[at], end=[at + 1]))
        results = instantiate(one, emit, [*full, *states, *parts], fill=True)
        assert results is not None
        steps.append(results)
        states = results[: loop.states]
    gathered = [
        emit("concat", [s[output] for s in steps][:: along.direction], axis=along.axis)
        for output, along in loop.collected
    ]
    return [*states, *gathered]
