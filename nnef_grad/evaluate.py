"""Evaluates expressions: over compile-time values they are computed, over tensors they
emit operations.

One evaluator serves the graph of a document, its fragments, the bodies of compound
operations and the rules of the calculus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnef_grad import syntax
from nnef_grad.arithmetic import BUILTINS, compute
from nnef_grad.binding import Bound, Evaluated, bind, suggestion, thaw, type_name
from nnef_grad.emit import Emitter
from nnef_grad.errors import InvalidGraphError, NnefGradError
from nnef_grad.ir import Operand, Tensor
from nnef_grad.library import Library
from nnef_grad.source import Span
from nnef_grad.types import GENERIC

Scope = dict[str, Any]


class Evaluator:
    """Evaluates expressions over compile-time values and tensors.

    Attributes:
        emitter: takes the operations.
        inline: whether the body of a fragment is put in place of its invocations.
    """

    def __init__(
        self,
        emitter: Emitter,
        inline: Callable[[syntax.Fragment], bool] = lambda fragment: False,
    ) -> None:
        self.emitter = emitter
        self.inline = inline
        self.caller: Span | None = None

    def evaluate(self, expression: syntax.Expression, scope: Scope, hint: str) -> Any:
        """The value of an expression; `hint` is what the tensor that it makes should be
        called.
        """
        return _EVALUATE[type(expression)](self, expression, scope, hint)

    def inlined(
        self,
        fragment: syntax.Fragment,
        bound: Mapping[str, Any],
        naming: Callable[[str], str],
        caller: Span | None,
    ) -> dict[str, Any]:
        """Evaluates the body of a fragment.

        Args:
            fragment: a fragment with a body.
            bound: a value for each parameter.
            naming: what a value of the body should be called, from its name there.
            caller: the place of the invocation.

        Returns:
            The value of each result, by name.
        """
        outer, self.caller = self.caller, caller
        try:
            return self._body(fragment, bound, naming)
        except NnefGradError as error:
            error.expanded_from(caller)
            raise
        finally:
            self.caller = outer

    def _body(
        self,
        fragment: syntax.Fragment,
        bound: Mapping[str, Any],
        naming: Callable[[str], str],
    ) -> dict[str, Any]:
        assert fragment.body is not None
        scope: Scope = dict(bound)
        for statement in fragment.body:
            value = self.evaluate(
                statement.value, scope, naming(hint_of(statement.target))
            )
            for identifier, part in unpack(statement.target, value):
                if identifier.name in scope:
                    raise InvalidGraphError(
                        f"'{identifier.name}' is already defined", identifier.span
                    )
                scope[identifier.name] = part
        missing = [r for r in fragment.results if r.name not in scope]
        if missing:
            raise InvalidGraphError(
                f"result '{missing[0].name}' is not assigned", missing[0].span
            )
        return {r.name: scope[r.name] for r in fragment.results}

    def invoke(
        self,
        invocation: syntax.Invocation,
        scope: Scope,
        hint: str = "",
        target: syntax.Target | None = None,
        revise: Callable[[Bound], Bound] | None = None,
    ) -> Any:
        """The result of an invocation, or a tuple of its results.

        Args:
            invocation: the operation and its arguments.
            scope: the values of the names in the arguments.
            hint: what the result should be called.
            target: the names that the results must have, in a graph.
            revise: changes the arguments before they are used.
        """
        fragment = self._definition(invocation)
        hint = hint or (hint_of(target) if target is not None else fragment.name)
        values = [
            self.evaluate(a.value, scope, f"{hint}_{_word(a.value)}")
            for a in invocation.arguments
        ]
        dtype = scope.get(GENERIC) if invocation.dtype == GENERIC else invocation.dtype
        bound = bind(fragment, invocation, values, dtype)
        bound = revise(bound) if revise is not None else bound
        if self.inline(fragment):
            return self._inline(fragment, bound, hint, self._place(invocation.span))
        results = self.emitter.call(
            fragment,
            bound.operands,
            bound.attributes,
            dtype=bound.dtype,
            hints=(hint,)
            if len(fragment.results) == 1
            else tuple(f"{hint}_{r.name}" for r in fragment.results),
            names=_names(target, len(fragment.results)),
            span=self._place(invocation.span),
        )
        parts = tuple(list(r) if isinstance(r, tuple) else r for r in results)
        return parts[0] if len(parts) == 1 else parts

    def _definition(self, invocation: syntax.Invocation) -> syntax.Fragment:
        library: Library = self.emitter.library
        if invocation.name not in library:
            near = suggestion(invocation.name, list(library))
            raise InvalidGraphError(
                f"there is no operation '{invocation.name}'{near}", invocation.span
            )
        return library[invocation.name]

    def _place(self, span: Span) -> Span:
        return span if self.caller is None else span._replace(caller=self.caller)

    def _inline(
        self, fragment: syntax.Fragment, bound: Bound, hint: str, caller: Span
    ) -> Any:
        arguments = parameters(fragment, bound.operands, bound.attributes)
        names_of = {r.name for r in fragment.results}
        single = len(fragment.results) == 1
        results = self.inlined(
            fragment,
            {**arguments, GENERIC: bound.dtype},
            lambda name: hint if single and name in names_of else f"{hint}_{name}",
            caller,
        )
        values = tuple(results.values())
        return values[0] if single else values

    # One method for each kind of expression

    def _literal(
        self, expression: syntax.Literal, scope: Scope, hint: str
    ) -> Evaluated:
        value = expression.value
        if type(value) is int and not -(2**31) <= value < 2**31:
            raise InvalidGraphError(
                f"integer {value} does not fit in 32 bits", expression.span
            )
        return value

    def _identifier(
        self, expression: syntax.Identifier, scope: Scope, hint: str
    ) -> Any:
        try:
            return scope[expression.name]
        except KeyError:
            near = suggestion(
                expression.name, [name for name in scope if name != GENERIC]
            )
            raise InvalidGraphError(
                f"'{expression.name}' is not defined{near}", expression.span
            ) from None

    def _array(self, expression: syntax.Array, scope: Scope, hint: str) -> Any:
        return [
            self.evaluate(item, scope, f"{hint}_{i + 1}")
            for i, item in enumerate(expression.items)
        ]

    def _tuple(self, expression: syntax.Tuple, scope: Scope, hint: str) -> Any:
        return tuple(
            self.evaluate(item, scope, f"{hint}_{i + 1}")
            for i, item in enumerate(expression.items)
        )

    def _operator(self, expression: syntax.Operator, scope: Scope, hint: str) -> Any:
        word = OPERATIONS.get((expression.symbol, len(expression.operands)), "")
        values = [
            self.evaluate(o, scope, f"{hint}_{_word(o)}") for o in expression.operands
        ]
        if word and any(isinstance(value, Tensor) for value in values):
            arguments = tuple(
                syntax.Argument(None, o, o.span) for o in expression.operands
            )
            invocation = syntax.Invocation(word, None, arguments, expression.span)
            fragment = self.emitter.library[word]
            bound = bind(fragment, invocation, values, None)
            (result,) = self.emitter.call(
                fragment,
                bound.operands,
                bound.attributes,
                dtype=bound.dtype,
                hints=(hint,),
                span=self._place(expression.span),
            )
            return result
        return compute(expression.symbol, values, expression.span)

    def _conditional(
        self, expression: syntax.Conditional, scope: Scope, hint: str
    ) -> Any:
        condition = self._truth(expression.condition, scope, hint)
        return self.evaluate(
            expression.value if condition else expression.otherwise, scope, hint
        )

    def _comprehension(
        self, expression: syntax.Comprehension, scope: Scope, hint: str
    ) -> Any:
        iterables = [
            self._iterable(loop.iterable, scope, hint) for loop in expression.loops
        ]
        if len(set(map(len, iterables))) > 1:
            raise InvalidGraphError(
                "the arrays that are iterated together differ in length",
                expression.span,
            )
        values: list[Any] = []
        for items in zip(*iterables):
            inner = {
                **scope,
                **{loop.name: item for loop, item in zip(expression.loops, items)},
            }
            if expression.condition is None or self._truth(
                expression.condition, inner, hint
            ):
                values.append(
                    self.evaluate(expression.value, inner, f"{hint}_{len(values) + 1}")
                )
        return values

    def _subscript(self, expression: syntax.Subscript, scope: Scope, hint: str) -> Any:
        value = self.evaluate(expression.value, scope, hint)
        index = self._index(expression.index, scope, hint)
        if not isinstance(value, (list, tuple, str)):
            raise InvalidGraphError(
                f"{type_name(value)} has no items", expression.value.span
            )
        if not -len(value) <= index < len(value):
            raise InvalidGraphError(
                f"index {index} is out of range: there are {len(value)} items",
                expression.index.span,
            )
        return value[index]

    def _range(self, expression: syntax.Range, scope: Scope, hint: str) -> Any:
        value = self.evaluate(expression.value, scope, hint)
        if not isinstance(value, (list, str)):
            raise InvalidGraphError(
                f"{type_name(value)} has no range of items", expression.value.span
            )
        ends = [
            None if e is None else self._index(e, scope, hint)
            for e in (expression.begin, expression.end)
        ]
        return value[slice(*ends)]

    def _builtin(self, expression: syntax.Builtin, scope: Scope, hint: str) -> Any:
        if expression.name == "shape_of":
            message = "shape_of is deprecated: the shape of a tensor is not known to the language"
            raise InvalidGraphError(message, expression.span)
        value = self.evaluate(expression.argument, scope, hint)
        try:
            return BUILTINS[expression.name](value)
        except (TypeError, ValueError):
            message = f"{expression.name} does not apply to {type_name(value)}"
            raise InvalidGraphError(message, expression.argument.span) from None

    def _truth(self, expression: syntax.Expression, scope: Scope, hint: str) -> bool:
        value: bool = self._compile_time(bool, "logical", expression, scope, hint)
        return value

    def _index(self, expression: syntax.Expression, scope: Scope, hint: str) -> int:
        value: int = self._compile_time(int, "integer", expression, scope, hint)
        return value

    def _iterable(
        self, expression: syntax.Expression, scope: Scope, hint: str
    ) -> list[Any]:
        value: list[Any] = self._compile_time(list, "an array", expression, scope, hint)
        return value

    def _compile_time(
        self,
        kind: type,
        what: str,
        expression: syntax.Expression,
        scope: Scope,
        hint: str,
    ) -> Any:
        value = self.evaluate(expression, scope, hint)
        if type(value) is not kind:
            raise InvalidGraphError(
                f"this must be {what}, and is {type_name(value)}", expression.span
            )
        return value


_EVALUATE: dict[type, Callable[..., Any]] = {
    syntax.Literal: Evaluator._literal,
    syntax.Identifier: Evaluator._identifier,
    syntax.Array: Evaluator._array,
    syntax.Tuple: Evaluator._tuple,
    syntax.Operator: Evaluator._operator,
    syntax.Conditional: Evaluator._conditional,
    syntax.Comprehension: Evaluator._comprehension,
    syntax.Subscript: Evaluator._subscript,
    syntax.Range: Evaluator._range,
    syntax.Builtin: Evaluator._builtin,
    syntax.Invocation: lambda self, expression, scope, hint: self.invoke(
        expression, scope, hint
    ),
}

# The operation that an operator stands for when an operand is a tensor, by symbol and
# number of operands.
OPERATIONS = {
    ("+", 1): "copy", ("-", 1): "neg", ("!", 1): "not",
    ("+", 2): "add", ("-", 2): "sub", ("*", 2): "mul", ("/", 2): "div", ("^", 2): "pow",
    ("<", 2): "lt", ("<=", 2): "le", (">", 2): "gt", (">=", 2): "ge", ("==", 2): "eq", ("!=", 2): "ne",
    ("&&", 2): "and", ("||", 2): "or",
}  # fmt: skip


def _word(expression: syntax.Expression) -> str:
    """What to call the tensor that a nested expression makes: the operation."""
    if isinstance(expression, syntax.Operator):
        return OPERATIONS.get((expression.symbol, len(expression.operands)), "value")
    return (
        expression.name
        if isinstance(expression, (syntax.Invocation, syntax.Identifier))
        else "value"
    )


def parameters(
    fragment: syntax.Fragment,
    operands: Sequence[Operand],
    attributes: Mapping[str, syntax.Value],
) -> dict[str, Any]:
    """The values of an operation's parameters by name, as an expression sees them: an
    array is a list.
    """
    values = {p.name: o for p, o in zip(fragment.operands, operands)} | dict(attributes)
    return {p.name: thaw(p.type, values[p.name]) for p in fragment.parameters}


# ---- Targets ----


def identifiers(target: syntax.Target) -> list[syntax.Identifier]:
    """The names that an assignment defines, in order."""
    if isinstance(target, syntax.Identifier):
        return [target]
    return [i for item in target.items for i in identifiers(item)]  # type: ignore[arg-type]


def unpack(
    target: syntax.Expression, value: Any
) -> list[tuple[syntax.Identifier, Any]]:
    """Pairs the names of a target with the parts of a value of the same structure."""
    if not isinstance(target, (syntax.Array, syntax.Tuple)):
        assert isinstance(target, syntax.Identifier)
        return [(target, value)]
    is_array = isinstance(target, syntax.Array)
    if type(value) is not (list if is_array else tuple):
        what = "an array" if is_array else "several results"
        raise InvalidGraphError(
            f"the names want {what}, and this is {_described(value)}", target.span
        )
    if len(value) != len(target.items):
        raise InvalidGraphError(
            f"{len(target.items)} names for {len(value)} results", target.span
        )
    return [
        pair for item, part in zip(target.items, value) for pair in unpack(item, part)
    ]


def _described(value: Any) -> str:
    return "one tensor" if isinstance(value, Tensor) else type_name(value)


def hint_of(target: syntax.Target) -> str:
    """What to call the value that is assigned: by its first name."""
    return identifiers(target)[0].name


def _names(target: syntax.Target | None, results: int) -> tuple[Any, ...]:
    """The names of a target, one entry for each result; none where its structure is
    another.
    """
    if target is None:
        return ()
    if results == 1:
        return (_nested(target),)
    return (
        _nested(target)
        if isinstance(target, syntax.Tuple) and len(target.items) == results
        else ()
    )


def _nested(target: syntax.Target) -> Any:
    if isinstance(target, syntax.Identifier):
        return target.name
    return tuple(_nested(item) for item in target.items)  # type: ignore[arg-type]
