"""Checks gradients numerically: each against central differences of the forward graph.

For a gradient g of the weighted sum L of the outputs with respect to a tensor t, and a
random direction v, the product <g, v> must be the slope of L(t + h v) at h = 0. Both
graphs are evaluated in float64. Where the derivative is a choice it follows what the
rules say: what is stopped is a constant, and rounding inside a quantization is an offset
that does not move.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnef_grad.differentiate import Backward
from nnef_grad.errors import UsageError
from nnef_grad.interpreter import evaluate, with_bodies
from nnef_grad.interpreter.execution import step
from nnef_grad.interpreter.feeds import Data, collected
from nnef_grad.ir import Graph, Operation, Tensor
from nnef_grad.rules import Rules
from nnef_grad.values import Values, between, normal, random_values

Array = npt.NDArray[Any]
Verdict = Literal["ok", "FAILED", "not finite", "too small"]

# A wrong rule is wrong by far more, and a right one agrees far better.
TOLERANCE = 1e-5
# A direction along which the slope is small says little of a wrong factor: then another
# one is tried.
DIRECTIONS = 4
TELLING = 0.1
# A kink may lie within a step: of several steps, the one that agrees best counts.
STEPS = (1e-5, 1e-6, 1e-7, 1e-4)
# How many roundings an evaluation may add up to.
ROUNDINGS = 64
# What part of a slope may be rounding before nothing can be said about it.
MEASURABLE = 1e-3


@dataclass(frozen=True)
class CheckedGradient:
    """One gradient, compared.

    Attributes:
        tensor: the tensor differentiated with respect to.
        gradient: the output of the backward graph.
        shape: the shape of the gradient.
        error: the largest relative error over the directions.
        verdict: "ok"; "FAILED"; "not finite" where the gradient has an infinity or what
            is not a number (a failure too); "too small" where rounding hides it.
    """

    tensor: str
    gradient: str
    shape: tuple[int, ...]
    error: float
    verdict: Verdict


@dataclass(frozen=True)
class Checked:
    """The gradients of a backward graph, compared with central differences."""

    gradients: tuple[CheckedGradient, ...]
    seed: int

    @property
    def passed(self) -> bool:
        """Whether none failed."""
        return all(g.verdict in ("ok", "too small") for g in self.gradients)

    def as_data(self) -> list[dict[str, Any]]:
        """The gradients as plain data, for programs."""
        return [asdict(gradient) for gradient in self.gradients]

    def __str__(self) -> str:
        """A table, a gradient a line, and a line that says how it went."""
        rows = [("gradient", "shape", "error", "verdict")]
        rows += [
            (g.gradient, str(list(g.shape)), f"{g.error:.1e}", g.verdict)
            for g in self.gradients
        ]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join([*lines, self._conclusion()])

    def _conclusion(self) -> str:
        count = len(self.gradients)
        failed = sum(g.verdict in ("FAILED", "not finite") for g in self.gradients)
        what = f"{count} gradient{'s' if count != 1 else ''} checked (seed {self.seed})"
        if failed:
            return f"{what}: {failed} failed"
        return f"{what}: all agree with central differences"


def check(
    graph: Graph,
    backward: Backward,
    *,
    inputs: Data | None = None,
    variables: Data | None = None,
    seed: int = 0,
    rules: Rules | None = None,
) -> Checked:
    """Compares each gradient of a backward graph with central differences.

    Args:
        graph: the forward graph.
        backward: what `differentiate` or `jacobian` made of it.
        inputs: values for some inputs, by name; the others are random.
        variables: values for some variables, by label; the others are random.
        seed: of the random numbers.
        rules: know how the user's own operations are computed.

    Raises:
        UsageError: a value does not fit its tensor, an operation cannot be evaluated,
            or the outputs are not finite at the values.
    """
    rules = rules if rules is not None else Rules()
    forward = with_bodies(graph, rules)
    values = _values(forward, inputs or {}, variables or {}, seed, rules)
    return _Comparison(forward, backward, values, seed, rules).run()


# ---- Where ----

# What the outputs are finite at: the first that does is taken.
_ATTEMPTS = (normal, between(0.5, 1.5), between(0.1, 0.9))


def _values(
    graph: Graph, inputs: Data, variables: Data, seed: int, rules: Rules
) -> Values:
    """The given values, and random ones where none are given."""
    labelled = {label.lower(): value for label, value in variables.items()}
    for draw in _ATTEMPTS:
        drawn = random_values(graph, seed, draw)
        values = Values(
            {**drawn.inputs, **_as_arrays(inputs)},
            {**drawn.variables, **_as_arrays(labelled)},
        )
        found = evaluate(graph, values.inputs, values.variables, rules=rules)
        if all(np.isfinite(a).all() for a in found.values() if a.dtype.kind == "f"):
            return values
    message = f"the outputs of '{graph.name}' are not finite at random values"
    raise UsageError(f"{message}: give values at which they are")


def _as_arrays(data: Data) -> dict[str, Array]:
    return {name: np.asarray(value) for name, value in data.items()}


# ---- The slope along a direction ----


class _Comparison:
    """The gradients of a backward graph at one point, and the slopes of the forward
    graph there.
    """

    def __init__(
        self,
        graph: Graph,
        backward: Backward,
        values: Values,
        seed: int,
        rules: Rules,
    ) -> None:
        self.graph = graph
        self.backward = backward
        self.values = values
        self.seed = seed
        self.rules = rules
        self.generator = np.random.default_rng([seed, len(graph.tensors)])
        self.base = self._evaluated()
        self.weights = {name: self._weight(name) for name in backward.outputs}
        self.gradients = self._gradients()

    def run(self) -> Checked:
        """Each gradient, compared."""
        compared = map(self._compared, self.backward.gradients.items())
        return Checked(tuple(compared), self.seed)

    def _evaluated(self) -> dict[str, Array]:
        """Every tensor of the forward graph."""
        found = collected(self.graph, self.values.inputs, self.values.variables)
        for operation in self.graph.operations:
            found.update(step(operation, found, operations=self.rules.evaluations))
        return found

    def _weight(self, output: str) -> Array:
        """What the elements of an output are weighted by in the sum: random numbers,
        but ones where the backward graph takes ones.
        """
        shape = self.base[output].shape
        is_free = self.backward.seeds or self.backward.is_jacobian
        return self.generator.standard_normal(shape) if is_free else np.ones(shape)

    def _gradients(self) -> dict[str, Array]:
        """The gradient of the weighted sum, by tensor."""
        seeds = {s: self.weights[o] for o, s in self.backward.seeds.items()}
        found = evaluate(
            self.backward,
            {**self.values.inputs, **seeds},
            self.values.variables,
            rules=self.rules,
        )
        if not self.backward.is_jacobian:
            return {t: found[name] for t, name in self.backward.gradients.items()}
        ((_, weight),) = self.weights.items()
        return {
            tensor: np.tensordot(weight, found[name], weight.ndim)
            for tensor, name in self.backward.gradients.items()
        }

    def _compared(self, pair: tuple[str, str]) -> CheckedGradient:
        tensor, name = pair
        gradient = self.gradients[tensor]
        (result,) = (t for t in self.backward.graph.outputs if t.name == name)
        if not np.isfinite(gradient).all():
            return CheckedGradient(tensor, name, result.shape, np.inf, "not finite")
        worst = self._worst(tensor, gradient)
        return CheckedGradient(tensor, name, result.shape, worst.error, worst.verdict)

    def _worst(self, tensor: str, gradient: Array) -> _Measured:
        """The worst of some directions, up to one that tells enough."""
        found: list[_Measured] = []
        value = self.base[tensor]
        for _ in range(DIRECTIONS):
            direction = self.generator.standard_normal(value.shape) * _size(value)
            terms = gradient * direction
            slope, size = float(np.sum(terms)), float(np.sqrt(np.sum(terms**2)))
            found.append(self._along(tensor, direction, slope, size))
            if abs(slope) >= TELLING * size or found[-1].verdict == "FAILED":
                break
        return max(found)

    def _along(
        self, tensor: str, direction: Array, expected: float, size: float
    ) -> _Measured:
        """What central differences say of an expected slope."""
        best = _Measured(np.inf, np.inf, 0.0)
        for step_ in STEPS:
            slope, rounding = self._slope(tensor, direction, step_)
            best = min(best, _measured(expected, size, slope, rounding))
            if best.verdict == "ok":
                break
        return best

    def _slope(
        self, tensor: str, direction: Array, step_: float
    ) -> tuple[float, float]:
        """The central difference of the weighted sum, and how much rounding may be in
        it.
        """
        value = self.base[tensor]
        above = self._moved(tensor, value + step_ * direction)
        below = self._moved(tensor, value - step_ * direction)
        slope = rounding = 0.0
        for name, weight in self.weights.items():
            slope += float(np.sum(weight * (above[name] - below[name])))
            rounding += float(np.sum(np.square(weight * self.base[name])))
        scale = ROUNDINGS * float(np.finfo(np.float64).eps)
        return slope / (2.0 * step_), scale * rounding**0.5 / step_

    def _moved(self, tensor: str, value: Array) -> Mapping[str, Array]:
        """The outputs where a tensor has another value: what depends on it is computed
        again.
        """
        moved = {tensor: value}
        for operation in self.graph.operations:
            if any(t.name in moved for t in operation.inputs):
                results = self._stepped(operation, ChainMap(moved, self.base))
                moved.update(
                    (name, result)
                    for name, result in results.items()
                    if name != tensor and name not in self.backward.stopped
                )
        return ChainMap(moved, self.base)

    def _stepped(
        self, operation: Operation, tensors: Mapping[str, Array]
    ) -> dict[str, Array]:
        surrogate = SURROGATES.get(operation.name)
        if surrogate is None:
            return step(operation, tensors, operations=self.rules.evaluations)
        (result,) = operation.outputs
        moved, base = (_arguments(operation, t) for t in (tensors, self.base))
        return {result.name: surrogate(moved, base, self.base[result.name])}


def _size(value: Array) -> float:
    """The size of the elements of a tensor; 1 where there is none to go by."""
    return float(np.sqrt(np.mean(np.square(value)))) if np.any(value) else 1.0


@dataclass(frozen=True, order=True)
class _Measured:
    """How far a slope is from the expected one, relative to its size.

    Attributes:
        excess: what rounding does not explain.
        error: the whole difference.
        rounding: what part of the slope rounding may be.
    """

    excess: float
    error: float
    rounding: float

    @property
    def verdict(self) -> Verdict:
        if self.excess > TOLERANCE:
            return "FAILED"
        return "ok" if self.rounding < MEASURABLE else "too small"


def _measured(expected: float, size: float, slope: float, rounding: float) -> _Measured:
    if not np.isfinite(slope):
        return _Measured(np.inf, np.inf, 0.0)
    scale = max(size, abs(slope))
    if scale == 0.0:
        return _Measured(0.0, 0.0, 0.0)
    error = abs(slope - expected)
    excess = max(error - rounding, 0.0)
    return _Measured(excess / scale, error / scale, rounding / scale)


# ---- What stands for a rounding ----
#
# The derivative of a quantization passes straight through its rounding. The function that
# has this derivative is the same quantization with the rounding's offset held as it is
# where the gradient is taken, and so is what is inside the range.

Arguments = Mapping[str, Any]


def _arguments(operation: Operation, tensors: Mapping[str, Array]) -> Arguments:
    operands = (
        tensors[o.name] if isinstance(o, Tensor) else np.float64(o)  # type: ignore[arg-type]
        for o in operation.operands
    )
    rank = max(operand.rank for operand in operation.inputs)
    names = (p.name for p in operation.definition.operands)
    aligned = (np.reshape(o, o.shape + (1,) * (rank - o.ndim)) for o in operands)
    return {**dict(zip(names, aligned)), **operation.attributes}


def _clamped(x: Array, low: Array, high: Array) -> Array:
    below = np.where(x < high, x, high)
    clamped: Array = np.where(below > low, below, low)
    return clamped


def _min_max(moved: Arguments, base: Arguments, result: Array) -> Array:
    inner = _clamped(base["x"], base["min"], base["max"])
    offset = (result - inner) / (base["max"] - base["min"])
    clamped = _clamped(moved["x"], moved["min"], moved["max"])
    shifted: Array = clamped + offset * (moved["max"] - moved["min"])
    return shifted


def _zero_point(moved: Arguments, base: Arguments, result: Array) -> Array:
    code = result / base["scale"]
    exact = base["x"] / base["scale"]
    is_inside = np.abs(code - exact) <= 0.5
    inside = moved["x"] + (code - exact) * moved["scale"]
    shifted: Array = np.where(is_inside, inside, code * moved["scale"])
    return shifted


def _logarithmic(moved: Arguments, base: Arguments, result: Array) -> Array:
    highest = np.ceil(np.log2(base["max"]))
    level = np.log2(np.abs(base["x"]))
    is_inside = (level > highest - (2 ** base["bits"] - 1)) & (level < highest)
    scaled: Array = np.where(is_inside, result * (moved["x"] / base["x"]), result)
    return scaled


SURROGATES: Mapping[str, Callable[[Arguments, Arguments, Array], Array]] = {
    "min_max_linear_quantize": _min_max,
    "linear_quantize": _min_max,
    "zero_point_linear_quantize": _zero_point,
    "logarithmic_quantize": _logarithmic,
}
