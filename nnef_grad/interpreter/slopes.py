"""Where gradients are checked: the point, and lines through it. Evaluation is in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import UsageError
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.interpreter.execution import Feeds, collect_feeds, step
from nnef_grad.interpreter.random_values import between, normal, random_values
from nnef_grad.language.labels import label_key

# Distributions to try in order, until the outputs are finite.
_ATTEMPTS = (normal, between(0.5, 1.5), between(0.1, 0.9))


def point_of(
    graph: Graph, inputs: Feeds, variables: Feeds, seed: int, rules: Rules
) -> dict[Tensor, Array]:
    """All tensors at the given values of inputs and variables, random ones for the rest."""
    labelled = {label_key(name): np.asarray(data) for name, data in variables.items()}
    for draw in _ATTEMPTS:
        drawn = random_values(graph, seed, draw)
        fed = {**drawn.inputs, **inputs}, {**drawn.variables, **labelled}
        tensors, own = collect_feeds(graph, *fed), rules.evaluations
        for operation in graph.operations:
            tensors.update(step(operation, tensors, operations=own, names=graph.names))
        outputs = (tensors[t] for t in graph.outputs)
        if all(np.isfinite(a).all() for a in outputs if a.dtype.kind == "f"):
            return tensors
    message = f"the outputs of '{graph.name}' are not finite at random values"
    raise UsageError(f"{message}: give values at which they are")


@dataclass(frozen=True)
class Line:
    """A line that a tensor moves along; steps are relative to its elements' size."""

    tensor: Tensor
    value: Array
    # In single precision to save memory.
    direction: Array
    scale: float

    def at(self, step_: float) -> Array:
        """The value, moved."""
        factor = np.float64(step_ * self.scale)
        moved = np.asarray(np.multiply(self.direction, factor, dtype=np.float64))
        moved += self.value
        return moved

    def slope(self, gradient: Array) -> float:
        """The slope that a gradient predicts, without an array of the products."""
        axes = list(range(gradient.ndim))
        product = np.einsum(gradient, axes, self.direction, axes, [])
        return self.scale * float(product)
