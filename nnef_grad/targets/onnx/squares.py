"""Square matrices, and filters with as many channels in as out, that are read in several ways.
OpenVINO 2026.4 takes the one that it has rearranged for a product or a convolution for that of
the transposed one: each way gets a matrix of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nnef_grad.base.arrays import Array

# What is computed of an initializer before it is read, and computed once by the engine.
_MAKING = ("Cast", "Transpose")


def is_square(shape: Sequence[int]) -> bool:
    """Whether its last two axes have the same extent, or the first two, as filters have."""
    return len(shape) > 1 and (shape[-1] == shape[-2] or shape[0] == shape[1])


class SquareCopies:
    """The nodes of a model, with a matrix of its own for each way in which one is read.

    Attributes:
        nodes: the nodes, in order.
        copies: the names of further initializers, with those of what they are copies of.
    """

    def __init__(
        self, nodes: Iterable[Any], shapes: Mapping[str, Sequence[int]]
    ) -> None:
        self.nodes: list[Any] = []
        self.copies: list[tuple[str, str]] = []
        self._stored = {name for name, shape in shapes.items() if is_square(shape)}
        self._makers: dict[str, Any] = {}
        self._ways: dict[str, dict[object, str]] = {}
        for node in nodes:
            self._add(node)

    def _add(self, node: Any) -> None:
        if node.op_type in _MAKING and self._is_square(node.input[0]):
            self._makers[node.output[0]] = node
        else:
            for place, name in enumerate(node.input):
                if self._is_square(name):
                    way = node.op_type, place, *map(str, node.attribute)
                    node.input[place] = self._read(name, way)
        self.nodes.append(node)

    def _is_square(self, name: str) -> bool:
        return name in self._stored or name in self._makers

    def _read(self, name: str, way: object) -> str:
        """The name under which a node reads a matrix in some way."""
        ways = self._ways.setdefault(name, {})
        if way not in ways:
            ways[way] = self._copied(name) if ways else name
        return ways[way]

    def _copied(self, name: str) -> str:
        """The name of a copy of a matrix, and of what it is made of."""
        copy = f"{name}/{len(self.copies) + 1}"
        if name in self._stored:
            self.copies.append((copy, name))
            return copy
        maker = self._makers[name]
        again = type(maker)()
        again.CopyFrom(maker)
        again.input[0], again.output[0] = self._copied(maker.input[0]), copy
        again.name = copy
        self.nodes.append(again)
        return copy


def with_separated(model: Any, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays of a model, which lets its nodes read matrices of their own: here is a copy
    for each further way to read one, or in the model, where the matrix is.
    """
    graph = model.graph
    small = {x.name: x for x in graph.initializer}
    shapes = {name: x.dims for name, x in small.items()}
    shapes |= {name: array.shape for name, array in arrays.items()}
    found = SquareCopies(graph.node, shapes)
    if not found.copies:
        return {**arrays}
    del graph.node[:]
    graph.node.extend(found.nodes)
    for copy, name in found.copies:
        if name in small:
            made = graph.initializer.add()
            made.CopyFrom(small[name])
            made.name = copy
    large = ((copy, name) for copy, name in found.copies if name in arrays)
    return {**arrays, **{copy: arrays[name] for copy, name in large}}
