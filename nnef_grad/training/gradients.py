"""Gradients before an optimizer uses them: the scale of the loss, clipping.

Gradients are keyed by the name of their variable; results are named after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

from nnef_grad.base.source import Source
from nnef_grad.graph.ir import Operand, Operation, Tensor
from nnef_grad.graph.names import step_names
from nnef_grad.language.library import standard
from nnef_grad.language.parser import parse_fragments
from nnef_grad.language.syntax import Fragment
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
    """How gradients are bounded.

    Attributes:
        value: the largest absolute value of an element; None for any.
        norm: the largest norm of all gradients together; None for any.
    """

    value: float | None = None
    norm: float | None = None


def divided(
    draft: Draft, gradients: Gradients, divisor: Tensor | float, word: str
) -> Gradients:
    """Gradients divided by the scale of the loss, or by how many they are the sum of."""
    return {
        name: _emit(draft, name, "div", gradient, divisor, word=word)
        for name, gradient in gradients.items()
    }


def finite(draft: Draft, gradients: Gradients) -> Tensor:
    """Whether all elements of all gradients are numbers: a logical tensor of rank 0."""
    found = []
    for name, gradient in gradients.items():
        size = _emit(draft, name, "abs", gradient, word="size")
        below = _emit(draft, name, "le", size, LARGEST, word="below_largest")
        found.append(draft.reduced(below, "all_reduce", "finite"))
    return _combined(draft, "and", found, "all_finite")


def clipped(draft: Draft, gradients: Gradients, clipping: Clipping) -> Gradients:
    """Gradients within bounds: first each element, then the norm of all of them."""
    found = gradients
    if clipping.value is not None:
        bound = clipping.value
        found = {name: _clamped(draft, name, g, bound) for name, g in found.items()}
    if clipping.norm is not None:
        factor = _factor(draft, found, clipping.norm)
        found = {
            name: _emit(draft, name, "mul", g, factor, word="clipped")
            for name, g in found.items()
        }
    draft.emit.origin = None
    return found


def _clamped(draft: Draft, name: str, gradient: Tensor, bound: float) -> Tensor:
    operands = gradient, -bound, bound
    _head(draft, standard()["clamp"], operands, f"clamped_{name}")
    below = _emit(draft, name, "min", gradient, bound, word="below")
    return draft.emit("max", below, -bound, hint="clamped")


def _factor(draft: Draft, gradients: Gradients, bound: float) -> Tensor:
    """The factor that keeps the norm within a bound: a tensor of rank 0."""
    _head(draft, _CLIP_NORM, (), "factor", norm=bound)
    squares = []
    for name, gradient in gradients.items():
        square = _emit(draft, name, "sqr", gradient, word="square")
        squares.append(draft.reduced(square, "sum_reduce", "squares"))
    total = _combined(draft, "add", squares, "square_norm")
    emit = draft.emit
    norm = emit("sqrt", total, hint="norm")
    divisor = emit("add", norm, _SMALL, hint="divisor")
    ratio = emit("div", bound, divisor, hint="ratio")
    return emit("min", ratio, 1.0, hint="factor")


def _head(
    draft: Draft,
    definition: Fragment,
    operands: tuple[Operand, ...],
    result: str,
    **attributes: Any,
) -> None:
    """Lists the operations that follow under an invocation, as if it were an operation."""
    results = (draft.emit.tensor("scalar", (), result),)
    draft.emit.origin = Operation(definition, operands, attributes, results)  # type: ignore[arg-type]


def _combined(
    draft: Draft, operation: str, parts: Sequence[Tensor], word: str
) -> Tensor:
    """Tensors of rank 0, made one by an operation of two."""
    draft.emit.naming = str
    hint = f"{word}_of_some"
    whole = reduce(lambda x, y: draft.emit(operation, x, y, hint=hint), parts)
    draft.emit.set_hint(whole, word)
    return whole


def _emit(
    draft: Draft,
    name: str,
    operation: str,
    gradient: Tensor,
    *operands: Tensor | float,
    word: str,
) -> Tensor:
    draft.emit.naming = step_names(f"{{}}_{name}")
    return draft.emit(operation, gradient, *operands, hint=word)
