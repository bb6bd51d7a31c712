"""Expressions, by recursive descent: a method reads what the rule of its name in
grammars/nnef.lark describes. The parser of definitions is in parser.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from nnef_grad.base.errors import InvalidGraphError, NnefSyntaxError, Problem, brief
from nnef_grad.base.source import Span, join
from nnef_grad.language import syntax
from nnef_grad.language.lexical import (
    BUILTIN,
    DTYPE,
    KINDS,
    LITERALS,
    NAME,
    NUMBER,
    PRIMITIVE,
    STRING,
    WORD,
)
from nnef_grad.language.syntax_errors import EXPRESSION, syntax_error
from nnef_grad.language.types import MAX_INTEGER

Item = TypeVar("Item")
Word = re.Match[str]

# Operators by how closely they bind. A sign binds looser than a power: -x ^ 2.0 is
# -(x ^ 2.0); an exponent may have one of its own.
_LEVELS = {
    "if": 1, "in": 2, "||": 3, "&&": 3,
    "<": 4, "<=": 4, ">": 4, ">=": 4, "==": 4, "!=": 4,
    "+": 5, "-": 5, "*": 6, "/": 6, "^": 8,
}  # fmt: skip
_LOOSEST, _DISJUNCTION, _SIGNED = 1, 3, 7
_SIGNS = {"+", "-", "!"}


class ExpressionParser:
    """Reads the words of a part of a text, and expressions.

    Attributes:
        source: the text that it is a part of.
        operators: the first operator expression: a flat document has none.
        problems: those of statements that were passed over.
    """

    def __init__(self, place: Span, text: str) -> None:
        self.source = place.source
        self.operators: Span | None = None
        self.problems: list[Problem] = []
        self._place = place
        self._words = list(WORD.finditer(text, place.start, place.end))
        self._kinds = [
            KINDS.get(w[w.lastindex or 0]) or w.lastgroup or "" for w in self._words
        ]
        self._at = 0
        self._first = self._words[0]
        # Where a word of each kind could have been, the last time.
        self._tried: dict[str, int] = {}

    # Words

    @property
    def statement(self) -> Span:
        """The place of the last statement or signature, as far as it was read."""
        return self.since(self._first)

    def begin_statement(self) -> None:
        """Begins a statement or a signature with the next word."""
        self._first = self._words[self._at]

    def take(self, kind: str) -> Word:
        """The next word, which must be of a kind."""
        if not self.follows(kind):
            self._fail()
        return self.next_word()

    def next_word(self) -> Word:
        """Goes past the next word."""
        word = self._words[self._at]
        self._at += 1
        return word

    def follows(self, kind: str) -> bool:
        """Whether the next word is of a kind."""
        self._tried[kind] = self._at
        return self._kinds[self._at] == kind

    def skip(self, kind: str) -> bool:
        """Goes past a word, if it is of a kind."""
        found = self.follows(kind)
        self._at += found
        return found

    def _fail(self) -> NoReturn:
        expected = {kind for kind, at in self._tried.items() if at == self._at}
        kind, here = self._kinds[self._at], self.span(self._words[self._at])
        raise syntax_error(here, kind, expected, self._place)

    def pass_to(self, *kinds: str) -> None:
        """Goes to the next word of one of several kinds."""
        while self._kinds[self._at] not in kinds:
            self._at += 1

    def several(self, item: Callable[[], Item], end: str = "") -> tuple[Item, ...]:
        """Items that are separated by commas, up to a word that ends them."""
        items = [item()]
        while self.skip(","):
            items.append(item())
        if end:
            self.take(end)
        return tuple(items)

    # Places

    def span(self, word: Word) -> Span:
        """The place of a word."""
        return Span(self.source, word.start(word.lastindex or 0), word.end())

    def since(self, opening: Word) -> Span:
        """The place from the beginning of a word to the end of the last one."""
        end = self._words[self._at - 1].end()
        return Span(self.source, opening.start(opening.lastindex or 0), end)

    def operator(self, span: Span) -> Span:
        """Notes the place of an operator expression."""
        if self.operators is None:
            self.operators = span
        return span

    # Expressions

    def expression(self, level: int = _LOOSEST) -> syntax.Expression:
        """An expression whose operators bind at least so closely."""
        if self._kinds[self._at] in _SIGNS:
            sign = self.next_word()
            left = self._signed(sign, self.expression(max(level, _SIGNED)))
        elif (read := _ATOMS.get(self._kinds[self._at])) is not None:
            left = read(self)
            while self._kinds[self._at] == "[":
                self._at += 1
                left = self._part(left)
        else:
            self._tried[EXPRESSION] = self._at
            self._fail()
        while (found := _LEVELS.get(self._kinds[self._at], 0)) >= level:
            left = self._binary(left, found)
        return left

    def _binary(self, left: syntax.Expression, level: int) -> syntax.Expression:
        symbol = text_of(self.next_word())
        if symbol == "if":
            return self._conditional(left)
        right = self.expression(level + 1)
        span = self.operator(join(left.span, right.span))
        return syntax.Operator(symbol, (left, right), span=span)

    def _conditional(self, value: syntax.Expression) -> syntax.Conditional:
        condition = self.expression()
        self.take("else")
        otherwise = self.expression()
        span = self.operator(join(value.span, otherwise.span))
        return syntax.Conditional(value, condition, otherwise, span=span)

    def _signed(self, sign: Word, operand: syntax.Expression) -> syntax.Expression:
        symbol, span = text_of(sign), join(self.span(sign), operand.span)
        value: Any = operand.value if isinstance(operand, syntax.Literal) else None
        if symbol == "-" and type(value) in (int, float):
            return syntax.Literal(-value, span=span)
        return syntax.Operator(symbol, (operand,), span=self.operator(span))

    def _part(self, value: syntax.Expression) -> syntax.Expression:
        """The item or the items of a value."""
        begin = None if self.follows(":") else self.expression()
        if begin is not None and self.skip("]"):
            span = self.operator(join(value.span, begin.span))
            return syntax.Subscript(value, begin, span=span)
        self.take(":")
        end = None if self.follows("]") else self.expression()
        self.take("]")
        span = self.operator(join(value.span, (end or begin or value).span))
        return syntax.Range(value, begin, end, span=span)

    def _number(self) -> syntax.Literal:
        word = self.next_word()
        text, span = text_of(word), self.span(word)
        if _is_scalar(text):
            return syntax.Literal(float(text), span=span)
        # 2^31 is valid after a minus sign, which is an operator and not seen here.
        digits = text.lstrip("0") or "0"
        if len(digits) > 10 or int(digits) > MAX_INTEGER + 1:
            message = brief(f"integer {text} does not fit in 32 bits")
            raise InvalidGraphError(message, span)
        return syntax.Literal(int(digits), span=span)

    def string(self) -> syntax.Literal:
        """A string."""
        word = self.next_word()
        text, span = text_of(word), self.span(word)
        if not (text.isascii() and text.isprintable()):
            message = "a string must consist of printable ASCII characters"
            raise NnefSyntaxError(message, span)
        value = text[1:-1]
        if "\\" in value:
            value = re.sub(r"\\(.)", r"\1", value)
        return syntax.Literal(value, span=span)

    def _logical(self) -> syntax.Literal:
        word = self.next_word()
        return syntax.Literal(text_of(word) == "true", span=self.span(word))

    def _literals(self) -> syntax.Array:
        """An array of numbers, read at once."""
        word = self.next_word()
        span, values = self.span(word), _numbers(text_of(word)[1:-1])
        return syntax.Array(syntax.Numbers(values, span), span=span)

    def _reference(self) -> syntax.Expression:
        """A name, or an invocation."""
        name = self.next_word()
        if self.follows("(") or self.follows(DTYPE):
            return self.invocation(name)
        return syntax.Identifier(text_of(name), span=self.span(name))

    def invocation(self, name: Word) -> syntax.Invocation:
        """An invocation, from the word after its name on."""
        dtype = dtype_of(self.next_word()) if self.follows(DTYPE) else None
        self.take("(")
        arguments = list[syntax.Argument]()
        if not self.skip(")"):
            # Not by `several`: calls in calls may be nested the deeper.
            arguments.append(self._argument())
            while self.skip(","):
                arguments.append(self._argument())
            self.take(")")
        span = self.span(name)
        return syntax.Invocation(text_of(name), dtype, tuple(arguments), span=span)

    def _argument(self) -> syntax.Argument:
        at = self._at
        if self._kinds[at] != NAME:
            return self.expression()
        if self._kinds[at + 1] != "=":
            self._tried["="] = at + 1
            return self.expression()
        name, self._at = self._words[at], at + 2
        return syntax.Keyword(text_of(name), self.expression(), span=self.span(name))

    def _builtin(self) -> syntax.Builtin:
        name = self.next_word()
        self.take("(")
        argument = self.expression()
        self.take(")")
        span = self.operator(self.since(name))
        return syntax.Builtin(text_of(name), argument, span=span)

    def _bracketed(self) -> syntax.Expression:
        """An array, or a comprehension."""
        opening = self.next_word()
        if self.skip("for"):
            return self._comprehension(opening)
        items = () if self.skip("]") else self.several(self.expression, "]")
        return syntax.Array(items, span=self.since(opening))

    def _comprehension(self, opening: Word) -> syntax.Comprehension:
        loops = self.several(self._loop)
        condition = self.expression() if self.skip("if") else None
        self.take("yield")
        value = self.expression()
        self.take("]")
        span = self.operator(self.since(opening))
        return syntax.Comprehension(loops, condition, value, span=span)

    def _loop(self) -> syntax.Loop:
        name = self.take(NAME)
        self.take("in")
        iterable = self.expression(_DISJUNCTION)
        return syntax.Loop(text_of(name), iterable, span=self.span(name))

    def _parenthesized(self) -> syntax.Expression:
        """A group, or a tuple."""
        opening = self.next_word()
        first = self.expression()
        if self.skip(")"):
            self.operator(self.since(opening))
            return first
        self.take(",")
        items = (first, *self.several(self.expression, ")"))
        return syntax.Tuple(items, span=self.since(opening))


_ATOMS: dict[str, Callable[[ExpressionParser], syntax.Expression]] = {
    NUMBER: ExpressionParser._number,
    STRING: ExpressionParser.string,
    "true": ExpressionParser._logical,
    "false": ExpressionParser._logical,
    NAME: ExpressionParser._reference,
    BUILTIN: ExpressionParser._builtin,
    PRIMITIVE: ExpressionParser._builtin,
    LITERALS: ExpressionParser._literals,
    "[": ExpressionParser._bracketed,
    "(": ExpressionParser._parenthesized,
}


def text_of(word: Word) -> str:
    """The characters of a word."""
    return word[word.lastindex or 0]


def dtype_of(word: Word) -> str:
    """The type in angle brackets."""
    return text_of(word).strip("<> \t\r\n\f\v")


def _is_scalar(number: str) -> bool:
    return "." in number or "e" in number or "E" in number


def _numbers(text: str) -> tuple[int | float, ...]:
    """The numbers of a text, which are separated by commas."""
    words = text.split(",")
    if not _is_scalar(text):
        return tuple(map(int, words))
    return tuple(float(word) if _is_scalar(word) else int(word) for word in words)
