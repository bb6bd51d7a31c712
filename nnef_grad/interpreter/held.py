"""Operations with their decisions held as they are at one point.

An operation that makes a decision has kinks: which operand is the larger one, which
element of a window is the maximum, on which side of zero x lies. With the decision held,
the function is smooth. It is the same function at the point, and around it up to the
next kink; so it has the same derivative there, and a step of any size crosses no kink.

A tie has no such neighbourhood. There the decision is the one of docs/conventions.md. A
rounding is held as described there too: as a constant where it is alone, as an offset
inside a quantization.

Here are the operations that are not a `choice`: with their decisions held, they are
another formula. Nothing here depends on the rules of differentiation, nor they on it:
the rules are checked by it.

    step(operation, tensors, operations=hold(operation, tensors, {}))
        == step(operation, tensors)
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.loops import Loop, is_loop
from nnef_grad.interpreter import quantize
from nnef_grad.interpreter.elementwise import Axes, aligned, max_reduce, min_reduce
from nnef_grad.interpreter.execution import Operations, operands_of, scan, step
from nnef_grad.interpreter.registry import HELD, Evaluation
from nnef_grad.ops.costs import last_uses
from nnef_grad.ops.traits import FLAT

# The tolerated difference between the results of two forms of a function.
ROUNDING = 1e-9


def hold(
    operation: Operation, tensors: Mapping[Tensor, Array], own: Operations
) -> Operations:
    """The evaluation of an operation with its decisions at the point held, by its name; the
    user's own as it is; empty for one that makes no decision.
    """
    if operation.name in own:
        return own
    if operation.name not in HELD and not is_loop(operation):
        return {}
    operands = operands_of(operation, tensors)
    with np.errstate(all="ignore"):
        function = (
            _hold_loop(operands, operation.attributes["loop"], own)
            if is_loop(operation)
            else HELD[operation.name](*operands, **operation.attributes)
        )
    held = {operation.name: lambda *moved, **_: function(*moved)}
    for tensor, result in step(operation, tensors, operations=held).items():
        message = f"'{operation.name}' is another function with its decisions held"
        assert _is_same(result, tensors[tensor], operands), message
    return held


def _is_same(held: Array, result: Array, operands: Sequence[Any]) -> bool:
    """Whether results agree, up to the rounding of their operands."""
    size = max(map(_largest, [result, *operands]))
    with np.errstate(all="ignore"):
        # Those of loops may be logical.
        errors = np.abs(np.subtract(held, result, dtype=float))[np.isfinite(result)]
    return bool(np.all(errors <= ROUNDING * size))


def _largest(x: Array) -> float:
    """The size of the largest finite element."""
    return float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))


def can_move(operation: Operation, result: Tensor) -> bool:
    """Whether a result changes with operands: not of step functions, nor decisions."""
    return result.dtype == "scalar" and operation.name not in FLAT


class Held:
    """A graph around a point, where all its tensors are known, with its decisions held."""

    def __init__(
        self,
        graph: Graph,
        point: dict[Tensor, Array],
        own: Operations,
        stopped: Iterable[Tensor] = (),
    ) -> None:
        self._graph, self._point, self._own = graph, point, own
        self._stopped = {*stopped}
        self._operations = [*zip(graph.operations, last_uses(graph), strict=True)]
        self._held: dict[Operation, Operations] = {}

    def outputs(
        self,
        moved: dict[Tensor, Array],
        disturb: Callable[[Array], Array] = np.asarray,
    ) -> list[Array]:
        """The outputs for other values of some tensors, whose dependents are computed. Each
        result may be disturbed, to see what comes of it.
        """
        tensors = ChainMap(moved, self._point)
        fixed, outputs = {*moved, *self._stopped}, self._graph.outputs
        for operation, dead in self._operations:
            if any(t in moved for t in operation.inputs):
                moving = [t for t in operation.outputs if can_move(operation, t)]
                results = self._results(operation, tensors) if moving else {}
                moved.update((t, disturb(results[t])) for t in moving if t not in fixed)
            for past in dead.difference(outputs):
                moved.pop(past, None)
        return [tensors[output] for output in outputs]

    def _results(
        self, operation: Operation, tensors: Mapping[Tensor, Array]
    ) -> dict[Tensor, Array]:
        if operation not in self._held:
            self._held[operation] = hold(operation, self._point, self._own)
        evaluations, names = self._held[operation], self._graph.names
        return step(operation, tensors, operations=evaluations, names=names)


# ---- Loops ----

_Step = Callable[[Sequence[Array]], "list[Array]"]


def _hold_loop(operands: Sequence[Any], loop: Loop, own: Operations) -> Evaluation:
    """A loop with the decisions that each of its steps makes."""
    steps: list[_Step] = []

    def decide(body: Graph, inputs: Sequence[Array]) -> list[Array]:
        outputs, held = _held_step(body, inputs, own)
        steps.append(held)
        return outputs

    scan(*operands, loop=loop, apply=decide)

    def held(*moved: Array) -> Any:
        following = iter(steps)
        return scan(*moved, loop=loop, apply=lambda _, inputs: next(following)(inputs))

    return held


def _held_step(
    body: Graph, inputs: Sequence[Array], own: Operations
) -> tuple[list[Array], _Step]:
    """The outputs of a step of a loop, and the step with its decisions held."""
    base = dict(zip(body.inputs, inputs, strict=True))
    for operation in body.operations:
        if operation.name != "external":
            base.update(step(operation, base, operations=own))
    graph = Held(body, base, own)

    def held(moved: Sequence[Array]) -> list[Array]:
        return graph.outputs(dict(zip(body.inputs, moved, strict=True)))

    return [base[tensor] for tensor in body.outputs], held


# ---- Bounds and extrema ----


def _clamp(x: Array, a: Array, b: Array) -> Evaluation:
    capped = HELD["min"](x, b)
    raised = HELD["max"](capped(x, b), a)
    return lambda x, a, b: raised(capped(x, b), a)


def _shared(extremum: Callable[[Array, Axes], Array]) -> Callable[..., Evaluation]:
    """The mean of the elements equal to the extremum."""

    def hold_ties(input: Array, axes: Axes) -> Evaluation:
        ties = input == extremum(input, axes)
        count = ties.sum(axis=axes, keepdims=True)
        return lambda x: np.where(ties, x, 0.0).sum(axis=axes, keepdims=True) / count

    return hold_ties


# ---- Quantizations ----
#
# The derivative passes straight through the rounding. The function that has this
# derivative is the same quantization with two decisions held: the offset by the
# rounding, and which elements are inside the range.


def _min_max(x: Array, min: Array, max: Array, **attributes: Any) -> Evaluation:
    result = quantize.min_max_linear_quantize(x, min, max, **attributes)
    x, low, high = aligned(x, min, max)
    clamped = _clamp(x, low, high)
    offset = (result - clamped(x, low, high)) / (high - low)

    def held(*moved: Array) -> Array:
        x, low, high = aligned(*moved)
        shifted: Array = clamped(x, low, high) + offset * (high - low)
        return shifted

    return held


def _zero_point(
    x: Array, zero_point: Array, scale: Array, **attributes: Any
) -> Evaluation:
    result = quantize.zero_point_linear_quantize(x, zero_point, scale, **attributes)
    x, scale = aligned(x, scale, result)[:2]
    # Nothing is inside the range of a scale of zero.
    code, exact = np.where(scale == 0.0, 0.0, result / scale), x / scale
    is_inside = np.abs(code - exact) <= 0.5

    def held(x: Array, zero_point: Array, scale: Array) -> Array:
        x, scale = aligned(x, scale, result)[:2]
        return np.where(is_inside, x + (code - exact) * scale, code * scale)

    return held


def _logarithmic(x: Array, max: Array, bits: int) -> Evaluation:
    result = quantize.logarithmic_quantize(x, max, bits)
    x, bound = aligned(x, max)
    highest, level = np.ceil(np.log2(bound)), np.log2(np.abs(x))
    is_inside = (level > highest - (2**bits - 1)) & (level < highest)
    ratio = np.where(is_inside, result / x, 0.0)

    def held(x: Array, max: Array) -> Array:
        x, _ = aligned(x, max)
        return np.where(is_inside, ratio * x, result)

    return held


HELD.update(
    stop_gradient=lambda held: lambda x: held,
    abs=lambda x: partial(np.multiply, np.sign(x)),
    clamp=_clamp,
    max_reduce=_shared(max_reduce),
    min_reduce=_shared(min_reduce),
    min_max_linear_quantize=_min_max,
    zero_point_linear_quantize=_zero_point,
    logarithmic_quantize=_logarithmic,
)
