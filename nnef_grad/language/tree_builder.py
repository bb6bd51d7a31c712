"""Builds the nodes of the syntax tree while a text is parsed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeVar

from nnef_grad.base.errors import InvalidGraphError, NnefSyntaxError, brief
from nnef_grad.base.source import Source, Span, join
from nnef_grad.language import syntax
from nnef_grad.language.identifiers import unescaped
from nnef_grad.language.lalr import Word
from nnef_grad.language.types import (
    GENERIC,
    MAX_INTEGER,
    ArrayType,
    Primitive,
    TensorType,
    TupleType,
    Type,
)

Node = TypeVar("Node", bound=syntax.Node)
Items = Sequence[Any]


def _named(node: Callable[..., Node]) -> Callable[..., Node]:
    """The method for a rule of a name and further fields of the node, in order."""

    def build(self: TreeBuilder, name: Word, *fields: Any) -> Node:
        return node(_name(name), *fields, span=self.span(name))

    return build


def _expression(node: Callable[..., Node]) -> Callable[..., Node]:
    """The method for a rule of expressions, which are the fields of the node."""

    def build(self: TreeBuilder, *parts: Any) -> Node:
        last = next(part for part in reversed(parts) if part is not None)
        return node(*parts, span=self.operator(join(parts[0].span, last.span)))

    return build


def _text(word: Word) -> str:
    return word[word.lastindex or 0]


def _name(word: Word) -> str:
    """A name; an extended identifier is what is between its quotes."""
    text = _text(word)
    return text if text[-1] not in _QUOTES else unescaped(text[2:-1])


_QUOTES = "'\""


def _is_scalar(number: str) -> bool:
    return "." in number or "e" in number or "E" in number


def _numbers(text: str) -> tuple[int | float, ...]:
    """The numbers of a text, which are separated by commas."""
    words = text.split(",")
    if not _is_scalar(text):
        return tuple(map(int, words))
    return tuple(float(word) if _is_scalar(word) else int(word) for word in words)


class TreeBuilder:
    """Builds nodes; its methods are the rules of the grammar, and take their parts."""

    def begin(self, source: Source, *, any_text: bool = False) -> None:
        """Begins a text, whose strings may be `any_text`."""
        self.source, self.any_text = source, any_text
        self.operators: Span | None = None

    def span(self, word: Word) -> Span:
        """The place of a word."""
        return Span(self.source, word.start(word.lastindex or 0), word.end())

    def bracketed(self, opening: Word, closing: Word) -> Span:
        """The place from the beginning of one word to the end of another."""
        return join(self.span(opening), self.span(closing))

    def operator(self, span: Span) -> Span:
        """Records the first operator expression: a flat document has none."""
        if self.operators is None:
            self.operators = span
        return span

    def items(self, first: Any, others: Items = ()) -> tuple[Any, ...]:
        """The parts of a list, of which the first is not repeated in the grammar."""
        return (first, *others)

    # Definitions

    def document(self, version: syntax.Identifier, *parts: Any) -> syntax.Document:
        *groups, graph = parts
        lines = (p for p in chain(*groups) if not isinstance(p, syntax.Fragment))
        fields = tuple(chain(*lines)), self.library(version, *groups), graph
        return syntax.Document(version, *fields, self.operators, self.source)

    def library(self, version: object, *groups: Items) -> tuple[syntax.Fragment, ...]:
        return tuple([p for p in chain(*groups) if isinstance(p, syntax.Fragment)])

    def quantization(self, entries: Items = ()) -> tuple[Any, ...]:
        return tuple(entries)

    body = quantization

    def call(self, invocation: syntax.Invocation) -> syntax.Invocation:
        return invocation

    def quantized(self, key: Word, operation: syntax.Invocation) -> syntax.Quantization:
        tensor = self.string(key)
        return syntax.Quantization(str(tensor.value), operation, span=tensor.span)

    def name(self, word: Word) -> syntax.Identifier:
        # Half of the words are names: no other method is called.
        group = word.lastindex or 0
        span, text = Span(self.source, word.start(group), word.end()), word[group]
        if text[-1] in _QUOTES:
            text = _name(word)
        return syntax.Identifier(text, span=span)

    def extension(
        self, first: Word, others: Items = ()
    ) -> tuple[syntax.Identifier, ...]:
        return tuple([self.name(w) for w in (first, *others) if w is not None])

    names = extension

    version = name
    parameters = results = items

    def fragment(
        self,
        name: Word,
        generic: str | None,
        parameters: tuple[syntax.Parameter, ...] | None,
        results: tuple[syntax.Result, ...],
        body: tuple[syntax.Assignment, ...] | None = None,
    ) -> syntax.Fragment:
        fields = (generic, parameters or (), results, body)
        return syntax.Fragment(_name(name), *fields, span=self.span(name))

    parameter = _named(syntax.Parameter)
    result = _named(syntax.Result)
    graph = _named(syntax.GraphDefinition)

    # Types

    def dtype(self, word: Word) -> str:
        """The type in angle brackets, or the bare type of a default."""
        return _text(word).strip("<> \t\r\n\f\v")

    generic = dtype

    def primitive(self, word: Word | None = None) -> Type:
        return Primitive(GENERIC if word is None else _text(word))

    array_type = staticmethod(ArrayType)

    def unbound_tensor(self) -> Type:
        return TensorType(None)

    def tensor(self, word: Word) -> Type:
        return TensorType(self.dtype(word))

    def tuple_type(self, first: Type, others: Items) -> Type:
        return TupleType((first, *others))

    # Statements

    def assignment(
        self, target: syntax.Target, value: syntax.Expression
    ) -> syntax.Assignment:
        if not isinstance(value, syntax.Invocation):
            self.operator(value.span)
        return syntax.Assignment(target, value)

    def targets(self, first: syntax.Target, others: Items) -> syntax.Tuple:
        return syntax.Tuple((first, *others), span=join(first.span, others[-1].span))

    # Expressions

    def number(self, word: Word) -> syntax.Literal:
        text = _text(word)
        if _is_scalar(text):
            return syntax.Literal(float(text), span=self.span(word))
        # 2^31 is valid after a minus sign, which is an operator and not seen here.
        digits = text.lstrip("0") or "0"
        if len(digits) > 10 or int(digits) > MAX_INTEGER + 1:
            message = brief(f"integer {text} does not fit in 32 bits")
            raise InvalidGraphError(message, self.span(word))
        return syntax.Literal(int(digits), span=self.span(word))

    def string(self, word: Word) -> syntax.Literal:
        text = _text(word)
        if not (self.any_text or (text.isascii() and text.isprintable())):
            message = "a string must consist of printable ASCII characters"
            raise NnefSyntaxError(message, self.span(word))
        return syntax.Literal(unescaped(text[1:-1]), span=self.span(word))

    def logical(self, word: Word) -> syntax.Literal:
        return syntax.Literal(_text(word) == "true", span=self.span(word))

    def array_expr(self, opening: Word, *parts: Any) -> syntax.Array:
        *items, closing = parts
        whole = () if items[0] is None else self.items(*items)
        return syntax.Array(whole, span=self.bracketed(opening, closing))

    def literals(self, word: Word) -> syntax.Array:
        """An array of numbers, read at once."""
        span = self.span(word)
        values = _numbers(_text(word)[1:-1])
        return syntax.Array(syntax.Numbers(values, span), span=span)

    def tuple_target(self, opening: Word, *parts: Any) -> syntax.Target:
        """One target in parentheses is that target."""
        *items, closing = parts
        whole = self.items(*items)
        if len(whole) == 1:
            return whole[0]  # type: ignore[no-any-return]
        return syntax.Tuple(whole, span=self.bracketed(opening, closing))

    tuple_expr = tuple_target

    def group(
        self, opening: Word, expression: syntax.Expression, closing: Word
    ) -> syntax.Expression:
        self.operator(self.bracketed(opening, closing))
        return expression

    def binary(
        self, left: syntax.Expression, symbol: Word, right: syntax.Expression
    ) -> syntax.Operator:
        span = self.operator(join(left.span, right.span))
        return syntax.Operator(_text(symbol), (left, right), span=span)

    def unary(self, sign: Word, operand: syntax.Expression) -> syntax.Expression:
        symbol, span = _text(sign), join(self.span(sign), operand.span)
        value: Any = operand.value if isinstance(operand, syntax.Literal) else None
        if symbol == "-" and type(value) in (int, float):
            return syntax.Literal(-value, span=span)
        return syntax.Operator(symbol, (operand,), span=self.operator(span))

    if_else = _expression(syntax.Conditional)
    subscript = _expression(syntax.Subscript)
    range_expr = _expression(syntax.Range)

    def comprehension(self, opening: Word, *parts: Any) -> syntax.Comprehension:
        *loops, condition, value, closing = parts
        span = self.operator(self.bracketed(opening, closing))
        fields = (self.items(*loops), condition, value)
        return syntax.Comprehension(*fields, span=span)

    loop = _named(syntax.Loop)

    def builtin(
        self, name: Word, argument: syntax.Expression, closing: Word
    ) -> syntax.Builtin:
        span = self.operator(self.bracketed(name, closing))
        return syntax.Builtin(_text(name), argument, span=span)

    def typed_invocation(
        self, name: Word, dtype: Word, *parts: Any
    ) -> syntax.Invocation:
        return self.invocation(name, *parts, dtype=self.dtype(dtype))

    def invocation(
        self, name: Word, *parts: Any, dtype: str | None = None
    ) -> syntax.Invocation:
        arguments = self.items(*parts) if parts else ()
        return syntax.Invocation(_name(name), dtype, arguments, span=self.span(name))

    call_name = invocation
    keyword = _named(syntax.Keyword)
