"""A graph as a function around one point: the slopes of a weighted sum of its outputs.

Evaluation is in float64. Every decision of the graph is held as it is at the point: see
held.py. Nothing here depends on gradients.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import UsageError
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.interpreter.execution import Feeds, Operations, collect_feeds, step
from nnef_grad.interpreter.held import can_move, hold
from nnef_grad.interpreter.random_values import between, normal, random_values
from nnef_grad.ops.costs import last_uses

# The rounding error of an evaluation, in units of the last place.
ROUNDINGS = 64

# ---- The point ----

# Distributions to try in order, until the outputs are finite.
_ATTEMPTS = (normal, between(0.5, 1.5), between(0.1, 0.9))


def point_of(
    graph: Graph, inputs: Feeds, variables: Feeds, seed: int, rules: Rules
) -> dict[Tensor, Array]:
    """All tensors at the given values of inputs and variables, random ones for the rest."""
    labelled = {name.lower(): np.asarray(data) for name, data in variables.items()}
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


# ---- The slope along a direction ----


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


class Forward:
    """The weighted sum of a graph's outputs around a point, with decisions held."""

    def __init__(
        self,
        graph: Graph,
        point: dict[Tensor, Array],
        weights: Mapping[Tensor, Array],
        stopped: Collection[Tensor],
        evaluations: Operations,
    ) -> None:
        self.base = point
        self.weights = weights
        self.stopped = stopped
        self.evaluations = evaluations
        self.names = graph.names
        self.operations = [*zip(graph.operations, last_uses(graph), strict=True)]
        self.held: dict[Operation, Operations] = {}
        squares = (np.square(w * self.base[t]) for t, w in weights.items())
        size = sum(float(np.sum(square)) for square in squares) ** 0.5
        self.rounding = ROUNDINGS * float(np.finfo(np.float64).eps) * size

    def difference(self, line: Line, step_: float) -> float:
        """The change of the sum along a line, up to some `rounding`."""
        # Outside the domain of a function, differences are not numbers.
        with np.errstate(all="ignore"):
            moved = self._outputs(line.tensor, line.at(step_))
            changes = (w * (moved[t] - self.base[t]) for t, w in self.weights.items())
            return sum(float(np.sum(change)) for change in changes)

    def _outputs(self, tensor: Tensor, value: Array) -> dict[Tensor, Array]:
        """The outputs for another value of a tensor: its dependents are computed."""
        moved = {tensor: value}
        tensors = ChainMap(moved, self.base)
        fixed = {tensor, *self.stopped}
        for operation, dead in self.operations:
            if any(t in moved for t in operation.inputs):
                moving = [t for t in operation.outputs if can_move(operation, t)]
                results = self._results(operation, tensors) if moving else {}
                moved.update((t, results[t]) for t in moving if t not in fixed)
            for past in dead.difference(self.weights):
                moved.pop(past, None)
        return {output: tensors[output] for output in self.weights}

    def _results(
        self, operation: Operation, tensors: Mapping[Tensor, Array]
    ) -> dict[Tensor, Array]:
        """The results with decisions held; the user's own evaluation is kept."""
        if operation not in self.held:
            self.held[operation] = hold(operation, self.base, self.evaluations)
        held = self.held[operation]
        return step(operation, tensors, operations=held, names=self.names)
