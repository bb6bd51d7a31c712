"""Builds the nodes of the syntax tree while a text is parsed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

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

Children = list[Any]
Node = TypeVar("Node", bound=syntax.Node)
Method = Callable[["TreeBuilder", Children], Node]


def _named(node: Callable[..., Node]) -> Method[Node]:
    """The method for a rule of a name and further fields of the node, in order."""

    def build(self: TreeBuilder, children: Children) -> Node:
        name, *fields = children
        return node(str(name), *fields, span=self.span(name))

    return build


def _expression(node: Callable[..., Node]) -> Method[Node]:
    """The method for a rule of expressions, which are the fields of the node."""

    def build(self: TreeBuilder, children: Children) -> Node:
        last = next(c for c in reversed(children) if c is not None)
        span = self.operator(join(children[0].span, last.span))
        return node(*children, span=span)

    return build


def _is_scalar(number: str) -> bool:
    return "." in number or "e" in number or "E" in number


def _value(number: str) -> int | float:
    return float(number) if _is_scalar(number) else int(number)


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

    def items(self, children: Children) -> tuple[Any, ...]:
        return tuple(children)

    # Definitions

    def document(self, children: Children) -> syntax.Document:
        version, *_, graph = children
        groups = (part for part in children if isinstance(part, tuple))
        extensions = tuple(name for names in groups for name in names)
        fragments = self.library(children)
        return syntax.Document(
            version, extensions, fragments, graph, self.operators, self.source
        )

    def library(self, children: Children) -> tuple[syntax.Fragment, ...]:
        return tuple(part for part in children if isinstance(part, syntax.Fragment))

    def quantization(self, children: Children) -> tuple[syntax.Quantization, ...]:
        return tuple(children)

    def quantized(self, children: Children) -> syntax.Quantization:
        key, operation = children
        tensor = self.string([key])
        return syntax.Quantization(str(tensor.value), operation, span=tensor.span)

    def name(self, children: Children) -> syntax.Identifier:
        (token,) = children
        return syntax.Identifier(str(token), span=self.span(token))

    def names(self, children: Children) -> tuple[syntax.Identifier, ...]:
        return tuple(self.name([token]) for token in children)

    version = name
    extension = names
    parameters = results = items

    def fragment(self, children: Children) -> syntax.Fragment:
        name, generic, parameters, results, *body = children
        fields = (generic, parameters or (), results, body[0] if body else None)
        return syntax.Fragment(str(name), *fields, span=self.span(name))

    parameter = _named(syntax.Parameter)
    result = _named(syntax.Result)
    graph = _named(syntax.GraphDefinition)

    # Types

    def dtype(self, children: Children) -> str:
        """The type in angle brackets, or the bare type of a default."""
        (token,) = children
        return str(token.strip("<> \t\r\n\f\v"))

    generic = dtype

    def primitive(self, children: Children) -> Type:
        return Primitive(str(children[0]) if children else GENERIC)

    def unbound_tensor(self, children: Children) -> Type:
        return TensorType(None)

    def tensor(self, children: Children) -> Type:
        return TensorType(self.dtype(children))

    def array_type(self, children: Children) -> Type:
        return ArrayType(children[0])

    def tuple_type(self, children: Children) -> Type:
        return TupleType(tuple(children))

    # Statements

    body = items

    def assignment(self, children: Children) -> syntax.Assignment:
        target, value = children
        if not isinstance(value, syntax.Invocation):
            self.operator(value.span)
        return syntax.Assignment(target, value, span=join(target.span, value.span))

    def targets(self, children: Children) -> syntax.Target:
        if len(children) == 1:
            return children[0]  # type: ignore[no-any-return]
        span = join(children[0].span, children[-1].span)
        return syntax.Tuple(tuple(children), span=span)

    # Expressions

    def number(self, children: Children) -> syntax.Literal:
        (token,) = children
        if _is_scalar(token):
            return syntax.Literal(float(token), span=self.span(token))
        # 2^31 is valid after a minus sign, which is an operator and not seen here.
        digits = token.lstrip("0") or "0"
        if len(digits) > 10 or int(digits) > MAX_INTEGER + 1:
            message = brief(f"integer {token} does not fit in 32 bits")
            raise InvalidGraphError(message, self.span(token))
        return syntax.Literal(int(digits), span=self.span(token))

    def string(self, children: Children) -> syntax.Literal:
        (token,) = children
        if not (token.isascii() and token.isprintable()):
            message = "a string must consist of printable ASCII characters"
            raise NnefSyntaxError(message, self.span(token))
        text = re.sub(r"\\(.)", r"\1", token[1:-1])
        return syntax.Literal(text, span=self.span(token))

    def logical(self, children: Children) -> syntax.Literal:
        (token,) = children
        return syntax.Literal(token == "true", span=self.span(token))

    def array_expr(self, children: Children) -> syntax.Array:
        items, span = self._bracketed(children)
        return syntax.Array(items, span=span)

    def literals(self, children: Children) -> syntax.Array:
        """An array of numbers, read at once."""
        (token,) = children
        span = self.span(token)
        values = tuple(map(_value, token[1:-1].split(",")))
        return syntax.Array(syntax.Numbers(values, span), span=span)

    def tuple_expr(self, children: Children) -> syntax.Target:
        """A tuple; one target in parentheses is that target."""
        items, span = self._bracketed(children)
        return items[0] if len(items) == 1 else syntax.Tuple(items, span=span)

    array_target = array_expr
    tuple_target = tuple_expr

    def group(self, children: Children) -> syntax.Expression:
        opening, expression, closing = children
        self.operator(self.span(opening, closing))
        return expression  # type: ignore[no-any-return]

    def binary(self, children: Children) -> syntax.Operator:
        left, symbol, right = children
        span = self.operator(join(left.span, right.span))
        return syntax.Operator(str(symbol), (left, right), span=span)

    def unary(self, children: Children) -> syntax.Expression:
        sign, operand = children
        span = join(self.span(sign), operand.span)
        value: Any = operand.value if isinstance(operand, syntax.Literal) else None
        if sign == "-" and type(value) in (int, float):
            return syntax.Literal(-value, span=span)
        return syntax.Operator(str(sign), (operand,), span=self.operator(span))

    if_else = _expression(syntax.Conditional)
    subscript = _expression(syntax.Subscript)
    range_expr = _expression(syntax.Range)

    def comprehension(self, children: Children) -> syntax.Comprehension:
        parts, span = self._bracketed(children)
        loops = tuple(part for part in parts if isinstance(part, syntax.Loop))
        *condition, value = parts[len(loops) :]
        fields = (loops, condition[0] if condition else None, value)
        return syntax.Comprehension(*fields, span=self.operator(span))

    loop = _named(syntax.Loop)

    def builtin(self, children: Children) -> syntax.Builtin:
        name, _, argument, closing = children
        span = self.operator(self.span(name, closing))
        return syntax.Builtin(str(name), argument, span=span)

    def invocation(self, children: Children) -> syntax.Invocation:
        name, dtype, *arguments = children
        bound = None if dtype is None else self.dtype([dtype])
        span = self.span(name)
        return syntax.Invocation(str(name), bound, tuple(arguments), span=span)

    def positional(self, children: Children) -> syntax.Argument:
        (value,) = children
        return syntax.Argument(None, value, span=value.span)

    keyword = _named(syntax.Argument)

    def _bracketed(self, children: Children) -> tuple[tuple[Any, ...], Span]:
        items = tuple(c for c in children if c is not None and not isinstance(c, Token))
        return items, self.span(children[0], children[-1])
