"""The parser: text to syntax tree, by recursive descent. A method reads what the rule of its
name in grammars/nnef.lark describes; syntax_errors.py says what is wrong with a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from nnef_grad.base.errors import NnefSyntaxError, nested_too_deeply
from nnef_grad.base.source import Source, Span, join
from nnef_grad.language import syntax
from nnef_grad.language.expressions import ExpressionParser, dtype_of, text_of
from nnef_grad.language.lexical import DTYPE, END, NAME, NUMBER, PRIMITIVE, STRING
from nnef_grad.language.types import (
    GENERIC,
    ArrayType,
    Primitive,
    TensorType,
    TupleType,
    Type,
)

Node = TypeVar("Node")

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")


def parse_document(source: Source, text: str | None = None) -> syntax.Document:
    """Reads a whole document.

    Args:
        source: the document.
        text: its text, with blanks in place of what is read elsewhere.

    Raises:
        NnefSyntaxError: the text is not an NNEF 1.0 document; the error points at the
            first unexpected word of each faulty statement.
    """
    return _parse(_Parser.document, source, source.text if text is None else text)


def parse_fragments(
    source: Source, start: int = 0, end: int | None = None
) -> tuple[syntax.Fragment, ...]:
    """Reads the fragment definitions between two offsets of a source.

    Raises:
        NnefSyntaxError: the text holds something other than fragment definitions.
    """
    return _parse(_Parser.library, source, source.text, start, end)


def parse_invocation(source: Source, start: int = 0) -> syntax.Invocation:
    """Reads an invocation from an offset of a source on: a name, with arguments in
    parentheses if there are any.

    Raises:
        NnefSyntaxError: the text holds something else.
    """
    return _parse(_Parser.call, source, source.text, start)


def parse_quantization(source: Source) -> tuple[syntax.Quantization, ...]:
    """Reads a file of quantization info.

    Raises:
        NnefSyntaxError: the text holds something other than entries of such a file.
    """
    return _parse(_Parser.quantization, source, source.text)


def _parse(
    rule: Callable[[_Parser], Node],
    source: Source,
    text: str,
    start: int = 0,
    end: int | None = None,
) -> Node:
    """Reads a part of a text, which is that of a source, by a rule of the grammar."""
    control = _CONTROL.search(source.text)
    if control:
        # A syntax error would be misleading.
        message = "this is not NNEF text: it contains a control character"
        raise NnefSyntaxError(message, Span(source, *control.span()))
    parser = _Parser(Span(source, start, len(text) if end is None else end), text)
    try:
        found = rule(parser)
        parser.take(END)
        if not parser.problems:
            return found
    except NnefSyntaxError as error:
        parser.problems += error.problems
    except RecursionError:
        raise nested_too_deeply(parser.statement) from None
    raise NnefSyntaxError.collect(parser.problems)


class _Parser(ExpressionParser):
    # Definitions

    def document(self) -> syntax.Document:
        version = self._version()
        extensions, fragments = self._extensions(), self._fragments()
        graph = self._graph()
        return syntax.Document(
            version, extensions, fragments, graph, self.operators, self.source
        )

    def library(self) -> tuple[syntax.Fragment, ...]:
        if self.follows("version"):
            self._version()
        self._extensions()
        return self._fragments()

    def quantization(self) -> tuple[syntax.Quantization, ...]:
        found = []
        while self.follows(STRING):
            tensor = self.string()
            self.take(":")
            operation = self.invocation(self.take(NAME))
            self.take(";")
            name = str(tensor.value)
            found.append(syntax.Quantization(name, operation, span=tensor.span))
        return tuple(found)

    def call(self) -> syntax.Invocation:
        name = self.take(NAME)
        if self.follows(DTYPE) or self.follows("("):
            return self.invocation(name)
        return syntax.Invocation(text_of(name), None, (), span=self.span(name))

    def _version(self) -> syntax.Identifier:
        self.take("version")
        number = self.take(NUMBER)
        self.take(";")
        return syntax.Identifier(text_of(number), span=self.span(number))

    def _extensions(self) -> tuple[syntax.Identifier, ...]:
        found: list[syntax.Identifier] = []
        while self.skip("extension"):
            found += self._statement(self._extension) or ()
        return tuple(found)

    def _extension(self) -> list[syntax.Identifier]:
        found = [self.identifier()]
        while not self.skip(";"):
            found.append(self.identifier())
        return found

    def _fragments(self) -> tuple[syntax.Fragment, ...]:
        found = []
        while self.skip("fragment"):
            found.append(self._fragment())
        return tuple(found)

    def _fragment(self) -> syntax.Fragment:
        self.begin_statement()
        name = self.take(NAME)
        generic = self._generic()
        self.take("(")
        parameters = () if self.follows(")") else self.several(self._parameter)
        for word in (")", "->", "("):
            self.take(word)
        results = self.several(self._result, ")")
        body = None if self.skip(";") else self._body()
        fields = (generic, parameters, results, body)
        return syntax.Fragment(text_of(name), *fields, span=self.span(name))

    def _generic(self) -> str | None:
        if self.follows(DTYPE):
            return dtype_of(self.next_word())
        if not self.skip("<"):
            return None
        self.take("?")
        self.take("=")
        default = text_of(self.take(PRIMITIVE))
        self.take(">")
        return default

    def _parameter(self) -> syntax.Parameter:
        name = self.take(NAME)
        self.take(":")
        type_ = self._type()
        default = self.expression() if self.skip("=") else None
        return syntax.Parameter(text_of(name), type_, default, span=self.span(name))

    def _result(self) -> syntax.Result:
        name = self.take(NAME)
        self.take(":")
        return syntax.Result(text_of(name), self._type(), span=self.span(name))

    def _graph(self) -> syntax.GraphDefinition:
        self.begin_statement()
        self.take("graph")
        name = self.take(NAME)
        self.take("(")
        parameters = self.several(self.identifier, ")")
        self.take("->")
        self.take("(")
        fields = (parameters, self.several(self.identifier, ")"), self._body())
        return syntax.GraphDefinition(text_of(name), *fields, span=self.span(name))

    def identifier(self) -> syntax.Identifier:
        word = self.take(NAME)
        return syntax.Identifier(text_of(word), span=self.span(word))

    # Types

    def _type(self) -> Type:
        found: Type
        if self.follows(PRIMITIVE):
            found = Primitive(text_of(self.next_word()))
        elif self.skip("?"):
            found = Primitive(GENERIC)
        elif self.skip("tensor"):
            found = self._tensor()
        else:
            self.take("(")
            first = self._type()
            self.take(",")
            found = TupleType((first, *self.several(self._type, ")")))
        while self.skip("["):
            self.take("]")
            found = ArrayType(found)
        return found

    def _tensor(self) -> Type:
        if self.follows(DTYPE):
            return TensorType(dtype_of(self.next_word()))
        self.take("<")
        self.take(">")
        return TensorType(None)

    # Statements

    def _body(self) -> tuple[syntax.Assignment, ...]:
        self.take("{")
        found = [self._statement(self._assignment)]
        while not self.skip("}"):
            found.append(self._statement(self._assignment))
        return tuple(statement for statement in found if statement is not None)

    def _statement(self, read: Callable[[], Node]) -> Node | None:
        """A statement. After a faulty one, the problems of others are looked for."""
        self.begin_statement()
        try:
            return read()
        except NnefSyntaxError as error:
            self.pass_to(";", "{", "}", END)
            if not self.skip(";"):
                raise
            self.problems += error.problems
            return None

    def _assignment(self) -> syntax.Assignment:
        targets = self.several(self._target)
        target = targets[0]
        if len(targets) > 1:
            target = syntax.Tuple(targets, span=join(target.span, targets[-1].span))
        self.take("=")
        value = self.expression()
        self.take(";")
        if not isinstance(value, syntax.Invocation):
            self.operator(value.span)
        return syntax.Assignment(target, value)

    def _target(self) -> syntax.Target:
        if self.follows("("):
            opening = self.next_word()
            targets = self.several(self._target, ")")
            if len(targets) == 1:
                return targets[0]
            return syntax.Tuple(targets, span=self.since(opening))
        if self.follows("["):
            opening = self.next_word()
            items = () if self.skip("]") else self.several(self._target, "]")
            return syntax.Array(items, span=self.since(opening))
        return self.identifier()
