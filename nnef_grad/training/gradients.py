"""Gradients before an optimizer uses them: known numbers, the scale of the loss, clipping.

Gradients are keyed by the name of their variable; results are named after it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

from nnef_grad.base.source import Source
from nnef_grad.emit.bodies import Decompose, inline
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor, shape_of
from nnef_grad.language.parser import parse_fragments
from nnef_grad.ops.elementwise import broadcast
from nnef_grad.ops.registry import OpSet
from nnef_grad.training.draft import Draft

Gradients = Mapping[str, Tensor]

# The largest number of single precision: what is not a number is not below it.
LARGEST = 3.4028234663852886e38
# As in torch: a norm of zero divides nothing by zero.
_SMALL = 1e-6
# What the text says of the norm of all gradients, which are too many to be listed there.
(_CLIP_NORM,) = parse_fragments(
    Source("clip_norm", "fragment clip_norm( norm: scalar ) -> ( y: tensor<scalar> );")
)


class Clipping(NamedTuple):
    """How gradients are bounded: the largest absolute value of an element, and the largest
    norm of all gradients together; None for any.
    """

    value: float | None = None
    norm: float | None = None


def of_each(
    draft: Draft,
    gradients: Gradients,
    operation: str,
    *operands: Tensor | float,
    word: str,
) -> dict[str, Tensor]:
    """The results of an operation on each gradient, called by a word."""
    results = {}
    for name, gradient in gradients.items():
        draft.emit.naming = f"{{}}_{name}".format
        results[name] = draft.emit(operation, gradient, *operands, hint=word)
    return results


def finite(draft: Draft, gradients: Gradients) -> Tensor:
    """Whether all elements of all gradients are numbers: a logical tensor of rank 0."""
    parts = []
    for name, gradient in gradients.items():
        draft.emit.naming = f"{{}}_{name}".format
        size = draft.emit("abs", gradient, hint="size")
        below = draft.emit("le", size, LARGEST, hint="below_largest")
        parts.append(draft.reduced(below, "all_reduce", "finite"))
    return _combined(draft, "and", parts, "all_finite")


def clipped(draft: Draft, gradients: Gradients, clipping: Clipping) -> Gradients:
    """Gradients within bounds: first each element, then the norm of all of them."""
    value, norm = clipping
    if value is not None:
        gradients = of_each(draft, gradients, "clamp", -value, value, word="clamped")
    if norm is not None:
        factor = _factor(draft, gradients, norm)
        gradients = of_each(draft, gradients, "mul", factor, word="clipped")
    draft.emit.origin = None
    return gradients


def _factor(draft: Draft, gradients: Gradients, bound: float) -> Tensor:
    """The factor that keeps the norm within a bound: a tensor of rank 0. It is listed under
    an invocation, as if it were an operation.
    """
    emit, settings = draft.emit, {"norm": bound}
    result = emit.tensor("scalar", (), "factor")
    emit.origin = Operation(_CLIP_NORM, (), settings, (result,))  # type: ignore[arg-type]
    parts = []
    for name, gradient in gradients.items():
        emit.naming = f"{{}}_{name}".format
        square = emit("sqr", gradient, hint="square")
        parts.append(draft.reduced(square, "sum_reduce", "squares"))
    norm = emit("sqrt", _combined(draft, "add", parts, "square_norm"), hint="norm")
    divisor = emit("add", norm, _SMALL, hint="divisor")
    ratio = emit("div", bound, divisor, hint="ratio")
    return emit("min", ratio, 1.0, hint="factor")


def _combined(
    draft: Draft, operation: str, parts: Iterable[Tensor], word: str
) -> Tensor:
    """Tensors of rank 0, made one by an operation of two."""
    emit = draft.emit
    emit.naming = str
    whole = reduce(lambda x, y: emit(operation, x, y, hint=f"{word}_of_some"), parts)
    emit.set_hint(whole, word)
    return whole


# ---- Tensors that are full of one known number: the gradient of a loss begins as ones ----

# What leaves the numbers of a tensor as they are, in another order or shape.
_MOVING = {"copy", "reshape", "squeeze", "transpose", "unsqueeze"}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
}
_BROADCASTING = {*_ARITHMETIC, "max", "min", "select"}


def fold_numbers(graph: Graph, opset: OpSet) -> Graph:
    """The graph with a literal in place of each tensor that is full of one number, where
    another operand has the shape of the result.
    """
    known: dict[Any, float] = {}

    def body(operation: Operation) -> Decompose | None:
        operands = tuple([known.get(x, x) for x in operation.operands])
        value, shape = _value(operation, operands), operation.outputs[0].shape
        if value is not None:
            known[operation.outputs[0]] = value
            if operation.name == "constant":
                return None
            return lambda emit, _: [emit("constant", shape=shape, value=(value,))]
        is_changed = operands != operation.operands and operation.name in _BROADCASTING
        if is_changed and broadcast(*map(shape_of, operands)) == shape:
            return lambda emit, op: emit.emit_again(op, operands)
        return None

    return inline(graph, body, opset)


def _value(operation: Operation, operands: Sequence[Operand]) -> float | None:
    """The number that the result of an operation is full of, if that is known."""
    if operation.name == "constant" and operation.outputs[0].dtype == "scalar":
        first, *others = {*operation.attributes["value"]}
        return None if others else first
    numbers = [x for x in operands if isinstance(x, float)]
    if not numbers or len(numbers) < len(operands):
        return None
    if operation.name in _MOVING:
        return numbers[0]
    if operation.name not in _ARITHMETIC or (
        operation.name == "div" and not numbers[1]
    ):
        return None
    return _ARITHMETIC[operation.name](*numbers)
