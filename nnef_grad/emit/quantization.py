"""Reads quantization info: the file beside a document, `graph.quant`.

An entry is checked as an invocation of its operation with its tensor. Its arguments are
literals; those that stand for tensors may be nested arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from nnef_grad.base.errors import (
    InvalidGraphError,
    NnefGradError,
    Problem,
    bounded_nesting,
    suggestion,
)
from nnef_grad.base.source import Source, Span
from nnef_grad.graph.ir import Graph, Quantization, Shape, Tensor
from nnef_grad.graph.names import advice_on
from nnef_grad.graph.passes import carry_quantization
from nnef_grad.graph.printer import has_plain_names
from nnef_grad.language import syntax
from nnef_grad.language.library import STDLIB, Library
from nnef_grad.language.parser import parse_quantization
from nnef_grad.language.syntax import Fragment, Value
from nnef_grad.language.typecheck import ExpressionChecker
from nnef_grad.language.types import UNKNOWN, ArrayType, TensorType
from nnef_grad.ops import SHAPES
from nnef_grad.ops.elementwise import check_fits
from nnef_grad.ops.registry import ShapeError, require

# The standard's operations that quantize. A fragment of the document may, too.
OPERATIONS = (
    "min_max_linear_quantize",
    "zero_point_linear_quantize",
    "linear_quantize",
    "logarithmic_quantize",
)

# Only so many mistakes get a suggestion.
MISSPELT = 20


def read_quantization(
    source: Source,
    graph: Graph,
    library: Library | None = None,
    numbers: Collection[str] = (),
) -> dict[str, Quantization]:
    """The entries for the tensors of a graph, checked, by their names, in the graph's order.
    An `InvalidGraphError` names all that is wrong. The operations are those of the library,
    or else the standard's. What is said of `numbers`, by their names in the document, is left
    out: they are no tensors of the graph.
    """
    reader = _Reader(graph, library if library is not None else STDLIB)
    for entry in parse_quantization(source, extended=not has_plain_names(graph)):
        if entry.tensor in numbers and entry.tensor not in graph.tensors:
            continue
        try:
            with bounded_nesting(entry.operation.span):
                reader.read(entry)
        except NnefGradError as error:
            reader.problems += error.problems
    if reader.problems:
        raise InvalidGraphError.collect(sorted(reader.problems, key=Problem.position))
    return carry_quantization(reader.entries, graph)


class _Reader:
    """Checks entries, and goes on after an error to find all of them."""

    def __init__(self, graph: Graph, library: Library) -> None:
        self.graph = graph
        self.tensors = graph.tensors
        self.library = library
        own = [name for name in library if name not in STDLIB]
        self.quantizing = [*OPERATIONS, *(n for n in own if _may_quantize(library[n]))]
        self.checker = ExpressionChecker(library)
        self.problems = self.checker.problems
        self.seen: dict[str, Span] = {}
        self.entries: dict[str, Quantization] = {}

    def read(self, entry: syntax.Quantization) -> None:
        name, invocation, reported = entry.tensor, entry.operation, len(self.problems)
        tensor, operation = self._tensor(entry), self._operation(invocation)
        first, *others = operation.parameters
        whole = syntax.Identifier(name, span=entry.span)
        arguments = (
            syntax.Keyword(first.name, whole, span=entry.span),
            *_keywords(entry),
        )
        self.checker.library = {operation.name: _with_arrays(operation, arguments)}
        type_ = UNKNOWN if tensor is None else TensorType(tensor.dtype)
        self.checker.types = {name: type_}
        self.checker.type_of(replace(invocation, arguments=arguments))
        if tensor is None or len(self.problems) > reported:
            return
        values = {**operation.defaults, **{a.name: _value(a) for a in arguments[1:]}}
        attributes = {p.name: values[p.name] for p in others}
        _check_shapes(entry, operation, tensor, attributes)
        self.entries[name] = Quantization(name, operation, attributes, entry.span)

    def _tensor(self, entry: syntax.Quantization) -> Tensor | None:
        name = entry.tensor
        first = self.seen.setdefault(name, entry.span)
        if first is not entry.span:
            message = f"'{name}' has its quantization already, in line {first.line}"
        elif name not in self.tensors:
            # With more mistakes the file belongs to another model, and the search takes
            # long.
            names = list(self.tensors) if len(self.problems) < MISSPELT else []
            advice = advice_on(self.graph, name, names)
            message = f"the graph has no tensor '{name}'{advice}"
        else:
            return self.tensors[name]
        self.checker.report(message, entry.span)
        return None

    def _operation(self, invocation: syntax.Invocation) -> Fragment:
        name = invocation.name
        if name not in self.library:
            near = suggestion(name, self.quantizing)
            message = f"there is no operation '{name}'{near}"
        elif name not in self.quantizing:
            choices = ", ".join(self.quantizing)
            message = f"'{name}' does not quantize; the operations that do: {choices}"
        elif invocation.dtype is not None:
            message = f"'{name}' takes no data type here"
        else:
            return self.library[name]
        raise InvalidGraphError(message, invocation.span)


def _may_quantize(operation: Fragment) -> bool:
    """Whether its first parameter and its only result are tensors."""
    if len(operation.results) != 1 or not operation.parameters:
        return False
    ends = operation.parameters[0].type, operation.results[0].type
    return all(isinstance(type_, TensorType) for type_ in ends)


def _keywords(entry: syntax.Quantization) -> list[syntax.Keyword]:
    """The arguments, each of which has its keyword."""
    keywords = []
    for argument in entry.operation.arguments:
        if not isinstance(argument, syntax.Keyword):
            message = "an argument needs its keyword here"
            raise InvalidGraphError(message, argument.span)
        keywords.append(argument)
    return keywords


def _with_arrays(
    operation: Fragment, arguments: tuple[syntax.Keyword, ...]
) -> Fragment:
    """The operation that takes nested arrays where a tensor is written as such."""
    written = {a.name: a.value for a in arguments}
    parameters = []
    for parameter in operation.parameters:
        type_, value = parameter.type, written.get(parameter.name)
        if isinstance(type_, TensorType):
            while isinstance(value, syntax.Array):
                type_, value = ArrayType(type_), next(iter(value.items), None)
        parameters.append(replace(parameter, type=type_))
    return replace(operation, parameters=tuple(parameters))


def _value(argument: syntax.Keyword) -> Value:
    try:
        return syntax.literal_value(argument.value)
    except InvalidGraphError as error:
        message = f"'{argument.name}' must consist of literals here"
        raise InvalidGraphError(message, error.problems[0].span) from None


def _check_shapes(
    entry: syntax.Quantization,
    operation: Fragment,
    tensor: Tensor,
    attributes: Mapping[str, Value],
) -> None:
    """Tensors among the attributes are broadcast to that of the entry; shapes fit."""
    try:
        parameters = operation.operands[1:]
        operands = [p.name for p in parameters if isinstance(p.type, TensorType)]
        shapes = {name: _shape_of(name, attributes[name]) for name in operands}
        check_fits(entry.tensor, tensor.shape, shapes)
        if operation.name in OPERATIONS:
            settings = {p.name: attributes[p.name] for p in operation.attributes}
            SHAPES[operation.name](tensor.shape, *shapes.values(), **settings)
    except ShapeError as error:
        message = f"{operation.name}: {error}"
        raise InvalidGraphError(message, entry.operation.span) from None


def _shape_of(name: str, value: Value) -> Shape:
    if not isinstance(value, tuple):
        return ()
    inner = {_shape_of(name, item) for item in value}
    require(len(inner) <= 1, f"the arrays of '{name}' differ in length")
    return (len(value), *next(iter(inner), ()))
