"""Gradients before an optimizer uses them: the scale of the loss, clipping.

Gradients are keyed by the name of their variable; results are named after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import NamedTuple

from nnef_grad.base.source import Source
from nnef_grad.graph.ir import Operation, Tensor
from nnef_grad.language.parser import parse_fragments
from nnef_grad.language.types import LARGEST
from nnef_grad.training.draft import Draft

Gradients = Mapping[str, Tensor]

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
