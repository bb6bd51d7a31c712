"""Operations that are found once and emitted for many tensors.

What a rule emits depends on the shapes, data types and attributes of an operation, not on
which tensors it has. So it is traced: applied to tensors that stand for any. What it emits
for these is emitted again wherever the operation differs from the traced one in its
tensors only. What is shorter for some tensors, as `simplify` knows, is simplified each
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from nnef_grad.build.arguments import Call, settings_key
from nnef_grad.build.emitter import Emitter
from nnef_grad.build.evaluation import LONG_NAME
from nnef_grad.errors import NnefGradError
from nnef_grad.graph.ir import Attributes, Operation, Shape, Tensor
from nnef_grad.language.syntax import Fragment
from nnef_grad.source import Span

# Emits operations for some tensors, and returns tensors and numbers in nested tuples. It
# depends on nothing but the data types and shapes of the tensors.
Build = Callable[[Emitter, Sequence[Tensor]], "tuple[Any, ...]"]
# Takes what a step or a result wants from the values of a trace.
Take = Callable[[Sequence[Any]], Any]

# The end of the name of a value inside a rule, in the hint for a step on the way to it.
MARK = "/"


class Step(NamedTuple):
    """An operation of a trace, whose operands are taken from the values; see
    `Emitter.emit_known`.

    Attributes:
        hint: the name of a value inside the rule.
        suffix: what is added to it for a step on the way to the value.
    """

    definition: Fragment
    operands: Take
    attributes: Mapping[str, Any]
    dtype: str | None
    settings: str
    shapes: tuple[Shape]
    hint: str
    suffix: str
    span: Span | None


class Trace(NamedTuple):
    """What was emitted for stand-ins.

    Attributes:
        literals: those among the operands and the results.
        steps: the operations, in order.
        results: takes what was returned.

    The values are the tensors that the stand-ins stood for, then the literals, then the
    results of the steps.
    """

    literals: tuple[Any, ...]
    steps: tuple[Step, ...]
    results: Take


class Traces:
    """What was traced, by keys that are equal for what is alike."""

    def __init__(self, emit: Emitter) -> None:
        self._emit = emit
        self._met: set[object] = set()
        self._traces: dict[object, Trace | None] = {}

    def apply(
        self,
        key: object,
        build: Build,
        inputs: Sequence[Tensor],
        caller: Span | None = None,
    ) -> tuple[Any, ...]:
        """Emits what `build` does, and returns what it returns. It is traced when the key is
        met again.

        Args:
            key: tells how `build` differs from others, and the data types and shapes of
                the inputs.
            build: emits the operations.
            inputs: the tensors that it depends on.
            caller: the place of what the operations are emitted for.
        """
        if key not in self._met:
            self._met.add(key)
            return build(self._emit, inputs)
        try:
            trace = self._traces[key]
        except KeyError:
            trace = self._traces[key] = _traced(build, self._emit, inputs)
        found = trace and _repeated(trace, self._emit, inputs, caller)
        return build(self._emit, inputs) if found is None else found


# ---- Tracing ----


def _traced(build: Build, emit: Emitter, inputs: Sequence[Tensor]) -> Trace | None:
    """The trace; None where there is none: an operation that is refused is refused for
    the tensors themselves, and the results of one that has several are named together.
    """
    tracer = Emitter(emit.opset)
    tracer.naming = lambda name: f"{name}{MARK}"
    try:
        stand_ins = [_stand_in(tracer, tensor) for tensor in inputs]
        found = build(tracer, stand_ins)
    except NnefGradError:
        return None
    emitted = tracer.operations[len(inputs) :]
    if not all(len(op.results) == len(op.outputs) == 1 for op in emitted):
        return None
    values = [x for op in emitted for x in _leaves(op.operands)]
    literals = [x for x in (*values, *_leaves(found)) if not isinstance(x, Tensor)]
    results = [op.outputs[0] for op in emitted]
    taker = _taker([*stand_ins, *literals, *results])
    steps = [_step(op, taker(op.operands), tracer.hints) for op in emitted]
    return Trace(tuple(literals), tuple(steps), taker(found))


def _stand_in(tracer: Emitter, tensor: Tensor) -> Tensor:
    """A tensor that stands for any of the data type and shape of one."""
    stand_in = tracer.tensor(tensor.dtype, tensor.shape, "")
    external = tracer.opset.declarations["external"]
    settings: Attributes = {"shape": tensor.shape}
    tracer.append(Operation(external, (), settings, (stand_in,), tensor.dtype))
    return stand_in


def _taker(values: Sequence[Any]) -> Callable[[Any], Take]:
    """Makes what takes tensors, literals and tuples of them from values that stand where
    these do; literals are asked for in their order.
    """
    tensors = {v.name: i for i, v in enumerate(values) if isinstance(v, Tensor)}
    literals = (i for i, v in enumerate(values) if not isinstance(v, Tensor))

    def place(value: Any) -> int:
        return tensors[value.name] if isinstance(value, Tensor) else next(literals)

    def taker(value: Any) -> Take:
        if not isinstance(value, tuple):
            return itemgetter(place(value))
        if len(value) > 1 and not any(isinstance(item, tuple) for item in value):
            return itemgetter(*map(place, value))
        items = [taker(item) for item in value]
        if len(items) == 1:
            (take,) = items
            return lambda values: (take(values),)
        return lambda values: tuple([take(values) for take in items])

    return taker


def _step(operation: Operation, operands: Take, hints: Mapping[str, str]) -> Step:
    (result,) = operation.outputs
    hint, _, suffix = hints[result.name].partition(MARK)
    return Step(
        operation.definition,
        operands,
        operation.settings,
        operation.dtype,
        settings_key(operation),
        (result.shape,),
        hint,
        suffix,
        operation.span,
    )


def _leaves(value: Any) -> Iterator[Any]:
    if not isinstance(value, tuple):
        yield value
        return
    for item in value:
        yield from _leaves(item)


# ---- Emitting again ----


def _repeated(
    trace: Trace, emit: Emitter, inputs: Sequence[Tensor], caller: Span | None
) -> tuple[Any, ...] | None:
    """Emits the operations of a trace for other tensors; None where one is simplified to
    a literal, or its name is too long: then `build` does otherwise.
    """
    values = [*inputs, *trace.literals]
    for step in trace.steps:
        name = emit.naming(step.hint)
        hint = _hint(name, step.suffix) if step.suffix else name
        if hint is None:
            return None
        operands = step.operands(values)
        call = Call(step.definition, operands, step.attributes, step.dtype)
        span = _called_from(step.span, caller)
        (result,) = emit.emit_known(call, step.settings, step.shapes, hint, span)
        if not isinstance(result, Tensor) or (result.shape,) != step.shapes:
            return None
        values.append(result)
    found: tuple[Any, ...] = trace.results(values)
    return found


def _hint(name: str, suffix: str) -> str | None:
    """The hint for a step on the way to a value. The words of a suffix are added while
    the name is short: see `Evaluator`.
    """
    if len(name) >= LONG_NAME:
        return name
    whole = f"{name}{suffix}"
    return whole if len(whole) < LONG_NAME else None


def _called_from(span: Span | None, caller: Span | None) -> Span | None:
    return None if span is None else Span(span.source, span.start, span.end, caller)
