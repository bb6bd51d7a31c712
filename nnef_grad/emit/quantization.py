"""Reads quantization info: the file beside a document, `graph.quant`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple, TypeVar

from nnef_grad.base.errors import InvalidGraphError, NnefGradError, Problem, suggestion
from nnef_grad.base.source import Source, Span
from nnef_grad.emit.arguments import dtype_of
from nnef_grad.graph.ir import Graph, Quantization, Shape
from nnef_grad.graph.names import advice_on
from nnef_grad.graph.quantization import carry_quantization
from nnef_grad.language import syntax, types
from nnef_grad.language.library import Library, standard
from nnef_grad.language.matching import refuse_missing
from nnef_grad.language.parser import parse_quantization
from nnef_grad.language.syntax import Fragment, Parameter, Value
from nnef_grad.language.types import ArrayType, Primitive, TensorType, TupleType, Type
from nnef_grad.ops import SHAPES
from nnef_grad.ops.elementwise import fits_into
from nnef_grad.ops.registry import ShapeError

# The standard's operations that quantize. A fragment of the document may, too.
OPERATIONS = (
    "min_max_linear_quantize",
    "zero_point_linear_quantize",
    "linear_quantize",
    "logarithmic_quantize",
)

# Only so many mistakes get a suggestion.
MISSPELT = 20

T = TypeVar("T")


def read_quantization(
    source: Source, graph: Graph, library: Library | None = None
) -> dict[str, Quantization]:
    """The quantization info for the tensors of a graph, checked.

    Args:
        source: the text.
        graph: the graph that it belongs to.
        library: the operations that are known; the standard's, if not given.

    Returns:
        The entries by the name of the tensor, in the order of the graph's tensors.

    Raises:
        NnefSyntaxError: the text is no file of quantization info.
        InvalidGraphError: entries do not fit the graph or their operation; the error
            names all that is wrong with them.
    """
    reader = _Reader(graph, library if library is not None else standard())
    for entry in parse_quantization(source):
        reader.read(entry)
    if reader.problems:
        raise InvalidGraphError.collect(sorted(reader.problems, key=Problem.position))
    return carry_quantization(reader.entries, graph)


class _Subject(NamedTuple):
    """The tensor of an entry."""

    name: str
    dtype: str
    shape: Shape


class _Reader:
    """Checks entries, and goes on after an error to find all of them."""

    def __init__(self, graph: Graph, library: Library) -> None:
        self.graph = graph
        self.tensors = graph.tensors
        self.library = library
        own = [name for name in library if name not in standard()]
        self.quantizing = [*OPERATIONS, *(n for n in own if _may_quantize(library[n]))]
        self.seen: dict[str, Span] = {}
        self.entries: dict[str, Quantization] = {}
        self.problems: list[Problem] = []

    def read(self, entry: syntax.Quantization) -> None:
        known, invocation = len(self.problems), entry.operation
        tensor = self._attempt(self._tensor, entry)
        operation = self._attempt(self._operation, invocation)
        if operation is None:
            return
        if tensor is not None:
            self._attempt(_check_dtype, operation, tensor, entry.span)
        given = self._arguments(operation, invocation, tensor)
        first, *others = operation.parameters
        # A misspelt one would be reported as missing, too.
        if len(given) == len(invocation.arguments):
            present = {first.name, *given}
            self._attempt(refuse_missing, operation, present, invocation.span)
        if tensor is None or len(self.problems) > known:
            return
        values = {**operation.defaults, **given}
        attributes = {p.name: values[p.name] for p in others}
        self._attempt(_check_attributes, operation, attributes, tensor, invocation.span)
        name = tensor.name
        self.entries[name] = Quantization(name, operation, attributes, entry.span)

    def _attempt(self, check: Callable[..., T], *arguments: Any) -> T | None:
        """The result of a check; None if it fails, and the problems are kept."""
        try:
            return check(*arguments)
        except NnefGradError as error:
            self.problems += error.problems
            return None

    def _tensor(self, entry: syntax.Quantization) -> _Subject:
        name = entry.tensor
        first = self.seen.setdefault(name, entry.span)
        if first is not entry.span:
            message = f"'{name}' has its quantization already, in line {first.line}"
        elif name not in self.tensors:
            message = f"the graph has no tensor '{name}'{self._advice(name)}"
        else:
            tensor = self.tensors[name]
            return _Subject(name, tensor.dtype, tensor.shape)
        raise InvalidGraphError(message, entry.span)

    def _advice(self, name: str) -> str:
        # With more mistakes the file belongs to another model, and the search takes long.
        known = list(self.tensors) if len(self.problems) < MISSPELT else []
        return advice_on(self.graph, name, known)

    def _operation(self, invocation: syntax.Invocation) -> Fragment:
        name = invocation.name
        if name not in self.library:
            near = suggestion(name, self.quantizing)
            message = f"there is no operation '{name}'{near}"
        elif name not in self.quantizing:
            known = ", ".join(self.quantizing)
            message = f"'{name}' does not quantize; the operations that do: {known}"
        elif invocation.dtype is not None:
            message = f"'{name}' takes no data type here"
        else:
            return self.library[name]
        raise InvalidGraphError(message, invocation.span)

    def _arguments(
        self,
        operation: Fragment,
        invocation: syntax.Invocation,
        tensor: _Subject | None,
    ) -> dict[str, Value]:
        """The values of the parameters that are given; an empty one where it is wrong."""
        given: dict[str, Value] = {}
        columns = zip(invocation.arguments, invocation.values, strict=True)
        for position, (argument, expression) in enumerate(columns):
            parameter = self._attempt(_parameter, operation, argument, position, given)
            if parameter is not None:
                what = f"argument '{parameter.name}' of '{operation.name}'"
                value = self._attempt(_value, what, parameter.type, expression, tensor)
                given[parameter.name] = () if value is None else value
        return given


def _may_quantize(operation: Fragment) -> bool:
    """Whether its first parameter and its only result are tensors."""
    if len(operation.results) != 1 or not operation.parameters:
        return False
    ends = operation.parameters[0].type, operation.results[0].type
    return all(isinstance(type_, TensorType) for type_ in ends)


def _check_dtype(operation: Fragment, tensor: _Subject, span: Span) -> None:
    type_ = operation.parameters[0].type
    assert isinstance(type_, TensorType)
    if not _admits(type_, tensor.dtype):
        message = f"'{operation.name}' wants {type_}, and '{tensor.name}' is tensor<{tensor.dtype}>"
        raise InvalidGraphError(message, span)


def _admits(type_: Primitive | TensorType, dtype: str) -> bool:
    return types.dtype_of(type_) in (None, types.GENERIC, dtype)


def _check_attributes(
    operation: Fragment, attributes: Mapping[str, Value], tensor: _Subject, span: Span
) -> None:
    """Checks the attributes by the shape function of the operation."""
    if operation.name not in OPERATIONS:
        return
    shapes = {p.name: _shape_of(attributes[p.name]) for p in operation.operands[1:]}
    try:
        SHAPES[operation.name](tensor.shape, **{**attributes, **shapes})
    except ShapeError as error:
        raise InvalidGraphError(f"{operation.name}: {error}", span) from None


def _shape_of(value: Value) -> Shape:
    return (len(value), *_shape_of(value[0])) if isinstance(value, tuple) else ()


# ---- Arguments ----


def _parameter(
    operation: Fragment,
    argument: syntax.Argument,
    position: int,
    given: Collection[str],
) -> Parameter:
    """The parameter that an argument is for."""
    name = argument.name if isinstance(argument, syntax.Keyword) else None
    known = {p.name: p for p in operation.parameters[1:]}
    if name is None:
        wanted = list(known)[position:]
        advice = f": write {wanted[0]} = {argument.span.text}" if wanted else ""
        message = f"an argument needs its keyword here{advice}"
    elif name == operation.parameters[0].name:
        message = f"'{name}' of '{operation.name}' is the tensor itself: leave it out"
    elif name not in known:
        near = suggestion(name, list(known)) or f"; it has {', '.join(known)}"
        message = f"'{operation.name}' has no parameter '{name}'{near}"
    elif name in given:
        message = f"argument '{name}' of '{operation.name}' is given twice"
    else:
        return known[name]
    raise InvalidGraphError(message, argument.span)


def _value(
    what: str, type_: Type, expression: syntax.Expression, tensor: _Subject | None
) -> Value:
    if not isinstance(type_, TensorType):
        return _attribute(what, type_, expression)
    shape, items = _flattened(what, expression)
    values = [_attribute(what, type_, item) for item in items]
    if tensor is not None and not fits_into(shape, tensor.shape):
        message = (
            f"{what} has shape {list(shape)}, which cannot be broadcast"
            f" to '{tensor.name}' of shape {list(tensor.shape)}"
        )
        raise InvalidGraphError(message, expression.span)
    return _nested(values, shape)


def _attribute(what: str, type_: Type, expression: syntax.Expression) -> Value:
    """The value of a literal, an array or a tuple of a type."""
    match type_, expression:
        case ArrayType(item), syntax.Array(items):
            return tuple(_attribute(what, item, part) for part in items)
        case TupleType(parts), syntax.Tuple(items) if len(parts) == len(items):
            pairs = zip(parts, items, strict=True)
            return tuple(_attribute(what, *pair) for pair in pairs)
        case Primitive() | TensorType(), syntax.Literal():
            return _literal(what, type_, expression)
    message = f"{what} wants {type_}, got {_kind(expression)}"
    raise InvalidGraphError(message, expression.span)


def _literal(
    what: str, type_: Primitive | TensorType, literal: syntax.Literal
) -> Value:
    value, dtype = literal.value, dtype_of(literal.value)
    if not _admits(type_, dtype):
        is_integral = dtype == "integer" and types.dtype_of(type_) == "scalar"
        advice = f": write {float(value)}" if is_integral else ""
        message = f"{what} wants {type_}, got {dtype}{advice}"
        raise InvalidGraphError(message, literal.span)
    if not isinstance(value, str) and not _is_written_alike(value):
        raise InvalidGraphError(f"{what} is out of range", literal.span)
    return value


def _is_written_alike(value: float) -> bool:
    """Whether other readers get the same number."""
    return isfinite(value) if isinstance(value, float) else value <= types.MAX_INTEGER


def _kind(expression: syntax.Expression) -> str:
    if isinstance(expression, syntax.Literal):
        return dtype_of(expression.value)
    kinds = {syntax.Array: "an array", syntax.Tuple: "a tuple"}
    return kinds.get(type(expression), "what is no literal")


def _flattened(
    what: str, expression: syntax.Expression
) -> tuple[Shape, list[syntax.Expression]]:
    """The shape and the items of a constant tensor that is written as nested arrays."""
    shape: Shape = ()
    items = [expression]
    while any(isinstance(item, syntax.Array) for item in items):
        arrays = [item.items for item in items if isinstance(item, syntax.Array)]
        if len(arrays) < len(items) or len({len(array) for array in arrays}) > 1:
            message = f"{what} is no tensor: its arrays differ in length or depth"
            raise InvalidGraphError(message, expression.span)
        if not arrays[0]:
            raise InvalidGraphError(f"{what} is an empty array", expression.span)
        shape = (*shape, len(arrays[0]))
        items = [item for array in arrays for item in array]
    return shape, items


def _nested(values: Sequence[Value], shape: Shape) -> Value:
    for extent in reversed(shape):
        rows = range(0, len(values), extent)
        values = [tuple(values[row : row + extent]) for row in rows]
    return values[0]
