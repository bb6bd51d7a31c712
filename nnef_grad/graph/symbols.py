"""Graphs whose extents have symbols (extents.py), and the numbers of these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from nnef_grad.base.errors import InvalidGraphError, NnefGradError, UsageError
from nnef_grad.graph.atoms import LONGEST_AXIS
from nnef_grad.graph.bounds import examples, unmet
from nnef_grad.graph.extents import (
    Dimension,
    Extent,
    OpenExtentError,
    has_symbols,
    multiple,
    symbols_in,
    symbols_of,
)
from nnef_grad.graph.ir import Graph, Operation, Shape, Tensor
from nnef_grad.graph.loops import Loop
from nnef_grad.graph.rewriting import sweep, with_tensors
from nnef_grad.language.identifiers import spelled


def symbols(graph: Graph) -> list[str]:
    """The names of the symbols of a graph, sorted. All are in the shapes of its inputs."""
    return symbols_of(tuple(tensor.shape for tensor in graph.inputs))


def example_sizes(graph: Graph) -> dict[str, int]:
    """A number for each symbol of a graph, to begin with."""
    shapes = [tensor.shape for tensor in graph.inputs]
    return examples(shapes, symbols_of(tuple(shape[:1] for shape in shapes)))


def conditions(graph: Graph) -> list[str]:
    """The least and greatest numbers of the symbols of a graph, as comparisons."""
    shapes = tuple(tensor.shape for tensor in graph.inputs)
    own = sorted({*symbols_in(shapes)}, key=str)
    # tract reads no others there.
    told = [s for s in own if _ASSERTED.fullmatch(s.name)]
    least = [f"{s.name}>={s.least}" for s in told if s.least > 1]
    return [*least, *(f"{s.name}<={s.most}" for s in told if s.most < LONGEST_AXIS - 1)]


_ASSERTED = re.compile(r"[A-Za-z_](?:[A-Za-z0-9_.]|/[A-Za-z]+)*")


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
    for known in {s.known for s in symbols_in(tuple(x.shape for x in graph.inputs))}:
        if message := unmet(known, numbers):
            raise InvalidGraphError(f"the network does not take these sizes: {message}")
    try:
        return _with_numbers(graph, numbers)
    except InvalidGraphError as error:
        sizes = ", ".join(f"{name} = {n}" for name, n in numbers.items())
        message = f"the network does not take {sizes}: {error.message}"
        raise InvalidGraphError(message, error.span, remedy="symbol") from None


def _with_numbers(graph: Graph, numbers: Mapping[str, int]) -> Graph:
    """A graph, or the body of a loop: a symbol of it may be in none of its inputs."""

    def known(op: Operation) -> Operation:
        settings = op.settings
        if op.name == "slice" and {*settings["stride"]} <= {1}:
            settings = _without_end_of_0(op, numbers)
        operands, attributes = substituted((op.operands, settings), numbers)
        return replace(op, operands=operands, attributes=attributes)

    graph = sweep(graph, known)
    tensors = {
        tensor: Tensor(tensor.dtype, substituted(tensor.shape, numbers))
        for op in graph.operations
        for tensor in op.outputs
        if has_symbols(tensor.shape)
    }
    return with_tensors(graph, tensors)


def _without_end_of_0(
    operation: Operation, numbers: Mapping[str, int]
) -> Mapping[str, Any]:
    """The settings of a slice without steps, whose end of 0 by symbols ends what is empty."""
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
    """The numbers of symbols that are extents of inputs, which have these shapes; or else of
    symbols of which an extent is a multiple and a number more.
    """
    pairs = [
        pair
        for name, tensor in zip(graph.input_names, graph.inputs, strict=True)
        if len(shape := shapes.get(name, ())) == tensor.rank
        for pair in zip(tensor.shape, shape, strict=True)
    ]
    alone = _solved(
        (n, m) for n, m in pairs if list(map(spelled, symbols_of(n))) == [str(n)]
    )
    others = ((n, m) for n, m in pairs if {*symbols_of(n)}.isdisjoint(alone))
    return alone | _solved(others)


def _solved(pairs: Iterable[tuple[Dimension, Dimension]]) -> dict[str, int]:
    """The number of each symbol of which extents with some numbers are multiples."""
    numbers: dict[str, int] = {}
    for extent, number in pairs:
        for symbol, factor, more in multiple(extent):
            count, rest = divmod((number - more) * symbol.step, factor)
            if rest:
                raise UsageError(f"the extent '{extent}' cannot be {number}")
            own, name = count + symbol.rest, symbol.name
            if numbers.setdefault(name, own) != own:
                both = f"{numbers[name]} and {own}"
                raise UsageError(f"'{name}' is both {both} in the shapes of the inputs")
    return numbers
