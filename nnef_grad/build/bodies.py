"""Bodies: operations that were emitted once, and are emitted again for other inputs.

What rules emit for operations that are alike, the steps of a loop, a statement that is like
an earlier one: all of it is instantiated here. What is shorter for some inputs, as `simplify`
knows, is simplified each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from nnef_grad.build.arguments import Call, map_tensors, settings_key
from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operand, Operation, Tensor, tensors
from nnef_grad.source import Span

# The longest name that gets further words.
LONG_NAME = 60
# The end of the name of a value inside a body, in the hint for a step on the way to it.
MARK = "/"


class Step(NamedTuple):
    """An operation of a body.

    Attributes:
        operation: the operation.
        settings: its `settings_key`.
        shapes: for each result its shape, or a tuple of shapes.
        hints: for each result the name of a value inside the body, which may be followed by
            MARK and words for a step on the way to the value.
    """

    operation: Operation
    settings: str
    shapes: tuple[Any, ...]
    hints: tuple[str, ...]


class Body(NamedTuple):
    """Operations, their inputs, and what of them is wanted.

    Attributes:
        inputs: tensors that stand for any of their data types and shapes.
        steps: the operations, in order.
        results: what is returned: tensors and numbers, in nested tuples.
    """

    inputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    results: tuple[Any, ...]


def body_of(
    inputs: Iterable[Tensor],
    operations: Iterable[Operation],
    results: Iterable[Any],
    called: Callable[[Tensor], str],
) -> Body:
    """The body that operations are; `called` says what their results are called in it."""

    def hint(result: Any) -> str:
        return called(tensors((result,))[0]) if tensors((result,)) else ""

    steps = [
        Step(op, settings_key(op), _shapes(op.results), tuple(map(hint, op.results)))
        for op in operations
    ]
    return Body(tuple(inputs), tuple(steps), tuple(results))


def _shapes(results: Iterable[Any]) -> tuple[Any, ...]:
    return tuple([r.shape if type(r) is Tensor else _shapes(r) for r in results])


def instantiate(
    body: Body,
    emit: Emitter,
    inputs: Sequence[Any],
    *,
    naming: Callable[[str], str] | None = None,
    caller: Span | None = None,
    span: Span | None = None,
    fill: bool = False,
) -> tuple[Any, ...] | None:
    """Emits a body for some inputs, and returns its results.

    Args:
        body: the body.
        emit: emits the operations, and gives them their names.
        inputs: what stands in the places of the inputs of the body.
        naming: turns the name of a value inside the body into a hint; what emits does so,
            if it is not given.
        caller: the place of what the body is emitted for.
        span: the place of all that is emitted, if that of the body's operations is not.
        fill: whether a result that is simplified to a number becomes a constant of its
            shape.

    Returns:
        The results; None where one is simplified to a number, and is not filled, or where
        a name is too long: it would be another one, had the operations been emitted for
        these inputs first.
    """
    values: dict[Any, Any] = dict(zip(body.inputs, inputs, strict=True))
    of = values.__getitem__
    for operation, settings, shapes, hints in body.steps:
        names = [_named(naming or emit.naming, hint) for hint in hints]
        if "" in names:
            return None
        operands = tuple(
            [
                values[x] if type(x) is Tensor else map_tensors(of, x)
                for x in operation.operands
            ]
        )
        call = Call(operation.definition, operands, operation.settings, operation.dtype)
        place = span or _called_from(operation.span, caller)
        made = emit.emit_known(call, settings, shapes, tuple(names), place)
        for result, value in zip(operation.results, made, strict=True):
            if isinstance(result, tuple):
                assert isinstance(value, tuple)
                values.update(zip(result, value, strict=True))
            elif type(value) is Tensor and value.shape == result.shape:
                values[result] = value
            elif fill:
                values[result] = _filled(emit, value, result)
            else:
                return None
    return tuple([map_tensors(of, result) for result in body.results])


def _filled(emit: Emitter, value: Operand, like: Tensor) -> Tensor:
    return emit("constant", shape=like.shape, value=(value,), dtype=like.dtype)


def _named(naming: Callable[[str], str], hint: str) -> str:
    """The hint for a result; the words of a step on the way to a value are added while the
    name is short. Empty, if the name is too long with them.
    """
    word, _, suffix = hint.partition(MARK)
    name = naming(word)
    if not suffix or len(name) >= LONG_NAME:
        return name
    return name + suffix if len(name) + len(suffix) < LONG_NAME else ""


def _called_from(span: Span | None, caller: Span | None) -> Span | None:
    return None if span is None else Span(span.source, span.start, span.end, caller)
