"""The gradient check: each gradient against central differences of the forward graph.

For a gradient g of the weighted sum L of the outputs with respect to a tensor t, and a
random direction v, the product <g, v> must be the slope of L(t + h v) at h = 0. Both
graphs are evaluated in float64.

Every decision of the forward graph, such as on which side of zero the operand of a relu
lies, is held as it is at the point: see interpreter/held.py. So there are no kinks
within a step, however many elements there are, and where the derivative is a choice it
is the one of docs/conventions.md. Stopped tensors are constants.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.passes import prune
from nnef_grad.graph.symbols import at_numbers, with_numbers
from nnef_grad.interpreter import results, with_bodies
from nnef_grad.interpreter.execution import Feeds
from nnef_grad.interpreter.held import Held
from nnef_grad.interpreter.slopes import Line, point_of
from nnef_grad.interpreter.spread import Spread, spread_of
from nnef_grad.ops.costs import memory_alive

Verdict = Literal["ok", "zero everywhere here", "too small", "FAILED", "not finite"]
ZERO: Verdict = "zero everywhere here"
PASSED = ("ok", ZERO, "too small")
NOT_FINITE: tuple[float, Verdict] = np.inf, "not finite"

# The tolerated error of a correct gradient, besides rounding. A rule that is off by a
# tenth of a percent is found even where other rules dilute its error.
TOLERANCE = 3e-8
# A wrong factor hardly shows along a direction of small slope: then another one is
# tried.
DIRECTIONS = 8
TELLING = 0.1
# The first step that agrees counts, or else the one with the least bound. A strongly
# curved function, or one near the edge of its domain, needs a small step; a slope
# hidden by rounding a large one. The user's own evaluations may have a kink within a
# step.
STEPS = (3e-5, 1e-5, 1e-4, 3e-6, 3e-4, 1e-6, 1e-3, 3e-7)
# How well the one-sided difference agrees if the function is straight.
STRAIGHT = 1e-8
# The relative difference between the errors of two steps that are taken for equal.
SAME = 1e-2
# The rounding error of an evaluation, for outputs of size 1.
ROUNDING = 64 * float(np.finfo(np.float64).eps)
# The bytes of an element, in double precision.
ITEM = 8
GIB = 2**30
# The part of a slope that may be rounding before it counts as too small.
MEASURABLE = 1e-5


@dataclass(frozen=True)
class CheckedGradient:
    """The comparison of a gradient.

    Attributes:
        tensor: the tensor differentiated with respect to.
        gradient: the output of the backward graph.
        shape: the shape of the gradient.
        error: the relative error of the slope along a random direction.
        verdict: "ok"; "zero everywhere here" if the gradient and the slope are exactly
            zero, which proves little; "too small" if rounding hides the slope; "FAILED";
            "not finite" if the gradient has an infinity or a NaN, a failure too.
        spread: the norm and the magnitudes of the elements of the gradient.
    """

    tensor: str
    gradient: str
    shape: tuple[int, ...]
    error: float
    verdict: Verdict
    spread: Spread

    @property
    def passed(self) -> bool:
        """Whether it is not wrong."""
        return self.verdict in PASSED


@dataclass(frozen=True)
class Checked:
    """The gradients of a backward graph, compared with central differences."""

    gradients: tuple[CheckedGradient, ...]
    seed: int

    @property
    def passed(self) -> bool:
        """Whether none failed."""
        return all(gradient.passed for gradient in self.gradients)

    def as_data(self) -> list[dict[str, Any]]:
        """The gradients as plain data, for programs."""
        return [asdict(gradient) for gradient in self.gradients]

    def __str__(self) -> str:
        """A table with a line per gradient, and a summary."""
        table = Table((g.gradient, g.shape) for g in self.gradients)
        rows = map(table.row, self.gradients)
        return "\n".join([table.heading, *rows, self.conclusion])

    @property
    def conclusion(self) -> str:
        """The result in a line."""
        count = len(self.gradients)
        failed = sum(not gradient.passed for gradient in self.gradients)
        what = f"{count} gradient{'s' if count != 1 else ''} checked (seed {self.seed})"
        if failed:
            return f"{what}: {failed} failed"
        zeros = sum(g.verdict == ZERO for g in self.gradients)
        note = f", {zeros} of them only in being zero here" if zeros else ""
        return f"{what}: all agree with central differences{note}"


class Table:
    """The lines of a table of gradients, of which names and shapes are known before."""

    def __init__(self, gradients: Iterable[tuple[str, tuple[int, ...]]]) -> None:
        columns = [("gradient", "shape"), *((n, str(list(s))) for n, s in gradients)]
        self._name, self._shape = (max(map(len, c)) for c in zip(*columns, strict=True))

    @property
    def heading(self) -> str:
        """The first line."""
        return self._line("gradient", "shape", "error", "verdict")

    def row(self, checked: CheckedGradient) -> str:
        """The line of a gradient."""
        shape, error = str(list(checked.shape)), f"{checked.error:.1e}"
        return self._line(checked.gradient, shape, error, checked.verdict)

    def _line(self, name: str, shape: str, error: str, verdict: str) -> str:
        start = f"{name:{self._name}}  {shape:{self._shape}}"
        return f"{start}  {error:7}  {verdict}"


# Called with each gradient as soon as it is compared, the number compared, and of all.
Report = Callable[[CheckedGradient, int, int], None]


@public
def check(
    graph: Graph,
    backward: Backward,
    *,
    inputs: Feeds | None = None,
    variables: Feeds | None = None,
    seed: int = 0,
    rules: Rules | None = None,
    memory: int | None = None,
    report: Report | None = None,
) -> Checked:
    """Compares each gradient of a backward graph with central differences.

    Args:
        graph: the forward graph.
        backward: its derivative, from `differentiate` or `jacobian`.
        inputs: values for some inputs, by name; the others are random. These values
            give symbols in the shapes their numbers; other symbols are 8.
        variables: values for some variables, by label; the others are random.
        seed: the seed of the random numbers.
        rules: the evaluations of the user's own operations.
        memory: the most bytes of memory to use, by an estimate from the shapes; by
            default, all of the machine's.
        report: called for each compared gradient with it, the number compared, and the
            total.

    Raises:
        UsageError: `backward` is another derivative, or of another graph, a value does
            not fit its tensor, an operation cannot be evaluated, the outputs are not
            finite, or memory does not suffice.
    """
    settings = inputs, variables, seed, rules, memory
    return _Comparison(graph, backward, *settings).run(report)


def spreads(graph: Graph, backward: Backward, **point: Any) -> dict[str, Spread]:
    """The spread of each gradient, by its name, at the point of `check`."""
    gradients = _Comparison(graph, backward, **point).gradients()
    return {name: spread_of(gradient) for name, gradient in gradients}


def _without_dead(graph: Graph, backward: Backward) -> Graph:
    """The forward graph without what nothing needs: it might take any memory."""
    tensors = graph.tensors
    named = (tensors[name] for name in (*backward.gradients, *backward.stopped))
    kept = (*graph.outputs, *graph.variables, *named)
    return replace(prune(replace(graph, outputs=kept)), outputs=graph.outputs)


def _refuse_too_large(forward: Graph, backward: Graph, limit: int | None) -> None:
    """Refuses to take more memory than the limit or the machine's, by shapes."""
    if limit is None:
        try:
            limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return

    def elements(tensor: Tensor) -> int:
        return prod(tensor.shape)

    peak = max(memory_alive(backward, elements), default=0)
    needed = ITEM * (sum(map(elements, forward.tensors.values())) + peak)
    if needed > limit:
        what = f"the check takes about {needed / GIB:,.1f} GiB of memory"
        raise UsageError(f"{what}, more than {limit / GIB:,.1f} GiB", remedy="smaller")


