"""Evaluates expressions: those over compile-time values are computed, those over tensors
emit operations.

One evaluator serves the graph of a document, its fragments, the bodies of compound
operations and the rules of the calculus. Names and types were checked before; the errors
that remain are in values: an index out of range, shapes that do not fit each other.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any

from nnef_grad.base.errors import InvalidGraphError, NnefGradError
from nnef_grad.base.source import Span
from nnef_grad.emit.arguments import Call, bind, thaw
from nnef_grad.emit.arithmetic import compute, convert
from nnef_grad.emit.bodies import LONG_NAME
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Operation, Tensor
from nnef_grad.language import syntax
from nnef_grad.language.matching import match
from nnef_grad.language.typecheck import identifiers
from nnef_grad.language.types import GENERIC, OPERATIONS

Scope = MutableMapping[str, Any]

# The most invocations and comprehension items that fragments may expand to, and how deep
# fragments may call each other.
MAX_EXPANSION = 50_000
MAX_DEPTH = 50


class NoValueError(Exception):
    """A name has no value, because the statement that defines it has failed."""


class Evaluator:
    """Evaluates expressions; invocations of `inlined` fragments become their bodies."""

    def __init__(self, emitter: Emitter, inlined: Collection[str] = ()) -> None:
        self.emitter = emitter
        self.inlined = inlined
        self.caller: Span | None = None
        self.expanded = 0
        self.depth = 0

    def adjust(self, call: Call, hint: str, span: Span) -> Call:
        """The call to emit in place of one, whose first result should have a name."""
        return call

    def evaluate(self, expression: syntax.Expression, scope: Scope, hint: str) -> Any:
        """The value of an expression that was checked, which should be called `hint`."""
        return VISIT[type(expression)](self, expression, scope, hint)

    def instantiate(
        self,
        fragment: syntax.Fragment,
        bound: Mapping[str, Any],
        naming: Callable[[str], str],
        caller: Span | None,
    ) -> dict[str, Any]:
        """Evaluates the body of a fragment for a value of each parameter, and returns the
        value of each result by name; `naming` says what to call a value of the body.
        """
        assert fragment.body is not None
        outer, self.caller = self.caller, caller
        self.depth += 1
        scope: Scope = dict(bound)
        try:
            if self.depth > MAX_DEPTH:
                raise _too_deep(caller if caller is not None else fragment.span)
            for statement in fragment.body:
                hint = naming(hint_of(statement.target))
                value = self.evaluate(statement.value, scope, hint)
                parts = unpack(statement.target, value)
                scope.update(parts)
                # Each of several results gets its own name.
                is_one = isinstance(statement.target, syntax.Identifier)
                if not is_one and isinstance(statement.value, syntax.Invocation):
                    for name, part in parts:
                        self.emitter.set_hint(part, naming(name))
        except NnefGradError as error:
            error.called_from(caller)
            raise
        finally:
            self.caller = outer
            self.depth -= 1
        return {r.name: scope[r.name] for r in fragment.results}

    def _part(self, expression: syntax.Expression, scope: Scope, hint: str) -> Any:
        """The value of a part of an expression, which adds a word to the hint."""
        if isinstance(expression, syntax.Identifier):
            return self._identifier(expression, scope, hint)
        if isinstance(expression, syntax.Literal):
            return expression.value
        return self.evaluate(expression, scope, _step(hint, _word(expression)))

    def _count(self, span: Span) -> None:
        """Bounds the work: fragments that call each other could expand without end."""
        self.expanded += 1
        if self.expanded > MAX_EXPANSION:
            message = f"the fragments come to more than {MAX_EXPANSION} invocations"
            raise InvalidGraphError(message, span)

    # Invocations

    def _invocation(self, node: syntax.Invocation, scope: Scope, hint: str) -> Any:
        fragment = self.emitter.opset.declarations[node.name]
        values = [self._part(value, scope, hint) for value in node.values]
        bound = dict(zip(match(fragment, node), values, strict=True))
        dtype = scope.get(GENERIC) if node.dtype == GENERIC else node.dtype
        return self._call(bind(fragment, bound, dtype), hint, node.span)

    def _call(self, call: Call, hint: str, span: Span) -> Any:
        place = span if self.caller is None else span._replace(caller=self.caller)
        is_inlined = call.definition.name in self.inlined
        if self.caller is not None or is_inlined:
            self._count(place)
        if is_inlined:
            return self._inline(call, hint, place)
        declared = call.definition.results
        is_single = len(declared) == 1
        hints = (hint,) if is_single else tuple(_step(hint, r.name) for r in declared)
        call = self.adjust(call, hint, place)
        results = self.emitter.emit_op(call, hints=hints, span=place)
        parts = [list(r) if isinstance(r, tuple) else r for r in results]
        return parts[0] if is_single else tuple(parts)

    def _inline(self, call: Call, hint: str, place: Span) -> Any:
        definition = call.definition
        own = definition.results[0].name if len(definition.results) == 1 else None

        def naming(name: str) -> str:
            return hint if name == own else _step(hint, name)

        results = self.instantiate(definition, parameters(call), naming, place)
        return tuple(results.values()) if own is None else results[own]

    # Expressions

    def _identifier(self, node: syntax.Identifier, scope: Scope, hint: str) -> Any:
        try:
            return scope[node.name]
        except KeyError:
            raise NoValueError(node.name) from None

    def _array(self, node: syntax.Array | syntax.Tuple, scope: Scope, hint: str) -> Any:
        if isinstance(node.items, syntax.Numbers):
            return list(node.items.values)
        items = enumerate(node.items, start=1)
        return [self.evaluate(item, scope, _step(hint, i)) for i, item in items]

    def _operator(self, node: syntax.Operator, scope: Scope, hint: str) -> Any:
        values = [self._part(operand, scope, hint) for operand in node.operands]
        if any(isinstance(value, Tensor) for value in values):
            word = OPERATIONS[node.symbol, len(values)]
            fragment = self.emitter.opset.declarations[word]
            names = (p.name for p in fragment.parameters)
            call = bind(fragment, dict(zip(names, values, strict=True)), None)
            return self._call(call, hint, node.span)
        return compute(node.symbol, values, node.span)

    def _conditional(self, node: syntax.Conditional, scope: Scope, hint: str) -> Any:
        condition = self.evaluate(node.condition, scope, hint)
        chosen = node.value if condition else node.otherwise
        return self.evaluate(chosen, scope, hint)

    def _comprehension(
        self, node: syntax.Comprehension, scope: Scope, hint: str
    ) -> Any:
        iterables = [self.evaluate(loop.iterable, scope, hint) for loop in node.loops]
        if len(set(map(len, iterables))) > 1:
            message = "the arrays that are iterated together differ in length"
            raise InvalidGraphError(message, node.span)
        names = [loop.name for loop in node.loops]
        values: list[Any] = []
        inner = ChainMap[str, Any]({}, scope)
        for items in zip(*iterables, strict=True):
            self._count(node.span)
            inner.update(zip(names, items, strict=True))
            condition = node.condition
            if condition is None or self.evaluate(condition, inner, hint):
                word = _step(hint, len(values) + 1)
                values.append(self.evaluate(node.value, inner, word))
        return values

    def _subscript(self, node: syntax.Subscript, scope: Scope, hint: str) -> Any:
        value = self.evaluate(node.value, scope, hint)
        index = self.evaluate(node.index, scope, hint)
        if not -len(value) <= index < len(value):
            message = f"index {index} is out of range: there are {len(value)} items"
            raise InvalidGraphError(message, node.index.span)
        return value[index]

    def _range(self, node: syntax.Range, scope: Scope, hint: str) -> Any:
        value = self.evaluate(node.value, scope, hint)
        begin, end = node.begin, node.end
        first = None if begin is None else self.evaluate(begin, scope, hint)
        last = None if end is None else self.evaluate(end, scope, hint)
        return value[first:last]


VISIT: dict[type, Callable[..., Any]] = {
    syntax.Literal: lambda self, node, scope, hint: node.value,
    syntax.Identifier: Evaluator._identifier,
    syntax.Array: Evaluator._array,
    syntax.Tuple: lambda self, *node: tuple(self._array(*node)),
    syntax.Operator: Evaluator._operator,
    syntax.Conditional: Evaluator._conditional,
    syntax.Comprehension: Evaluator._comprehension,
    syntax.Subscript: Evaluator._subscript,
    syntax.Range: Evaluator._range,
    syntax.Builtin: lambda self, node, scope, hint: convert(
        node.name, self.evaluate(node.argument, scope, hint), node.argument.span
    ),
    syntax.Invocation: Evaluator._invocation,
}


def _too_deep(call: Span) -> InvalidGraphError:
    """The error shows one round of the circle that calls go in, and where it is entered."""
    message = f"fragments call each other more than {MAX_DEPTH} deep"
    calls = [call, *call.callers]
    names = [place.text for place in calls]
    if names[0] not in names[1:]:
        return InvalidGraphError(message, call)
    length = names.index(names[0], 1)
    place = calls[-1]
    for inner in reversed(calls[:length]):
        place = inner._replace(caller=place)
    circle = " -> ".join(reversed(names[: length + 1]))
    return InvalidGraphError(f"{message}: {circle}", place)


def _step(hint: str, word: str | int) -> str:
    """The hint for a step on the way to a tensor; in deep nesting it grows no longer."""
    return f"{hint}_{word}" if len(hint) < LONG_NAME else hint


def _word(expression: syntax.Expression) -> str:
    """The word for the tensor of a nested expression: the name of its operation."""
    if isinstance(expression, syntax.Operator):
        symbol = expression.symbol, len(expression.operands)
        return OPERATIONS.get(symbol, "value")
    return expression.name if isinstance(expression, syntax.Invocation) else "value"


def parameters(call: Call | Operation) -> dict[str, Any]:
    """The names in the body of an operation: its parameters, and `?`."""
    definition = call.definition
    operands = zip(definition.operands, call.operands, strict=True)
    values = {p.name: o for p, o in operands} | dict(call.attributes)
    thawed = {p.name: thaw(p.type, values[p.name]) for p in definition.parameters}
    return {**thawed, GENERIC: call.dtype}


def instantiate_body(
    emitter: Emitter, operation: Operation, fragment: syntax.Fragment | None = None
) -> Sequence[Any]:
    """Emits the body of an operation that is written in NNEF, or that of a fragment with
    its parameters.
    """
    written, scope = fragment or operation.definition, parameters(operation)
    evaluator = Evaluator(emitter)
    results = evaluator.instantiate(written, scope, emitter.naming, operation.span)
    return list(results.values())


# ---- Targets ----


def unpack(
    target: syntax.Expression, value: Any, made_by: syntax.Invocation | None = None
) -> list[tuple[str, Any]]:
    """Pairs the names of a target with the parts of a value of the same structure, which
    an operation has made, or something else.
    """
    if isinstance(target, syntax.Identifier):
        return [(target.name, value)]
    assert isinstance(target, (syntax.Array, syntax.Tuple))
    names, results = len(target.items), len(value)
    if names != results and made_by is not None:
        counts = f"{results} results here, and {names} names are given"
        raise InvalidGraphError(f"'{made_by.name}' has {counts}", made_by.span)
    if names != results:
        raise InvalidGraphError(f"{names} names for {results} results", target.span)
    parts = zip(target.items, value, strict=True)
    return [pair for part in parts for pair in unpack(*part, made_by)]


def hint_of(target: syntax.Target) -> str:
    """The hint for the value that is assigned: its first name."""
    if isinstance(target, syntax.Identifier):
        return target.name
    names = identifiers(target)
    return names[0].name if names else "value"
