"""Applies rules: to any operation, and rules that are written in NNEF, fragments that are
instantiated.

What a rule emits depends on the shapes, data types and attributes of an operation, not on
which tensors it has. So it is traced: applied to tensors that stand for any. What it emits
for these is a body, which is instantiated wherever the operation differs from the traced one
in its tensors only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Union

from nnef_grad.base.errors import InvalidGraphError, NnefGradError
from nnef_grad.base.source import Span
from nnef_grad.emit.arguments import settings_key, thaw
from nnef_grad.emit.bodies import MARK, Body, body_of, instantiate
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.evaluation import Evaluator, parameters
from nnef_grad.emit.rule_results import check_gradients
from nnef_grad.graph.ir import Operation, Tensor, map_tensors, shape_of
from nnef_grad.language import syntax
from nnef_grad.language.types import GENERIC, ArrayType, TensorType, Type, leaves
from nnef_grad.ops.registry import OpSet, Rule, Shapes

Gradients = tuple[tuple[Tensor, Union[Tensor, float]], ...]
# Emits operations for some tensors, and returns tensors and numbers in nested tuples. It
# depends on nothing but the data types and shapes of the tensors.
Build = Callable[[Emitter, Sequence[Tensor]], "tuple[Any, ...]"]


def pull_back(
    rule: Rule,
    operation: Operation,
    received: tuple[Any, ...],
    emit: Emitter,
    inputs: Sequence[Tensor],
) -> Gradients:
    """The gradients that a rule gives the tensors among the operands of an operation
    that is like another one, but for the tensors that it has and received.
    """
    tensors = iter(inputs)
    values = operation.operands, operation.results, received
    operands, results, gradients = map_tensors(lambda _: next(tensors), values)
    # A rule may look for the operation itself.
    is_itself = (operands, results) == (operation.operands, operation.results)
    alike = operation if is_itself else operation.rewired(operands, results)
    return tuple(check_gradients(alike, rule(emit, alike, *gradients), emit.knows))


def likeness(operation: Operation, received: tuple[Any, ...]) -> object:
    """Equal for operations, and what they received, that differ in tensors only."""
    return (
        operation.name,
        operation.dtype,
        settings_key(operation),
        _kinds(operation.operands),
        _kinds(operation.results),
        map_tensors(lambda _: True, received),
    )


def _kinds(value: Any) -> object:
    if type(value) is Tensor:
        return value.dtype, value.shape
    if isinstance(value, tuple):
        return tuple([_kinds(item) for item in value])
    return repr(value)


class Traces:
    """The traces of one differentiation, by keys that are equal for equal operations."""

    def __init__(self, emit: Emitter) -> None:
        self._emit = emit
        self._met: set[object] = set()
        self._bodies: dict[object, Body | None] = {}

    def apply(
        self,
        key: object,
        build: Build,
        inputs: Sequence[Tensor],
        caller: Span | None = None,
    ) -> tuple[Any, ...]:
        """Emits what `build` does for some inputs, and returns what it returns. It is traced
        when the key is met again.

        Args:
            key: tells how `build` differs from others, and the data types and shapes of
                the inputs; None if it may depend on anything.
            build: emits the operations.
            inputs: the tensors that it depends on.
            caller: the place of what the operations are emitted for.
        """
        results = None
        if key is not None and key in self._met:
            if key not in self._bodies:
                self._bodies[key] = _traced(build, self._emit, inputs)
            body = self._bodies[key]
            results = body and instantiate(body, self._emit, inputs, caller=caller)
        self._met.add(key)
        return build(self._emit, inputs) if results is None else results


def _traced(build: Build, emit: Emitter, inputs: Sequence[Tensor]) -> Body | None:
    """The body that is emitted; None where an operation is refused, to be refused for
    the tensors themselves, or has several results, which are named together.
    """
    tracer = Emitter(emit.opset)
    tracer.naming = lambda name: f"{name}{MARK}"
    try:
        stand_ins = [tracer.stand_in(tensor) for tensor in inputs]
        results = build(tracer, stand_ins)
    except NnefGradError:
        return None
    emitted = tracer.operations[len(inputs) :]
    if not all(len(op.results) == len(op.outputs) == 1 for op in emitted):
        return None
    return body_of(stand_ins, emitted, results, tracer.called)


def apply_rule(
    rule: syntax.Fragment, emit: Emitter, operation: Operation, *gradients: Any
) -> Sequence[Any]:
    """The gradients of the operands, by a rule written in NNEF."""
    definition = operation.definition
    scope = parameters(operation)
    for result, tensor, gradient in zip(
        definition.results, operation.results, gradients, strict=True
    ):
        scope[result.name] = list(tensor) if isinstance(tensor, tuple) else tensor
        scope[f"d{result.name}"] = _instantiated(emit, tensor, gradient)
    results = Evaluator(emit).instantiate(rule, scope, emit.naming, operation.span)
    return [results.get(f"d{p.name}") for p in definition.operands]


def _instantiated(emit: Emitter, result: Any, gradient: Any) -> Any:
    """The value of a gradient in an expression: zeros if nothing depends on the result."""
    if isinstance(result, tuple):
        pairs = zip(result, gradient, strict=True)
        return [_instantiated(emit, *pair) for pair in pairs]
    if gradient is not None:
        return gradient
    return emit("constant", shape=result.shape, value=(0.0,), hint="zeros")


def shapes_by_rule(
    rule: syntax.Fragment, opset: OpSet, /, *operands: Any, **attributes: Any
) -> Shapes:
    """The shapes of an operation's results, by a rule that returns tensors of them."""
    emitter = Emitter(opset)
    operand_shapes = iter(operands)
    scope = {
        p.name: thaw(p.type, attributes[p.name])
        if p.name in attributes
        else _stand_in(emitter, p.type, next(operand_shapes))
        for p in rule.parameters
    }
    try:
        results = Evaluator(emitter).instantiate(rule, scope, str, None)
    except RecursionError:
        rules = f"'{rule.name}' and the shape rules that it uses"
        message = f"{rules} use each other without end"
        raise InvalidGraphError(message, rule.span) from None
    shapes = [_shapes(value) for value in results.values()]
    return shapes[0] if len(shapes) == 1 else shapes


def _stand_in(emitter: Emitter, type_: Type, shape: Any) -> Any:
    """A tensor, or an array of tensors, of given shapes."""
    if isinstance(type_, ArrayType):
        return [_stand_in(emitter, type_.item, item) for item in shape]
    (leaf,) = leaves(type_)
    dtype = leaf.dtype if isinstance(leaf, TensorType) else None
    return emitter.tensor(
        "scalar" if dtype in (None, GENERIC) else dtype, shape, "operand"
    )


def _shapes(value: Any) -> Any:
    return [_shapes(v) for v in value] if isinstance(value, list) else shape_of(value)