# ---- The comparison ----


class _Comparison:
    """The gradients of a backward graph, against slopes at a point; see `check`."""

    def __init__(
        self,
        graph: Graph,
        backward: Backward,
        inputs: Feeds | None = None,
        variables: Feeds | None = None,
        seed: int = 0,
        rules: Rules | None = None,
        memory: int | None = None,
    ) -> None:
        if backward.kind not in ("gradient", "jacobian"):
            what = "only gradients and Jacobians are compared"
            raise UsageError(f"{what} with central differences")
        named = {*backward.gradients, *backward.outputs, *backward.stopped}
        if not named <= graph.tensors.keys():
            what = f"'{backward.graph.name}' is not derived from this '{graph.name}'"
            raise UsageError(what)
        if seed < 0:
            raise UsageError(f"the seed of random numbers is 0 or more, and not {seed}")
        self.rules, self.seed = rules or Rules(), seed
        self.rules.refuse_unknown(graph.custom_operations)
        shapes = {name: np.shape(data) for name, data in (inputs or {}).items()}
        numbers = at_numbers(graph, shapes)
        self.backward = replace(backward, graph=with_numbers(backward.graph, numbers))
        forward = with_bodies(with_numbers(graph, numbers), self.rules)
        forward = _without_dead(forward, self.backward)
        _refuse_too_large(forward, self.backward.graph, memory)
        self.point = point_of(forward, inputs or {}, variables or {}, seed, self.rules)
        self.variables = {n.lower(): x for n, x in (variables or {}).items()}
        self.tensors, self.labels = forward.tensors, forward.labels
        self.weights = self._weights()
        weighted = replace(forward, outputs=tuple(self.weights))
        stopped = [self.tensors[name] for name in backward.stopped]
        self.forward = Held(weighted, self.point, self.rules.evaluations, stopped)

    def run(self, report: Report | None) -> Checked:
        """Compares each gradient as soon as it is computed."""
        tensors = {name: t for t, name in self.backward.gradients.items()}
        checked: dict[str, CheckedGradient] = {}
        for name, gradient in self.gradients():
            shape, spread = gradient.shape, spread_of(gradient)
            if self.backward.kind == "jacobian":
                # The gradient of the weighted sum.
                (weight,) = self.weights.values()
                gradient = np.asarray(np.tensordot(weight, gradient, weight.ndim))
            expected = self._expect(tensors[name], gradient)
            # It may be as large as all the others together.
            del gradient
            measured = self._measure(expected) if expected else NOT_FINITE
            compared = CheckedGradient(tensors[name], name, shape, *measured, spread)
            checked[name] = compared
            if report is not None:
                report(compared, len(checked), len(tensors))
        return Checked(tuple([checked[name] for name in tensors]), self.seed)

    def _weights(self) -> dict[Tensor, Array]:
        """The weights of elements of outputs: random, or ones where seeds are."""
        generator = np.random.default_rng([self.seed, len(self.point)])
        is_free = self.backward.seeds or self.backward.kind == "jacobian"
        draw = generator.standard_normal if is_free else np.ones
        outputs = (self.tensors[name] for name in self.backward.outputs)
        return {output: np.asarray(draw(output.shape)) for output in outputs}

    def gradients(self) -> Iterator[tuple[str, Array]]:
        """The gradients by name, in the order in which they are computed."""
        pairs = self.backward.seeds.items()
        seeds = {seed: self.weights[self.tensors[output]] for output, seed in pairs}
        graph, named = self.backward.graph, {*self.backward.gradients.values()}
        # The same arrays as in the forward graph: no variable is stored twice.
        at = {name: self.point[tensor] for name, tensor in self.tensors.items()}
        inputs = {name: at[name] for name in graph.input_names if name in at}
        # A graph that was lowered may have data of its own.
        variables: dict[str, Any] = dict(self.variables)
        variables.update({self.labels[n].lower(): at[n] for n in self.labels})
        computed = results(graph, {**inputs, **seeds}, variables, rules=self.rules)
        return (pair for pair in computed if pair[0] in named)

    def _expect(self, name: str, gradient: Array) -> _Expected | None:
        """The predicted slope, along a telling direction; None if it is not finite."""
        if not np.isfinite(gradient).all():
            return None
        tensor = self.tensors[name]
        value = self.point[tensor]
        index = list(self.backward.gradients).index(name)
        generator = np.random.default_rng([self.seed, len(self.weights), index])
        size = _size(value) * float(np.linalg.norm(gradient))
        for _ in range(DIRECTIONS):
            drawn = generator.standard_normal(value.shape, dtype=np.float32)
            line = Line(tensor, value, np.asarray(drawn), _size(value))
            slope = line.slope(gradient)
            if abs(slope) >= TELLING * size:
                break
        return _Expected(line, slope, size)

    def _measure(self, expected: _Expected) -> tuple[float, Verdict]:
        """The error of the slope measured by differences, and the verdict: of the first
        that agrees, or of the best.

        Where two steps show the same error the gradient is wrong, as neither curvature
        nor a kink nor rounding does that: then no more are tried.
        """
        measured: list[_Measured] = []
        for last in self._measurements(expected):
            is_refuted = last.verdict == "FAILED" and any(
                m.verdict == "FAILED" and abs(m.error - last.error) <= SAME * m.error
                for m in measured
            )
            measured.append(last)
            if is_refuted or (last.error <= TOLERANCE and last.verdict in PASSED[:2]):
                break
        best = min(measured, key=lambda measured: measured.error + measured.rounding)
        return best.error, best.verdict

    def _measurements(self, expected: _Expected) -> Iterator[_Measured]:
        """Central differences; where the function is straight, one-sided ones do."""
        line, weights = expected.line, self.weights.items()
        squares = (np.square(weight * self.point[y]) for y, weight in weights)
        rounding = ROUNDING * sum(float(np.sum(square)) for square in squares) ** 0.5
        for step_ in STEPS:
            above = self._difference(line, step_)
            ahead = expected.measure(above / step_, rounding / step_)
            if ahead.error <= STRAIGHT:
                yield ahead
            below = self._difference(line, -step_)
            yield expected.measure((above - below) / (2 * step_), rounding / step_)

    def _difference(self, line: Line, step_: float) -> float:
        """The change of the weighted sum along a line, up to some rounding."""
        # Outside the domain of a function, differences are not numbers.
        with np.errstate(all="ignore"):
            moved = self.forward.outputs({line.tensor: line.at(step_)})
            columns = zip(self.weights.items(), moved, strict=True)
            changes = (weight * (new - self.point[y]) for (y, weight), new in columns)
            return sum(float(np.sum(change)) for change in changes)


