"""The operations of rules, found once for all operations that are alike.

What a rule emits depends on the shapes, data types and attributes of an operation, not on
which tensors it has. So it is applied to tensors that stand for any (it is traced), and
what it emitted for these is emitted again for each operation that differs from the traced
one in its tensors only. What is shorter for some tensors, as `simplify` knows, is simplified
each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard, Union

from nnef_grad.build.arguments import Call, map_tensors, settings_key
from nnef_grad.build.emitter import Emitter
from nnef_grad.build.evaluation import LONG_NAME
from nnef_grad.build.rule_results import check_gradients
from nnef_grad.errors import NnefGradError
from nnef_grad.graph.ir import Operation, Shape, Tensor, tensors
from nnef_grad.language.syntax import Fragment
from nnef_grad.ops.opset import OpSet
from nnef_grad.ops.registry import Rule
from nnef_grad.source import Span

# The end of the name of a value inside a rule, in the hint for a step on the way to it.
MARK = "/"

Gradients = Sequence[tuple[Tensor, Union[Tensor, float]]]
# The place of a tensor among those of a trace, or those in an array of tensors.
Place = Union[int, "tuple[Place, ...]"]


class Step(NamedTuple):
    """An operation of a trace: what `Emitter.emit_known` wants, with places for tensors.

    Attributes:
        hint: the name of a value inside the rule.
        suffix: what is added to it for a step on the way to the value.
    """

    definition: Fragment
    operands: tuple[Place, ...]
    attributes: Any
    dtype: str | None
    settings: str
    shape: Shape
    hint: str
    suffix: str
    span: Span | None


class Trace(NamedTuple):
    """What a rule does for operations that are alike.

    Attributes:
        literals: the operands of steps that are no tensors.
        steps: the operations, in order.
        gradients: for each tensor among the operands for which there is a gradient, its
            place, and the place of the gradient, or a number.

    The places are those of the tensors of the operands, the results and the received
    gradients, then those of the literals, then those of the results of the steps.
    """

    literals: tuple[Any, ...]
    steps: tuple[Step, ...]
    gradients: tuple[tuple[int, int | float], ...]


class Traces:
    """Applies rules to operations; traces a rule when it meets an operation like one
    before.
    """

    def __init__(self, opset: OpSet) -> None:
        self._opset = opset
        self._met: set[object] = set()
        self._traces: dict[object, Trace | None] = {}

    def apply(
        self, rule: Rule, emit: Emitter, operation: Operation, received: Sequence[Any]
    ) -> Gradients:
        """The gradients of the operands, of those that have one, by a rule.

        Args:
            rule: depends on nothing but its arguments, and on the shape and data type of
                a tensor alone.
            emit: emits the operations, and has their names.
            operation: the operation.
            received: the gradients of its results.
        """
        key = _likeness(operation, received)
        if key in self._met:
            trace = self._trace(key, rule, operation, received)
            found = trace and _repeated(trace, emit, operation, received)
            if found is not None:
                return found
        self._met.add(key)
        return apply(rule, emit, operation, received)

    def _trace(
        self, key: object, rule: Rule, operation: Operation, received: Sequence[Any]
    ) -> Trace | None:
        if key not in self._traces:
            self._traces[key] = _traced(rule, self._opset, operation, received)
        return self._traces[key]


def apply(
    rule: Rule, emit: Emitter, operation: Operation, received: Sequence[Any]
) -> Gradients:
    """The gradients of the operands, checked."""
    found = rule(emit, operation, *received)
    return check_gradients(operation, found, emit.knows)


def _likeness(operation: Operation, received: Sequence[Any]) -> object:
    """Equal for operations that differ in their tensors only."""
    return (
        operation.definition.name,
        operation.dtype,
        settings_key(operation),
        tuple([_kind(operand) for operand in operation.operands]),
        tuple([_kind(result) for result in operation.results]),
        tuple([_kind(gradient) for gradient in received]),
    )


def _kind(value: Any) -> object:
    if type(value) is Tensor:
        return value.dtype, value.shape
    if type(value) is tuple:
        return tuple(map(_kind, value))
    return repr(value)


# ---- Tracing ----


def _traced(
    rule: Rule, opset: OpSet, operation: Operation, received: Sequence[Any]
) -> Trace | None:
    """The trace of a rule; None where the rule must be applied each time."""
    emitter = Emitter(opset)
    emitter.naming = lambda name: f"{name}{MARK}"
    try:
        stand_in, gradients = _stand_ins(emitter, operation, received)
        inputs = len(emitter.operations)
        found = apply(rule, emitter, stand_in, gradients)
    except NnefGradError:
        return None
    return _recorded(emitter, inputs, found)


def _stand_ins(
    emitter: Emitter, operation: Operation, received: Sequence[Any]
) -> tuple[Operation, Sequence[Any]]:
    """The operation and the gradients, with tensors that stand for any."""

    def stand_in(tensor: Tensor) -> Tensor:
        return emitter("external", shape=tensor.shape, dtype=tensor.dtype)

    operands = map_tensors(stand_in, operation.operands)
    results = map_tensors(stand_in, operation.results)
    gradients = map_tensors(stand_in, tuple(received))
    alike = Operation(
        operation.definition, operands, operation.attributes, results, operation.dtype
    )
    return alike, gradients


def _recorded(emitter: Emitter, inputs: int, found: Gradients) -> Trace | None:
    """The trace, where the first operations are the stand-ins; None where an operation has
    several results, which are named together.
    """
    given, emitted = emitter.operations[:inputs], emitter.operations[inputs:]
    if not all(len(op.results) == len(op.outputs) == 1 for op in emitted):
        return None
    literals = [x for op in emitted for x in _leaves(op.operands) if not _is_tensor(x)]
    first = inputs + len(literals)
    numbers = iter(range(inputs, first))
    places = {op.outputs[0].name: i for i, op in enumerate(given)}
    places |= {op.outputs[0].name: i for i, op in enumerate(emitted, first)}

    def place(value: Any) -> Any:
        if type(value) is tuple:
            return tuple([place(item) for item in value])
        return places[value.name] if _is_tensor(value) else next(numbers)

    steps = tuple([_step(op, place(op.operands), emitter.hints) for op in emitted])
    gradients = [
        (places[o.name], g if isinstance(g, float) else places[g.name])
        for o, g in found
    ]
    return Trace(tuple(literals), steps, tuple(gradients))


def _step(
    operation: Operation, operands: tuple[Place, ...], hints: Mapping[str, str]
) -> Step:
    (result,) = operation.outputs
    hint, _, suffix = hints[result.name].partition(MARK)
    return Step(
        operation.definition,
        operands,
        operation.attributes,
        operation.dtype,
        settings_key(operation),
        result.shape,
        hint,
        suffix,
        operation.span,
    )


def _leaves(value: Any) -> Iterator[Any]:
    if type(value) is not tuple:
        yield value
        return
    for item in value:
        yield from _leaves(item)


def _is_tensor(value: object) -> TypeGuard[Tensor]:
    return type(value) is Tensor


# ---- Emitting again ----


def _repeated(
    trace: Trace, emit: Emitter, operation: Operation, received: Sequence[Any]
) -> Gradients | None:
    """Emits the operations of a trace for an operation; None where one of them is
    simplified to a literal, or its name is too long: then the rule does otherwise.
    """
    values = [
        *operation.inputs,
        *operation.outputs,
        *tensors(received),
        *trace.literals,
    ]
    for step in trace.steps:
        hint = _hint(emit.naming(step.hint), step.suffix)
        if hint is None:
            return None
        operands = _filled(step.operands, values)
        call = Call(step.definition, operands, step.attributes, step.dtype)
        span = _called_from(step.span, operation.span)
        (result,) = emit.emit_known(call, step.settings, (step.shape,), hint, span)
        if type(result) is not Tensor or result.shape != step.shape:
            return None
        values.append(result)
    return [(values[o], values[g] if type(g) is int else g) for o, g in trace.gradients]


def _hint(name: str, suffix: str) -> str | None:
    """The hint for a step on the way to a value. The words of a suffix are added as long
    as the name is short: see `Evaluator`.
    """
    if len(name) >= LONG_NAME:
        return name
    whole = f"{name}{suffix}"
    return whole if not suffix or len(whole) < LONG_NAME else None


def _filled(places: tuple[Place, ...], values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        [values[p] if type(p) is int else _filled(p, values) for p in places]  # type: ignore[arg-type]
    )


def _called_from(span: Span | None, caller: Span | None) -> Span | None:
    if span is None or caller is None:
        return span
    return Span(span.source, span.start, span.end, caller)
