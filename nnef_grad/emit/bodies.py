"""Bodies: operations that were emitted once, and are emitted again for other inputs.

What rules emit for operations that are alike, the steps of a loop, what moves out of a loop:
all of it is instantiated here. What is shorter for some inputs, as `simplify` knows, is
simplified each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from nnef_grad.base.source import Span
from nnef_grad.emit.arguments import Call, settings_key
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Operation, Tensor, map_tensors, tensors

# The longest name that gets further words.
LONG_NAME = 60
# The end of the name of a value inside a body, in the hint for a step on the way to it.
MARK = "/"


class Inner(NamedTuple):
    """An operation of a body.

    Attributes:
        operation: the operation.
        settings: its `settings_key`.
        shapes: for each result its shape, or a tuple of shapes.
        words: for each result the name of a value inside the body, and words for a step
            on the way to the value.
    """

    operation: Operation
    settings: str
    shapes: tuple[Any, ...]
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
        steps.append(Inner(op, settings_key(op), _shapes(op.results), words))
    return Body(tuple(inputs), steps, tuple(results))


def _shapes(results: Iterable[Any]) -> tuple[Any, ...]:
    return tuple([r.shape if type(r) is Tensor else _shapes(r) for r in results])


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
    to a number, and is not filled, or where a name is too long: it would be another one,
    had the operations been emitted for these inputs first.

    Args:
        body: the body.
        emit: emits the operations.
        inputs: what stands in the places of the inputs of the body.
        naming: turns the name of a value inside the body into a hint, instead of `emit`.
        caller: the place of what the body is emitted for.
        fill: whether a result that is simplified to a number becomes a constant.
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
    """The hints for results. The words of a step on the way to a value are added while the
    name is short; None, if one is too long with them.
    """
    hints = []
    for word, suffix in words:
        name = naming(word)
        if suffix and len(name) < LONG_NAME:
            name += suffix
            if len(name) >= LONG_NAME:
                return None
        hints.append(name)
    return tuple(hints)
