"""Graphs whose extents have symbols (extents.py), and the numbers of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from nnef_grad.base.errors import InvalidGraphError, NnefGradError, UsageError
from nnef_grad.graph.extents import (
    Extent,
    OpenExtentError,
    has_symbols,
    nominal,
    symbol,
    symbols_of,
)
from nnef_grad.graph.ir import Graph, Operation, Shape, Tensor
from nnef_grad.graph.loops import Loop
from nnef_grad.graph.names import with_tensors


def symbols(graph: Graph) -> list[str]:
    """The names of the symbols of a graph, sorted. All are in the shapes of its inputs."""
    return symbols_of(tuple(tensor.shape for tensor in graph.inputs))


def refuse_symbols(
    graph: Graph, what: str, kind: type[NnefGradError] = InvalidGraphError
) -> None:
    """Raises an error at an input with an open extent; `what` needs its number."""
    for operation in graph.operations if symbols(graph) else ():
        if operation.name == "external" and has_symbols(operation.outputs[0].shape):
            (name, *_) = symbols_of(operation.outputs[0].shape)
            message = f"{what} the extent '{name}', which has no number"
            raise kind(message, operation.span, remedy="symbol")


@contextmanager
def number_needed_by(operation: Operation) -> Iterator[None]:
    """Names the operation in errors of extents that need a number, raised inside."""
    try:
        yield
    except OpenExtentError as error:
        raise error.of(operation.name, operation.place) from None


def with_numbers(graph: Graph, numbers: Mapping[str, int]) -> Graph:
    """The graph with numbers in the place of some of its symbols."""
    if {*symbols(graph)}.isdisjoint(numbers):
        return graph
    return _with_numbers(graph, numbers)


def _with_numbers(graph: Graph, numbers: Mapping[str, int]) -> Graph:
    """A graph, or the body of a loop: a symbol of it may be in none of its inputs."""
    operations = []
    for op in graph.operations:
        settings = _without_end_of_0(op, numbers) if op.name == "slice" else op.settings
        operands, attributes = substituted((op.operands, settings), numbers)
        operations.append(replace(op, operands=operands, attributes=attributes))
    tensors = {
        tensor: Tensor(tensor.dtype, substituted(tensor.shape, numbers))
        for op in operations
        for tensor in op.outputs
        if has_symbols(tensor.shape)
    }
    return with_tensors(replace(graph, operations=tuple(operations)), tensors)


def _without_end_of_0(
    operation: Operation, numbers: Mapping[str, int]
) -> Mapping[str, Any]:
    """The settings of a slice, whose end of 0 by symbols ends what is empty."""
    settings, (x,) = operation.settings, operation.inputs
    window = (settings[name] for name in ("axes", "begin", "end"))
    pairs = [
        (x.shape[axis],) * 2 if substituted(end, numbers) == 0 != end else (begin, end)
        for axis, begin, end in zip(*window, strict=True)
    ]
    begin, end = zip(*pairs, strict=True) if pairs else ((), ())
    return {**settings, "begin": begin, "end": end}


def substituted(value: Any, numbers: Mapping[str, int]) -> Any:
    """A value with numbers in the place of some of the symbols in it."""
    if isinstance(value, Extent):
        return value.at(numbers)
    if isinstance(value, Loop):
        return replace(value, body=_with_numbers(value.body, numbers))
    if isinstance(value, tuple):
        return tuple([substituted(item, numbers) for item in value])
    if isinstance(value, Mapping):
        return {name: substituted(item, numbers) for name, item in value.items()}
    return value


def numbers_of(graph: Graph, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """The numbers of symbols that are extents of inputs, which have these shapes."""
    numbers: dict[str, int] = {}
    for name, tensor in zip(graph.input_names, graph.inputs, strict=True):
        shape = shapes.get(name, ())
        if len(shape) != tensor.rank:
            continue
        for extent, number in zip(tensor.shape, shape, strict=True):
            word = str(extent)
            is_symbol = symbols_of(extent) == [word]
            if is_symbol and numbers.setdefault(word, number) != number:
                both = f"{numbers[word]} and {number}"
                raise UsageError(f"'{word}' is both {both} in the shapes of the inputs")
    return numbers


def at_numbers(graph: Graph, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """A number for each symbol: of inputs of these shapes, or else a usual one."""
    usual = {name: nominal(symbol(name)) for name in symbols(graph)}
    return usual | numbers_of(graph, shapes)
