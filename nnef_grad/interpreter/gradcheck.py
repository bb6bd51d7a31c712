"""The gradient check: each gradient against central differences of the forward graph.

For a gradient g of the weighted sum L of the outputs with respect to a tensor t, and a
random direction v, the product <g, v> must be the slope of L(t + h v) at h = 0. Both
graphs are evaluated in float64.

Every decision of the forward graph, such as on which side of zero the operand of a relu
lies, is held as it is at the point: see interpreter/held.py. So there are no kinks
within a step, however many elements there are, and where the derivative is a choice it
is the one of docs/conventions.md. Stopped tensors are constants.

Where the first difference does not agree, the differences of many steps are extrapolated.
A gradient is wrong only where it is outside of what they can tell.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.graph.extents import as_numbers
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.passes import prune
from nnef_grad.graph.symbols import with_numbers
from nnef_grad.interpreter import decomposed, results
from nnef_grad.interpreter.execution import Feeds, of_graph
from nnef_grad.interpreter.extrapolation import Slope, extrapolated
from nnef_grad.interpreter.held import Held
from nnef_grad.interpreter.sizes import at_numbers
from nnef_grad.interpreter.slopes import Line, point_of
from nnef_grad.interpreter.spread import Spread, spread_of
from nnef_grad.language.labels import label_key
from nnef_grad.ops.costs import memory_alive

Verdict = Literal["ok", "zero everywhere here", "inconclusive", "FAILED", "not finite"]
ZERO: Verdict = "zero everywhere here"
INCONCLUSIVE: Verdict = "inconclusive"
PASSED = ("ok", ZERO, INCONCLUSIVE)
NOT_FINITE: tuple[float, Verdict] = np.inf, "not finite"

# The tolerated error of a correct gradient, besides rounding. A rule that is off by a
# tenth of a percent is found even where other rules dilute its error.
TOLERANCE = 3e-8
# A wrong factor hardly shows along a direction of small slope: then another one is
# tried.
DIRECTIONS = 8
TELLING = 0.1
# The steps, relative to the size of elements, in the order in which they are tried. A
# strongly curved function, or one near the edge of its domain, needs a small step; a
# slope hidden by rounding a large one.
FIRST, *OTHERS = (
    10.0 ** (place / 2) for place in (-9, -10, -8, -11, -7, -12, -6, -13, -14, -15, -16)
)
# The least one, by which nothing is measured, but what larger ones say is confirmed.
LEAST = 1e-10
# How well the one-sided difference agrees if the function is straight.
STRAIGHT = 1e-8
# The rounding error of an evaluation, for outputs of size 1.
EPS = float(np.finfo(np.float64).eps)
ROUNDING = 64 * EPS
# What another rounding multiplies a number with.
ROUNDED = 1.0 - 2 * EPS, 1.0 + 2 * EPS
# A gradient is wrong if it is this many times as far from the slope as the slope may be.
CERTAIN = 10.0
# The bytes of an element, in double precision.
ITEM = 8
GIB = 2**30
# How much of a slope may be uncertain while it proves something.
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
            zero, which proves little; "inconclusive" if differences cannot tell, as
            rounding or curvature hides the slope; "FAILED"; "not finite" if the
            gradient has an infinity or a NaN, a failure too.
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
        verdicts = [gradient.verdict for gradient in self.gradients]
        zeros, unknown = verdicts.count(ZERO), verdicts.count(INCONCLUSIVE)
        if unknown == count and count:
            return f"{what}: central differences are inconclusive"
        known = count - unknown
        agreeing = "all agree" if not unknown else f"{known} agree{'s' * (known == 1)}"
        note = f", {zeros} of them only in being zero here" if zeros else ""
        rest = f", {unknown} inconclusive" if unknown else ""
        return f"{what}: {agreeing} with central differences{note}{rest}"


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
            give symbols in the shapes their numbers; other symbols are 8, or
            more where operands of several shapes need that.
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
        return prod(as_numbers(tensor.shape))

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
        forward = decomposed(with_numbers(graph, numbers), self.rules)
        forward = _without_dead(forward, self.backward)
        _refuse_too_large(forward, self.backward.graph, memory)
        variables = of_graph(variables or {}, graph)
        self.point = point_of(forward, inputs or {}, variables, seed, self.rules)
        self.variables = {label_key(n): x for n, x in variables.items()}
        self.tensors, self.labels = forward.tensors, forward.labels
        self.weights = self._weights()
        weighted = replace(forward, outputs=tuple(self.weights))
        stopped = [self.tensors[name] for name in backward.stopped]
        self.forward = Held(weighted, self.point, self.rules.evaluations, stopped)

    def run(self, report: Report | None) -> Checked:
        """Compares each gradient as soon as it is computed."""
        tensors = {name: t for t, name in self.backward.gradients.items()}
        checked: dict[str, CheckedGradient] = {}
        weights = self.weights
        for name, gradient in self.gradients():
            shape, spread = gradient.shape, spread_of(gradient)
            gradient = self._of_weighted_sum(gradient, tensors[name], weights)
            expected = self._expect(tensors[name], gradient)
            # It may be as large as all the others together.
            del gradient
            measured = self._measure(expected) if expected else NOT_FINITE
            compared = CheckedGradient(tensors[name], name, shape, *measured, spread)
            checked[name] = compared
            if report is not None:
                report(compared, len(checked), len(tensors))
        return Checked(tuple([checked[name] for name in tensors]), self.seed)

    def _of_weighted_sum(
        self, gradient: Array, name: str, weights: Mapping[Tensor, Array]
    ) -> Array:
        """The gradient of a weighted sum of the outputs, whose weights become those of it:
        where there is one for each example, examples have weights of their own, too.
        """
        self.weights, rank = {**weights}, self.tensors[name].rank
        backward, per_example = self.backward, self.backward.per_example
        axes = {self.tensors[x]: at for x, at in backward.example_axes.items()}
        if backward.kind == "jacobian":
            ((output, weight),) = weights.items()
            if per_example:
                weight = np.moveaxis(weight, axes[output] or 0, 0)
            rows = weight.reshape(len(weight) if per_example else 1, 1, -1)
            own = gradient.shape[weight.ndim :]
            each = rows @ gradient.reshape(len(rows), rows.size // len(rows), -1)
            gradient = each.reshape((len(rows), *own) if per_example else own)
            if per_example and gradient.ndim == rank:
                return np.moveaxis(gradient, 0, axes[self.tensors[name]] or 0)
        if not per_example or gradient.ndim == rank:
            return np.asarray(gradient)
        generator = np.random.default_rng([self.seed, len(gradient)])
        of_examples = generator.standard_normal(len(gradient))
        for y, w in weights.items():
            others = [axis for axis in range(w.ndim) if axis != axes[y]]
            self.weights[y] = w * np.expand_dims(of_examples, others)
        return np.asarray(np.tensordot(of_examples, gradient, 1))

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
        variables.update({label_key(self.labels[n]): at[n] for n in self.labels})
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
        """The error of the slope measured by differences, and the verdict. Mostly the first
        difference agrees; where the function is straight, half of it does.
        """
        rounding = ROUNDING * self._norm() / FIRST
        above = self._difference(expected.line, FIRST)
        found = expected.agrees(above / FIRST, rounding, STRAIGHT)
        if found is not None:
            return found
        below = self._difference(expected.line, -FIRST)
        slope = (above - below) / (2 * FIRST)
        found = expected.agrees(slope, rounding, TOLERANCE)
        return found or self._extrapolate(expected, slope)

    def _extrapolate(self, expected: _Expected, first: float) -> tuple[float, Verdict]:
        """The same by the differences of further steps, until they are certain."""
        # No evaluation is more exact than its results are.
        noise = max(self._noise(expected.line), EPS * self._norm())
        differences, best = {FIRST: first}, Slope(first, np.inf)
        for step_ in OTHERS:
            # Nothing is seen through rounding that hides more than is known.
            if noise / step_ >= max(best.bound, expected.distance(best) / CERTAIN):
                continue
            slope, _ = self._central(expected.line, step_)
            differences[step_] = slope
            best = extrapolated(differences, noise)
            found = expected.agrees(slope, noise / step_, TOLERANCE)
            if found := found or expected.agrees(*best, TOLERANCE):
                return found
            if self._is_refuted(expected, best, noise):
                return expected.error(best.value), "FAILED"
        return expected.error(best.value), expected.verdict(best)

    def _is_refuted(self, expected: _Expected, best: Slope, noise: float) -> bool:
        """Whether an expected slope is wrong. Steps larger than a narrow bend of the function
        agree without seeing it. So a small step, of which rounding leaves enough, must say
        the same; so must both of its sides, as a kink of the user's own evaluation may be at
        the point itself.
        """
        distance = expected.distance(best)
        if not distance > CERTAIN * best.bound:
            return False
        step_ = min(max(LEAST, CERTAIN * noise / distance), FIRST)
        slope, kink = self._central(expected.line, step_)
        kink = kink if self.rules.evaluations else 0.0
        return abs(slope - best.value) + kink < distance / 2.0

    def _central(self, line: Line, step_: float) -> tuple[float, float]:
        """The slope by a central difference, and how far those to the sides are from it."""
        above, below = self._difference(line, step_), self._difference(line, -step_)
        return (above - below) / (2 * step_), abs(above + below) / (2 * step_)

    def _noise(self, line: Line) -> float:
        """The rounding error of an evaluation: what comes of another rounding of everything
        that depends on the tensor, with the same decisions.
        """
        generator = np.random.default_rng([self.seed, line.value.size])

        def disturb(x: Array) -> Array:
            return np.asarray(x * generator.choice(ROUNDED, x.shape))

        with np.errstate(all="ignore"):
            changes = self._changes(line.tensor, disturb(line.value), disturb)
            finite = [change[np.isfinite(change)] for change in changes]
            together = abs(sum(float(np.sum(change)) for change in finite))
            # They may cancel by chance.
            squares = sum(float(np.sum(np.square(change))) for change in finite)
        return max(together, float(squares**0.5))

    def _norm(self) -> float:
        """The size of the weighted outputs."""
        squares = (np.square(w * self.point[y]) for y, w in self.weights.items())
        return float(sum(float(np.sum(square)) for square in squares) ** 0.5)

    def _difference(self, line: Line, step_: float) -> float:
        """The change of the weighted sum along a line, up to some rounding."""
        # Outside the domain of a function, differences are not numbers.
        with np.errstate(all="ignore"):
            changes = self._changes(line.tensor, line.at(step_))
            return sum(float(np.sum(change)) for change in changes)

    def _changes(
        self, tensor: Tensor, value: Array, *disturb: Callable[[Array], Array]
    ) -> list[Array]:
        """The weighted changes of the outputs by another value of a tensor."""
        moved = self.forward.outputs({tensor: value}, *disturb)
        columns = zip(self.weights.items(), moved, strict=True)
        return [weight * (new - self.point[y]) for (y, weight), new in columns]


def _size(value: Array) -> float:
    """The size of the elements of a tensor; 1 if there is none."""
    return float(np.linalg.norm(value)) / value.size**0.5 if np.any(value) else 1.0


class _Expected(NamedTuple):
    """The slope that a gradient predicts along a line, and the mean size along all."""

    line: Line
    slope: float
    size: float

    def distance(self, other: Slope) -> float:
        """How far another slope is from the expected one."""
        return abs(other.value - self.slope)

    def error(self, slope: float) -> float:
        """The relative distance of another slope; infinite if it is not a number."""
        is_number = bool(np.isfinite([slope, self.slope]).all())
        distance = abs(slope - self.slope)
        return distance / max(self.size, abs(slope)) if is_number else float("inf")

    def agrees(
        self, slope: float, bound: float, tolerance: float
    ) -> tuple[float, Verdict] | None:
        """The error and the verdict if a slope, uncertain by some bound, is this one."""
        if self.size == slope == 0.0:
            return 0.0, ZERO
        is_measured = bound < MEASURABLE * max(self.size, abs(slope))
        is_sure = is_measured and self.error(slope) <= tolerance
        return (self.error(slope), "ok") if is_sure else None

    def verdict(self, best: Slope) -> Verdict:
        """The verdict by a slope that neither agrees within the tolerance nor refutes."""
        uncertain = CERTAIN * best.bound
        is_known = uncertain < MEASURABLE * max(self.size, abs(best.value))
        return "ok" if is_known and self.distance(best) <= uncertain else INCONCLUSIVE
