"""PyTorch modules: their graphs, with what torch calls each parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.graph.extents import Extent
from nnef_grad.graph.ir import Graph, Shape


class Drawn(NamedTuple):
    """An input that stands for random numbers: what dropout keeps.

    Attributes:
        shape: the shape of the input.
        kept: the share of elements that are kept.
        value: what these are; others are 0.
    """

    shape: Shape
    kept: float
    value: float

    def draw(
        self, random: np.random.Generator, extents: Mapping[str, int] | None = None
    ) -> Array:
        """Other numbers at every call, for some numbers of the symbols in the shape."""
        given: Sequence[Any] = self.shape
        shape = [n.at(extents or {}) if isinstance(n, Extent) else n for n in given]
        keeps = random.random(shape) < self.kept
        return np.where(keeps, np.float32(self.value), np.float32(0.0))


@dataclass(frozen=True)
class TorchModel:
    """The graph of a PyTorch module.

    Attributes:
        graph: the graph.
        data: the values of its variables, by label.
        parameters: the variable of each parameter, by its name in torch. A parameter that
            no output depends on has none.
        buffers: the same for buffers.
        trainable: the names of the variables of parameters that require gradients.
        shapes: the shapes of parameters and buffers in torch, by their names there; a
            variable may have additional axes of extent 1.
        places: the place of each input among the tensors in the arguments of the module.
        updates: the output with the new value of each changed buffer, by its name in
            torch.
        random: the inputs that stand for random numbers, by name.
    """

    graph: Graph
    data: dict[str, Array]
    parameters: dict[str, str]
    buffers: dict[str, str]
    trainable: tuple[str, ...]
    shapes: Mapping[str, Shape] = field(repr=False)
    places: Mapping[str, int] = field(default_factory=dict)
    updates: Mapping[str, str] = field(default_factory=dict)
    random: Mapping[str, Drawn] = field(default_factory=dict)

    def gradients_to_torch(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        """The gradients of parameters by their names in torch, in torch's shapes.

        Args:
            gradients: by the names of variables; those of anything else are left out.
        """
        return {
            name: np.asarray(gradients[variable]).reshape(self.shapes[name])
            for name, variable in self.parameters.items()
            if variable in gradients
        }

    def draw(
        self,
        random: np.random.Generator | None = None,
        extents: Mapping[str, int] | None = None,
    ) -> dict[str, Array]:
        """Values for the inputs that stand for random numbers, by name.

        Args:
            random: where they are drawn from.
            extents: the numbers of the symbols that shapes have.
        """
        generator = random or np.random.default_rng()
        return {n: drawn.draw(generator, extents) for n, drawn in self.random.items()}
