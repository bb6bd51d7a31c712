"""Models from ONNX files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from nnef_grad.base.arrays import Array
from nnef_grad.base.frozen import FrozenDict
from nnef_grad.graph.ir import Graph, Shape

if TYPE_CHECKING:
    from nnef_grad.autodiff.backward import Backward

# The metadata that says which initializers of a file are constants.
FIXED = "nnef_grad.constants"


class InFile(NamedTuple):
    """How tensors of a graph appear in an ONNX file, where that is another way.

    Attributes:
        names: what they are called there, by their names in the graph.
        shapes: the shapes that variables have there, by the same names.
        types: the data types that they have there, where the file says so, as numbers of
            `onnx.TensorProto`, by the same names.
        found: the names in the graph of all tensors of the file, by their names there; empty
            for one that is not in the graph, or not once: it follows from constants, no
            output depends on it, or a loop repeats it.
    """

    names: Mapping[str, str] = FrozenDict()
    shapes: Mapping[str, Shape] = FrozenDict()
    types: Mapping[str, int] = FrozenDict()
    found: Mapping[str, str] = FrozenDict()

    def after(self, name: str, other: str) -> str:
        """The name there of a tensor called after another one, such as its gradient."""
        if name not in self.names or not other.endswith(name):
            return other
        return other.removesuffix(name) + self.names[name]

    def shapes_of_gradients(self, backward: Backward) -> dict[str, Shape]:
        """The shapes there of gradients, by the names of what they are of: after an axis of
        examples where there is one for each.
        """
        tensors, named = backward.graph.tensors, backward.gradients.items()
        leading = int(backward.per_example)
        return {
            name: (*tensors[gradient].shape[:leading], *self.shapes[name])
            for name, gradient in (named if backward.is_like_operands else ())
            if name in self.shapes
        }


@dataclass(frozen=True)
class Model:
    """A model from an ONNX file: `graph, data = from_onnx(path)`.

    Attributes:
        graph: the graph.
        data: the data of its variables, by label.
        in_file: how its tensors appear in the file.
    """

    graph: Graph
    data: dict[str, Array]
    in_file: InFile

    def __iter__(self) -> Iterator[Any]:
        return iter((self.graph, self.data))
