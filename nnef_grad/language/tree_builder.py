"""Builds the nodes of the syntax tree while a text is parsed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lark import Token, Transformer

from nnef_grad.errors import InvalidGraphError, NnefSyntaxError, brief
from nnef_grad.language import syntax
from nnef_grad.language.types import (
    GENERIC,
    MAX_INTEGER,
    ArrayType,
    Primitive,
    TensorType,
    TupleType,
    Type,
)
from nnef_grad.source import Source, Span, join


class TreeBuilder(Transformer[Token, Any]):
    """Builds the nodes while the text is parsed. Methods are named after the rules of
    the grammar.
    """

    def begin(self, source: Source, offset: int) -> None:
        self.source = source
        self.offset = offset
        self.operators: Span | None = None

    def span(self, first: Token, last: Token | None = None) -> Span:
        start, end = first.start_pos, (last or first).end_pos
        assert start is not None
        assert end is not None
        return Span(self.source, self.offset + start, self.offset + end)

    def operator(self, span: Span) -> Span:
        """Records the first operator expression: a flat document has none."""
        if self.operators is None:
            self.operators = span
        return span

    # Definitions

    def document(self, children: list[Any]) -> syntax.Document:
        version, *rest, graph = children
        extensions = tuple(
            e for group in rest if isinstance(group, list) for e in group
        )
        fragments = tuple(f for f in rest if isinstance(f, syntax.Fragment))
        return syntax.Document(
            version, extensions, fragments, graph, self.operators, self.source
        )

    def library(self, children: list[Any]) -> tuple[syntax.Fragment, ...]:
        return tuple(c for c in children if isinstance(c, syntax.Fragment))

    def quantization(
        self, children: list[syntax.Quantization]
    ) -> tuple[syntax.Quantization, ...]:
        return tuple(children)

    def quantized(self, children: list[Any]) -> syntax.Quantization:
        key, operation = children
        tensor = self.string([key])
        return syntax.Quantization(str(tensor.value), operation, tensor.span)

    def version(self, children: list[Token]) -> syntax.Identifier:
        return syntax.Identifier(str(children[0]), self.span(children[0]))

    def extension(self, children: list[Token]) -> list[syntax.Identifier]:
        return [syntax.Identifier(str(name), self.span(name)) for name in children]

    def fragment(self, children: list[Any]) -> syntax.Fragment:
        name, generic, parameters, results, body = (
            children if len(children) == 5 else [*children, None]
        )
        return syntax.Fragment(
            str(name), generic, tuple(parameters or ()), results, body, self.span(name)
        )

    def generic(self, children: list[Token]) -> str:
        (dtype,) = children
        return _dtype(dtype)

    def parameters(
        self, children: list[syntax.Parameter]
    ) -> tuple[syntax.Parameter, ...]:
        return tuple(children)

    def parameter(self, children: list[Any]) -> syntax.Parameter:
        name, type_, default = children
        return syntax.Parameter(str(name), type_, default, self.span(name))

    def results(self, children: list[syntax.Result]) -> tuple[syntax.Result, ...]:
        return tuple(children)

    def result(self, children: list[Any]) -> syntax.Result:
        name, type_ = children
        return syntax.Result(str(name), type_, self.span(name))

    def graph(self, children: list[Any]) -> syntax.GraphDefinition:
        name, parameters, results, body = children
        return syntax.GraphDefinition(
            str(name), parameters, results, body, self.span(name)
        )

    def names(self, children: list[Token]) -> tuple[syntax.Identifier, ...]:
        return tuple(syntax.Identifier(str(name), self.span(name)) for name in children)

    # Types

    def primitive(self, children: list[Token]) -> Type:
        return Primitive(str(children[0]) if children else GENERIC)

    def unbound_tensor(self, children: list[Token]) -> Type:
        return TensorType(None)

    def tensor(self, children: list[Token]) -> Type:
        return TensorType(_dtype(children[0]))

    def array_type(self, children: list[Type]) -> Type:
        return ArrayType(children[0])

    def tuple_type(self, children: list[Type]) -> Type:
        return TupleType(tuple(children))

    # Statements

    def body(self, children: list[syntax.Assignment]) -> tuple[syntax.Assignment, ...]:
        return tuple(children)

    def assignment(self, children: list[Any]) -> syntax.Assignment:
        targets, value = children
        first, last = targets[0].span, targets[-1].span
        several = syntax.Tuple(tuple(targets), join(first, last))
        if not isinstance(value, syntax.Invocation):
            self.operator(value.span)
        target = targets[0] if len(targets) == 1 else several
        return syntax.Assignment(target, value, join(first, value.span))

    def targets(self, children: list[syntax.Target]) -> list[syntax.Target]:
        return children

    def array_target(self, children: list[Any]) -> syntax.Array:
        return syntax.Array(*self._bracketed(children))

    def tuple_target(self, children: list[Any]) -> syntax.Target:
        items, span = self._bracketed(children)
        return items[0] if len(items) == 1 else syntax.Tuple(items, span)

    # Expressions

    def number(self, children: list[Token]) -> syntax.Literal:
        (token,) = children
        if "." in token or "e" in token or "E" in token:
            return syntax.Literal(float(token), self.span(token))
        # 2^31 is valid after a minus sign, which is an operator and not seen here.
        digits = token.lstrip("0") or "0"
        if len(digits) > 10 or int(digits) > MAX_INTEGER + 1:
            message = brief(f"integer {token} does not fit in 32 bits")
            raise InvalidGraphError(message, self.span(token))
        return syntax.Literal(int(digits), self.span(token))

    def string(self, children: list[Token]) -> syntax.Literal:
        (token,) = children
        if not (token.isascii() and token.isprintable()):
            message = "a string must consist of printable ASCII characters"
            raise NnefSyntaxError(message, self.span(token))
        return syntax.Literal(re.sub(r"\\(.)", r"\1", token[1:-1]), self.span(token))

    def true(self, children: list[Token]) -> syntax.Literal:
        return syntax.Literal(True, self.span(children[0]))

    def false(self, children: list[Token]) -> syntax.Literal:
        return syntax.Literal(False, self.span(children[0]))

    def name(self, children: list[Token]) -> syntax.Identifier:
        (token,) = children
        return syntax.Identifier(str(token), self.span(token))

    def array_expr(self, children: list[Any]) -> syntax.Array:
        return syntax.Array(*self._bracketed(children))

    def group(self, children: list[Any]) -> syntax.Expression:
        opening, expression, closing = children
        self.operator(self.span(opening, closing))
        return expression  # type: ignore[no-any-return]

    def tuple_expr(self, children: list[Any]) -> syntax.Tuple:
        return syntax.Tuple(*self._bracketed(children))

    def binary(self, children: list[Any]) -> syntax.Operator:
        left, symbol, right = children
        return self._operator(str(symbol), left, right)

    def less(self, children: list[Any]) -> syntax.Operator:
        return self._operator("<", *children)

    def greater(self, children: list[Any]) -> syntax.Operator:
        return self._operator(">", *children)

    def contains(self, children: list[Any]) -> syntax.Operator:
        return self._operator("in", *children)

    def unary(self, children: list[Any]) -> syntax.Expression:
        sign, operand = children
        span = Span(self.source, self.span(sign).start, operand.span.end)
        if (
            sign == "-"
            and isinstance(operand, syntax.Literal)
            and type(operand.value) in (int, float)
        ):
            assert not isinstance(operand.value, str)
            return syntax.Literal(-operand.value, span)
        return syntax.Operator(str(sign), (operand,), self.operator(span))

    def if_else(self, children: list[Any]) -> syntax.Conditional:
        value, condition, otherwise = children
        return syntax.Conditional(
            value, condition, otherwise, self.operator(join(value.span, otherwise.span))
        )

    def subscript(self, children: list[Any]) -> syntax.Subscript:
        value, index = children
        return syntax.Subscript(
            value, index, self.operator(join(value.span, index.span))
        )

    def range_expr(self, children: list[Any]) -> syntax.Range:
        value, begin, end = children
        last = end or begin or value
        return syntax.Range(
            value, begin, end, self.operator(join(value.span, last.span))
        )

    def comprehension(self, children: list[Any]) -> syntax.Comprehension:
        parts = [c for c in children if c is not None]
        loops = tuple(p for p in parts if isinstance(p, syntax.Loop))
        *condition, value = [
            p for p in parts if not isinstance(p, (syntax.Loop, Token))
        ]
        span = self.operator(self.span(parts[0], parts[-1]))
        return syntax.Comprehension(
            loops, condition[0] if condition else None, value, span
        )

    def loop(self, children: list[Any]) -> syntax.Loop:
        name, iterable = children
        return syntax.Loop(str(name), iterable, self.span(name))

    def builtin(self, children: list[Any]) -> syntax.Builtin:
        name, _, argument, closing = children
        return syntax.Builtin(
            str(name), argument, self.operator(self.span(name, closing))
        )

    def invocation(self, children: list[Any]) -> syntax.Invocation:
        name, dtype = children[0], children[1]
        arguments = tuple(
            _argument(c) for c in children[2:] if not isinstance(c, (Token, type(None)))
        )
        return syntax.Invocation(
            str(name), _dtype(dtype) if dtype else None, arguments, self.span(name)
        )

    def keyword(self, children: list[Any]) -> syntax.Argument:
        name, value = children
        return syntax.Argument(str(name), value, self.span(name))

    def _operator(
        self, symbol: str, left: syntax.Expression, right: syntax.Expression
    ) -> syntax.Operator:
        return syntax.Operator(
            symbol, (left, right), self.operator(join(left.span, right.span))
        )

    def _bracketed(self, children: Sequence[Any]) -> tuple[tuple[Any, ...], Span]:
        items = tuple(c for c in children if c is not None and not isinstance(c, Token))
        return items, self.span(children[0], children[-1])


def _argument(node: syntax.Argument | syntax.Expression) -> syntax.Argument:
    return (
        node
        if isinstance(node, syntax.Argument)
        else syntax.Argument(None, node, node.span)
    )


def _dtype(token: Token) -> str:
    """The type in angle brackets, or the bare type of a default."""
    return token.strip("<> \t\r\n\f\v")
