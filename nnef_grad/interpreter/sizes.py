"""Numbers for the open extents of a graph that is evaluated at a point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

from nnef_grad.base.errors import InvalidGraphError
from nnef_grad.graph.atoms import Quotient, Symbol
from nnef_grad.graph.bounds import all_near
from nnef_grad.graph.extents import (
    Dimension,
    Extent,
    atoms_in,
    lone,
    lone_atom,
    symbols_in,
)
from nnef_grad.graph.ir import Graph, Operation, Shape
from nnef_grad.graph.symbols import numbers_of
from nnef_grad.ops.traits import BROADCASTING

# Pyramids of several levels take multiples of a power of two alone.
_USUAL = 8, 16, 32, 64, 128


def at_numbers(graph: Graph, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """A number for each symbol: of inputs of these shapes, or else the first usual one for
    which operands of all shapes fit together.
    """
    own = [*symbols_in(tuple(tensor.shape for tensor in graph.inputs))]
    given = _met(graph) | numbers_of(graph, shapes)

    def around(number: int) -> dict[str, int]:
        return all_near(own, lambda _: number, given)

    exact = _exact_quotients(graph)
    # Sizes of which several together are a multiple of an odd number.
    odd = (q.by for q in exact if isinstance(q.by, int))
    tried = [*map(around, [*_USUAL, *odd])]
    return next((n for n in tried if _divides(exact, n) and _fits(graph, n)), tried[0])


def _met(graph: Graph) -> dict[str, int]:
    """The numbers that symbols meet in operands of one operation: they are these, or 1."""
    return {
        atom.name: number
        for op in _between(graph)
        for axis in _axes(op)
        for number in axis
        if isinstance(number, int) and number > 1
        for extent in axis
        for atom in lone_atom(extent)
        if isinstance(atom, Symbol)
    }


def _exact_quotients(graph: Graph) -> list[Quotient]:
    shapes = tuple(tensor.shape for tensor in graph.tensors.values())
    quotients = (atom for atom in atoms_in(shapes) if isinstance(atom, Quotient))
    return [*dict.fromkeys(q for q in quotients if q.is_exact)]


def _divides(exact: Iterable[Quotient], numbers: Mapping[str, int]) -> bool:
    try:
        return all(lone(quotient).at(numbers) is not None for quotient in exact)
    except InvalidGraphError:
        return False


def _fits(graph: Graph, numbers: Mapping[str, int]) -> bool:
    along = (axis for op in _between(graph) for axis in _axes(op))
    return all(len({_at(n, numbers) for n in axis} - {1}) < 2 for axis in along)


def _between(graph: Graph) -> Iterator[Operation]:
    return (op for op in graph.operations if op.name in BROADCASTING)


def _axes(operation: Operation) -> Iterator[tuple[Dimension, ...]]:
    shapes = (tensor.shape for tensor in operation.inputs)
    return zip_longest(*shapes, fillvalue=1)


def _at(extent: Dimension, numbers: Mapping[str, int]) -> Dimension:
    return extent.at(numbers) if isinstance(extent, Extent) else extent
