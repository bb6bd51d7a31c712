"""The syntax tree of a document: definitions, statements, expressions, each with its
place.

    Document   ::= version, extensions, Fragment*, GraphDefinition
    Fragment   ::= name, generic, Parameter*, Result*, Assignment* or no body
    Assignment ::= target = Expression
    Expression ::= Literal | Identifier | Array | Tuple | Operator | Conditional | Comprehension
                 | Subscript | Range | Builtin | Invocation

No name is looked up and no type is checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Union

from nnef_grad.base.errors import InvalidGraphError
from nnef_grad.base.frozen import FrozenDict, frozen
from nnef_grad.base.source import Source, Span, join
from nnef_grad.language.types import Type, holds_tensors, is_generic

# fmt: off
KEYWORDS = frozenset([
    "version", "extension", "graph", "fragment", "tensor", "integer", "scalar", "logical",
    "string", "shape_of", "length_of", "range_of", "for", "in", "yield", "if", "else",
    "true", "false",
])
# fmt: on

# In texts, statements are indented; a line is broken where it would be longer.
INDENT = "    "
WIDTH = 100


@frozen()
class Node:
    """A node of the syntax tree. Its place does not count in comparisons."""

    span: Span = field(kw_only=True, compare=False, repr=False)


@frozen()
class Named(Node):
    """A node that begins with a name, which is its first field."""

    name: str


@frozen()
class Literal(Node):
    value: bool | int | float | str


@frozen()
class Identifier(Named):
    """A name in an expression, in a target or in a signature."""


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """The items of an array of numbers, at `span`: nodes are made when asked for."""

    values: tuple[int | float, ...]
    span: Span

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Literal]:
        words = _NUMBER.finditer(self.span.text)
        for value, word in zip(self.values, words, strict=True):
            start, end = (self.span.start + offset for offset in word.span())
            yield Literal(value, span=self.span._replace(start=start, end=end))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Numbers, tuple)) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self.values)


_NUMBER = re.compile(r"[^][,\s]+")


@frozen()
class Array(Node):
    items: tuple[Expression, ...] | Numbers


@frozen()
class Tuple(Node):
    items: tuple[Expression, ...]


@frozen()
class Operator(Node):
    """A sign before one operand, or a symbol between two."""

    symbol: str
    operands: tuple[Expression, ...]


@frozen()
class Conditional(Node):
    """`value if condition else otherwise`: only one of the two is evaluated."""

    value: Expression
    condition: Expression
    otherwise: Expression


@frozen()
class Loop(Named):
    iterable: Expression


@frozen()
class Comprehension(Node):
    """`[for loops if condition yield value]`: the loops run in step."""

    loops: tuple[Loop, ...]
    condition: Expression | None
    value: Expression


@frozen()
class Subscript(Node):
    value: Expression
    index: Expression


@frozen()
class Range(Node):
    value: Expression
    begin: Expression | None
    end: Expression | None


@frozen()
class Builtin(Named):
    """`length_of`, `range_of`, `shape_of`, or a primitive type as a conversion."""

    argument: Expression


@frozen()
class Keyword(Named):
    """An argument that is given by the name of its parameter."""

    value: Expression


@frozen()
class Invocation(Named):
    """`name<dtype>(arguments)`. Its span is that of the name."""

    dtype: str | None
    arguments: tuple[Argument, ...]

    @property
    def keywords(self) -> tuple[str | None, ...]:
        """The keyword of each argument; None for a positional one."""
        return tuple([a.name if type(a) is Keyword else None for a in self.arguments])

    @property
    def values(self) -> list[Expression]:
        """The values of the arguments."""
        return [a.value if isinstance(a, Keyword) else a for a in self.arguments]


_Compound = Union[Operator, Conditional, Comprehension, Subscript, Range, Builtin]
Expression = Union[Literal, Identifier, Array, Tuple, _Compound, Invocation]
Target = Union[Identifier, Array, Tuple]
Argument = Union[Expression, Keyword]


# A value known when the graph is compiled; arrays and tuples are both Python tuples.
Value = Union[bool, int, float, str, "tuple[Value, ...]"]


def literal_value(expression: Expression) -> Value:
    """The value of literals, arrays and tuples; `InvalidGraphError` for all else."""
    if isinstance(expression, Literal):
        return expression.value
    if isinstance(expression, (Array, Tuple)):
        return tuple(map(literal_value, expression.items))
    raise InvalidGraphError("a default value must consist of literals", expression.span)


@frozen()
class Assignment:
    target: Target
    value: Expression

    @property
    def span(self) -> Span:
        """From the beginning of the target to the end of the value."""
        return join(self.target.span, self.value.span)


@frozen()
class Parameter(Named):
    type: Type
    default: Expression | None


@frozen()
class Result(Named):
    type: Type


@frozen(slots=False)
class Fragment(Named):
    """The declaration of an operation, and its body where it is compound.

    `generic` is None, or `?` where the invocation must determine the data type, or the
    default data type of `?`. `registry` is the registry of a runtime that declares it; None
    for the operations of the standard, of documents and of users.
    """

    generic: str | None
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    body: tuple[Assignment, ...] | None
    registry: str | None = None

    @cached_property
    def operands(self) -> tuple[Parameter, ...]:
        """The parameters that take tensors."""
        return tuple(p for p in self.parameters if holds_tensors(p.type))

    @cached_property
    def attributes(self) -> tuple[Parameter, ...]:
        """The parameters whose values are known when the graph is compiled."""
        return tuple(p for p in self.parameters if not holds_tensors(p.type))

    @cached_property
    def operand_names(self) -> tuple[str, ...]:
        """The names of the operands."""
        return tuple(p.name for p in self.operands)

    @cached_property
    def attribute_names(self) -> tuple[str, ...]:
        """The names of the attributes."""
        return tuple(p.name for p in self.attributes)

    @cached_property
    def defaults(self) -> Mapping[str, Value]:
        """The values of the parameters that may be left out."""
        pairs = ((p.name, p.default) for p in self.parameters)
        return FrozenDict({n: literal_value(d) for n, d in pairs if d is not None})

    @cached_property
    def _matches(self) -> dict[tuple[str | None, ...], tuple[str, ...]]:
        return {}

    def matches(self) -> dict[tuple[str | None, ...], tuple[str, ...]]:
        """The parameters that arguments are for, by their keywords; see matching.py."""
        return self._matches

    @cached_property
    def generic_parameters(self) -> tuple[Parameter, ...]:
        """The parameters whose types mention the generic data type."""
        return tuple(p for p in self.parameters if is_generic(p.type))

    @cached_property
    def deduces_dtype(self) -> bool:
        """Whether the operands determine the generic data type."""
        return any(is_generic(p.type) for p in self.operands)


@frozen()
class GraphDefinition(Named):
    parameters: tuple[Identifier, ...]
    results: tuple[Identifier, ...]
    body: tuple[Assignment, ...]


@frozen()
class Document:
    """`operators` is the place of the first operator expression, None if it is flat."""

    version: Identifier
    extensions: tuple[Identifier, ...]
    fragments: tuple[Fragment, ...]
    graph: GraphDefinition
    operators: Span | None = field(compare=False, repr=False)
    source: Source = field(compare=False, repr=False)


@frozen()
class Quantization(Node):
    """An entry of a file of quantization info, with all arguments but the tensor."""

    tensor: str
    operation: Invocation
