"""PyTorch modules: their graphs, with what torch calls each parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.graph.extents import Extent
from nnef_grad.graph.ir import Graph, Shape

# How arrays are drawn, with the parameters of each distribution as torch has them.
_DRAWS: Mapping[str, Callable[..., Any]] = {
    "kept": lambda random, n, share, value: (random.random(n) < share) * value,
    "uniform": lambda random, n, low, high: low + (high - low) * _unit(random, n),
    "normal": lambda random, n, mean, std: random.normal(mean, std, n),
    "log_normal": lambda random, n, mean, std: random.lognormal(mean, std, n),
    "cauchy": lambda random, n, median, sigma: (
        median + sigma * random.standard_cauchy(n)
    ),
    "exponential": lambda random, n, rate: random.exponential(1.0 / rate, n),
    "geometric": lambda random, n, p: random.geometric(p, n),
    "integers": lambda random, n, low, high: random.integers(low, high, n),
    "permutation": lambda random, n: random.permutation(*n),
}
_DTYPES = {"scalar": np.float32, "integer": np.int64, "logical": np.bool_}


def _unit(random: np.random.Generator, shape: Sequence[int]) -> Array:
    """From 0 to 1, without 1 in single precision either."""
    return random.random(shape, np.float32)


class Drawn(NamedTuple):
    """An input that stands for random numbers, such as what dropout keeps.

    Attributes:
        shape: the shape of the input.
        distribution: `kept` for one value for a share of the elements, and 0 for others;
            `uniform`, `normal`, `log_normal`, `cauchy`, `exponential`, `geometric`,
            `integers` (without the end), or `permutation`.
        parameters: of the distribution, in the order of torch; for `kept` the share and
            the value.
        dtype: the data type of the input.
    """

    shape: Shape
    distribution: str
    parameters: tuple[Any, ...] = ()
    dtype: str = "scalar"

    def draw(
        self, random: np.random.Generator, extents: Mapping[str, int] | None = None
    ) -> Array:
        """Other numbers at every call, for some numbers of the symbols in the shape."""
        shape, parameters = (
            [n.at(extents or {}) if isinstance(n, Extent) else n for n in given]
            for given in (self.shape, self.parameters)
        )
        values = _DRAWS[self.distribution](random, shape, *parameters)
        return np.asarray(values, _DTYPES[self.dtype])


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
