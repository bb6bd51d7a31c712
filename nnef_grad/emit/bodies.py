"""Bodies: operations that were emitted once, and are emitted again for other inputs.

What rules emit for operations that are alike, the steps of a loop, what moves out of a loop:
all of it is instantiated here. What is shorter for some inputs, as `simplify` knows, is
simplified each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from nnef_grad.base.source import Span
from nnef_grad.emit.arguments import Call, settings_key
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Operand, Operation, Result, Tensor, tensors
from nnef_grad.language.syntax import Fragment

# Stand-ins for the tensors of a body, and its literals, by number.
Values = dict[Any, Any]
Take = Callable[[Values], "tuple[Any, ...]"]
# Makes the hints for results from what names the values inside the body.
Hinter = Callable[[Callable[[str], str]], "tuple[str, ...] | None"]
# The longest name that gets further words.
LONG_NAME = 60
# The end of the name of a value inside a body, in the hint for a step on the way to it.
MARK = "/"


class Step(NamedTuple):
    """An operation of a body.

    Attributes:
        definition: its declaration.
        operands: takes its operands from the values of the body.
        attributes: its attributes.
        dtype: what `?` stands for.
        settings: its `settings_key`.
        shapes: for each result its shape, or a tuple of shapes.
        results: the results that it has in the body.
        hints: makes the hints for its results: see `_hinter`.
        span: its place in the source.
    """

    definition: Fragment
    operands: Take
    attributes: Mapping[str, Any]
    dtype: str | None
    settings: str
    shapes: tuple[Any, ...]
    results: tuple[Result, ...]
    hints: Hinter
    span: Span | None


class Body(NamedTuple):
    """Operations, their inputs, and what of them is wanted.

    Attributes:
        inputs: tensors that stand for any of their data types and shapes.
        literals: those among the operands and the results.
        steps: the operations, in order.
        results: takes what is returned from the values: tensors and numbers, in nested
            tuples.
    """

    inputs: tuple[Tensor, ...]
    literals: tuple[Any, ...]
    steps: tuple[Step, ...]
    results: Take


def body_of(
    inputs: Iterable[Tensor],
    operations: Iterable[Operation],
    results: Iterable[Any],
    called: Callable[[Tensor], str],
) -> Body:
    """The body that operations are; `called` says what their results are called in it."""
    literals: list[Any] = []
    steps = [_step(operation, called, literals) for operation in operations]
    whole = _taker(tuple(results), literals)
    return Body(tuple(inputs), tuple(literals), tuple(steps), whole)


def _step(
    operation: Operation, called: Callable[[Tensor], str], literals: list[Any]
) -> Step:
    words = [called(tensors((r,))[0]).partition(MARK) for r in operation.results]
    return Step(
        operation.definition,
        _taker(operation.operands, literals),
        operation.settings,
        operation.dtype,
        settings_key(operation),
        _shapes(operation.results),
        operation.results,
        _hinter(tuple([(name, suffix) for name, _, suffix in words])),
        operation.span,
    )


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
    """Emits a body for some inputs, and returns its results.

    Args:
        body: the body.
        emit: emits the operations, and gives them their names.
        inputs: what stands in the places of the inputs of the body.
        naming: turns the name of a value inside the body into a hint; what emits does so,
            if it is not given.
        caller: the place of what the body is emitted for.
        fill: whether a result that is simplified to a number becomes a constant of its
            shape.

    Returns:
        The results; None where one is simplified to a number, and is not filled, or where
        a name is too long: it would be another one, had the operations been emitted for
        these inputs first.
    """
    naming = naming or emit.naming
    values: Values = dict(enumerate(body.literals))
    values.update(zip(body.inputs, inputs, strict=True))
    for (
        definition,
        take,
        attributes,
        dtype,
        settings,
        shapes,
        results,
        hinter,
        at,
    ) in body.steps:
        hints = hinter(naming)
        if hints is None:
            return None
        call = Call(definition, take(values), attributes, dtype)
        span = None if at is None else Span(at.source, at.start, at.end, caller)
        made = emit.emit_op(
            call, hints=hints, span=span, settings=settings, shapes=shapes
        )
        for result, value in zip(results, made, strict=True):
            if type(value) is Tensor and value.shape == result.shape:  # type: ignore[union-attr]
                values[result] = value
            elif isinstance(result, tuple):
                values.update(zip(result, value, strict=True))  # type: ignore[arg-type]
            elif fill:
                values[result] = _filled(emit, value, result)
            else:
                return None
    return body.results(values)


def _taker(wanted: tuple[Any, ...], literals: list[Any]) -> Take:
    """A function that takes tensors and literals, in nested tuples, from the values of a
    body. The literals are added to those of the body.
    """
    keys = tuple([_key(value, literals) for value in wanted])
    if tuple in map(type, keys) or not keys:
        return partial(_taken, keys)
    if len(keys) > 1:
        return itemgetter(*keys)
    (key,) = keys
    return lambda values: (values[key],)


def _key(value: Any, literals: list[Any]) -> Any:
    if isinstance(value, tuple):
        return tuple([_key(item, literals) for item in value])
    if not isinstance(value, Tensor):
        literals.append(value)
    return value if isinstance(value, Tensor) else len(literals) - 1


def _taken(keys: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
    return tuple(
        [_taken(key, values) if type(key) is tuple else values[key] for key in keys]
    )


def _filled(emit: Emitter, value: Operand, like: Tensor) -> Tensor:
    return emit("constant", shape=like.shape, value=(value,), dtype=like.dtype)


def _hinter(words: tuple[tuple[str, str], ...]) -> Hinter:
    """A function that makes hints for results, from the names of values in the body.

    Args:
        words: for each result the name of a value inside the body, and words for a step on
            the way to the value.
    """
    if len(words) > 1 or words[0][1]:
        return partial(_hints, words)
    ((word, _),) = words
    return lambda naming: (naming(word),)


def _hints(
    words: tuple[tuple[str, str], ...], naming: Callable[[str], str]
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
