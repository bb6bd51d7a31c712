"""Numbers for the open extents of a graph that is evaluated at a point."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from nnef_grad.base.errors import InvalidGraphError
from nnef_grad.graph.bounds import all_near
from nnef_grad.graph.extents import Dimension, Extent, symbols_in
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
    given = numbers_of(graph, shapes)

    def around(number: int) -> dict[str, int]:
        return all_near(own, lambda _: number, given)

    tried = [*map(around, _USUAL)]
    return next((numbers for numbers in tried if _fits(graph, numbers)), tried[0])


def _fits(graph: Graph, numbers: Mapping[str, int]) -> bool:
    between = (op for op in graph.operations if op.name in BROADCASTING)
    try:
        return all(_is_defined(op, numbers) for op in between)
    except InvalidGraphError:
        # A quotient of several symbols has a rest.
        return False


def _is_defined(operation: Operation, numbers: Mapping[str, int]) -> bool:
    shapes = (tensor.shape for tensor in operation.inputs)
    along = zip_longest(*shapes, fillvalue=1)
    return all(len({_at(n, numbers) for n in axis} - {1}) < 2 for axis in along)


def _at(extent: Dimension, numbers: Mapping[str, int]) -> Dimension:
    return extent.at(numbers) if isinstance(extent, Extent) else extent
