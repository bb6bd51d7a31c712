"""Repairs what real exporters write and the standard forbids, and says so.

    y = sum_reduce(x, [0]);             an attribute without its keyword
    y = sum_reduce(x, axes = 0);        one value where an array is wanted
    y = add(x, 2);                      an integer where a scalar is wanted
    y = conv(x, w, b);                  a bias of shape [C], where b has rank 1

The first three are repaired in the syntax, before it is checked; the bias needs shapes, and
is repaired where the operation is made. What comes out is strictly standard.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nnef_grad.base.errors import Problem, bounded_nesting
from nnef_grad.base.source import Span
from nnef_grad.emit.arguments import Call
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Tensor
from nnef_grad.language import syntax, types
from nnef_grad.language.library import Library, with_fragments
from nnef_grad.language.types import SCALAR, ArrayType, TensorType, Type
from nnef_grad.ops.traits import BIASED

Body = tuple[syntax.Assignment, ...]


def repair(document: syntax.Document) -> tuple[syntax.Document, list[Problem]]:
    """The document with the arguments of its invocations repaired, and a warning each."""
    repair = _Repair(with_fragments(document.fragments))
    graph = replace(document.graph, body=repair.body(document.graph.body))
    fragments = tuple(
        f if f.body is None else replace(f, body=repair.body(f.body))
        for f in document.fragments
    )
    return replace(document, graph=graph, fragments=fragments), repair.problems


class _Repair:
    def __init__(self, library: Library) -> None:
        self.library = library
        self.problems: list[Problem] = []

    def body(self, statements: Body) -> Body:
        repaired = []
        for statement in statements:
            with bounded_nesting(statement.span):
                repaired.append(replace(statement, value=self._visit(statement.value)))
        return tuple(repaired)

    def _visit(self, expression: syntax.Expression) -> Any:
        if not isinstance(expression, syntax.Invocation):
            return expression
        fragment = self.library.get(expression.name)
        if fragment is None:
            return expression
        types_ = {p.name: p.type for p in fragment.parameters}
        dtype = expression.dtype or fragment.generic or types.GENERIC
        arguments: list[syntax.Argument] = []
        for position, argument in enumerate(expression.arguments):
            named = self._named(fragment, position, argument)
            if isinstance(named, syntax.Keyword):
                value = self._value(types_.get(named.name), named.value, dtype)
                arguments.append(replace(named, value=value))
            else:
                (type_,) = [*types_.values()][position : position + 1] or (None,)
                arguments.append(self._value(type_, named, dtype))
        return replace(expression, arguments=tuple(arguments))

    def _value(self, type_: Type | None, value: syntax.Expression, dtype: str) -> Any:
        """The value for a parameter of a type, if there is one."""
        value = self._visit(value)
        if type_ is None:
            return value
        return self._fitted(types.substitute(type_, dtype), value)

    def _named(
        self, fragment: syntax.Fragment, position: int, argument: syntax.Argument
    ) -> syntax.Argument:
        """An attribute gets its keyword."""
        tensors, parameters = len(fragment.operands), fragment.parameters
        is_misplaced = tensors <= position < len(parameters)
        if isinstance(argument, syntax.Keyword) or not is_misplaced:
            return argument
        name = parameters[position].name
        self._report(f"read as {name} = {argument.span.text}", argument.span)
        return syntax.Keyword(name, argument, span=argument.span)

    def _fitted(self, type_: Type, value: syntax.Expression) -> syntax.Expression:
        """One value becomes an array, an integer becomes a scalar, in arrays too."""
        if isinstance(type_, ArrayType) and isinstance(value, syntax.Literal):
            self._report(f"read as [{value.span.text}]", value.span)
            return syntax.Array((self._fitted(type_.item, value),), span=value.span)
        if isinstance(type_, ArrayType) and isinstance(value, syntax.Array):
            items = tuple(self._fitted(type_.item, item) for item in value.items)
            return replace(value, items=items)
        is_integer = isinstance(value, syntax.Literal) and type(value.value) is int
        if is_integer and type_ in (SCALAR, TensorType("scalar")):
            assert isinstance(value, syntax.Literal)
            self._report(f"read as {float(value.value)}", value.span)
            return replace(value, value=float(value.value))
        return value

    def _report(self, message: str, span: Span) -> None:
        self.problems.append(Problem(message, span))


def repair_bias(
    emitter: Emitter, call: Call, span: Span, repairs: list[Problem]
) -> Call:
    """A call with its bias of rank 1, if it has one, along the channels."""
    if call.definition.name not in BIASED:
        return call
    *others, bias = call.operands
    if not isinstance(bias, Tensor) or bias.rank != 1 or bias.shape == (1,):
        return call
    row = emitter("unsqueeze", bias, axes=[0], hint=f"{emitter.called(bias)}_row")
    message = f"the bias of shape {list(bias.shape)} is read as {[1, *bias.shape]}"
    repairs.append(Problem(message, span))
    return call._replace(operands=(*others, row))