def _size(value: Array) -> float:
    """The size of the elements of a tensor; 1 if there is none."""
    return float(np.linalg.norm(value)) / value.size**0.5 if np.any(value) else 1.0


class _Expected(NamedTuple):
    """The slope that a gradient predicts along a line, and the mean size along all."""

    line: Line
    slope: float
    size: float

    def measure(self, slope: float, rounding: float) -> _Measured:
        """The measurement by another slope: its distance from the expected one.

        From one step to the next the error by curvature becomes 10 times as large, and
        that by rounding a third: where their sum is least, curvature adds at most 2.4
        times as much as rounding.
        """
        if not np.isfinite(slope):
            return _Measured(np.inf, 0.0, "FAILED")
        scale = max(self.size, abs(slope))
        if scale == 0.0:
            return _Measured(0.0, 0.0, ZERO)
        error, rounding = abs(slope - self.slope) / scale, rounding / scale
        if error > TOLERANCE + 4.0 * rounding:
            return _Measured(error, rounding, "FAILED")
        is_measurable = rounding < MEASURABLE
        return _Measured(error, rounding, "ok" if is_measurable else "too small")


class _Measured(NamedTuple):
    """The relative distance of a slope from the expected one, and its rounding."""

    error: float
    rounding: float
    verdict: Verdict
