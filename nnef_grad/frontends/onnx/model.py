"""Models from ONNX files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from nnef_grad.base.arrays import Array
from nnef_grad.base.frozen import FrozenDict
from nnef_grad.graph.ir import Graph, Shape

# The metadata that says which initializers of a file are constants.
FIXED = "nnef_grad.constants"


class InFile(NamedTuple):
    """How tensors of a graph appear in an ONNX file, where that is another way.

    Attributes:
        names: what they are called there, by their names in the graph.
        shapes: the shapes that they have there, by the same names.
    """

    names: Mapping[str, str] = FrozenDict()
    shapes: Mapping[str, Shape] = FrozenDict()


@dataclass(frozen=True)
class Model:
    """A model from an ONNX file: `graph, data = from_onnx(path)`.

    Attributes:
        graph: the graph.
        data: the data of its variables, by label.
        in_file: how its inputs, outputs and variables appear in the file.
    """

    graph: Graph
    data: dict[str, Array]
    in_file: InFile

    def __iter__(self) -> Iterator[Any]:
        return iter((self.graph, self.data))
