"""Gradients before an optimizer uses them: the scale of the loss, clipping, noise.

Gradients are keyed by the name of their variable; results are named after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from math import prod
from sys import float_info
from typing import NamedTuple

from nnef_grad.base.errors import UsageError
from nnef_grad.base.source import Source
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.graph.names import with_suffix
from nnef_grad.language.parser import parse_fragments
from nnef_grad.language.syntax import Fragment
from nnef_grad.language.types import LARGEST
from nnef_grad.ops.shape import reshaped
from nnef_grad.training.draft import Draft

Gradients = Mapping[str, Tensor]

# Numbers of single precision count no further.
_MOST_BATCHES = 2**24
# As in torch: a norm of zero divides nothing by zero.
_SMALL = 1e-6
# What the text says of the norm of all gradients, which are too many to be listed there.
_CLIP_NORM, _CLIP_PER_EXAMPLE = (
    parse_fragments(
        Source(name, f"fragment {name}( norm: scalar ) -> ( y: tensor<scalar> );")
    )[0]
    for name in ("clip_norm", "clip_per_example")
)


class Clipping(NamedTuple):
    """How gradients are bounded: the largest absolute value of an element, and the largest
    norm of all gradients together; None for any.
    """

    value: float | None = None
    norm: float | None = None


class Privacy(NamedTuple):
    """How much a step tells of an example: the largest norm of its gradient, and the
    standard deviation of the noise in such norms, if there is any.
    """

    norm: float
    noise: float | None


def positive(what: str, value: float | None) -> float | None:
    """A number, which may have been given as an integer."""
    if value is not None and not 0 < value <= float_info.max:
        raise UsageError(f"{what} must be a positive number, not {value}")
    return None if value is None else float(value)


def privacy_of(
    clip_per_example: float | None, noise: float | None, has_l2: bool, is_scaled: bool
) -> Privacy | None:
    """The privacy of examples, if their gradients are clipped."""
    norm = positive("the largest norm of an example", clip_per_example)
    deviation = positive("the noise", noise)
    if norm is None:
        if deviation is not None:
            message = "noise hides an example whose gradient has a largest norm"
            raise UsageError(f"{message}: give clip_per_example")
        return None
    if has_l2:
        message = "an l2 penalty is of no example: give the optimizer a weight_decay"
        raise UsageError(message)
    if is_scaled:
        raise UsageError("the losses of single examples have no loss scale")
    return Privacy(norm, deviation)


def refuse_count(batches: int) -> None:
    """Raises `UsageError` where the gradients of so many batches cannot be averaged."""
    message = f"gradients of {batches} batches cannot be accumulated"
    if batches < 1:
        raise UsageError(f"{message}: 1 is the least")
    if batches > _MOST_BATCHES:
        raise UsageError(f"{message}: {_MOST_BATCHES} is the most")


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
        with draft.emit.calling(with_suffix(name)):
            results[name] = draft.emit(operation, gradient, *operands, hint=word)
    return results


def finite(draft: Draft, gradients: Gradients) -> Tensor:
    """Whether all elements of all gradients are numbers: a logical tensor of rank 0."""
    parts = []
    for name, gradient in gradients.items():
        with draft.emit.calling(with_suffix(name)):
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
        with draft.emit.deriving(_heading(draft, _CLIP_NORM, norm)):
            factor = _factor(draft, gradients, norm)
            gradients = of_each(draft, gradients, "mul", factor, word="clipped")
    return gradients


def clipped_per_example(draft: Draft, gradients: Gradients, bound: float) -> Gradients:
    """The sums over the examples, along the leading axis, of gradients whose norm is within
    a bound for each example.
    """
    emit, sums = draft.emit, dict[str, Tensor]()
    shape = next(iter(gradients.values())).shape[:1]
    with emit.deriving(_heading(draft, _CLIP_PER_EXAMPLE, bound, shape)):
        factor = _factor(draft, gradients, bound, first=1)
        factors = emit("unsqueeze", factor, axes=[0], hint="factors")
        for name, gradient in gradients.items():
            with emit.calling(with_suffix(name)):
                sums[name] = _clipped_sum(emit, factors, gradient)
    return sums


def _clipped_sum(emit: Emitter, factors: Tensor, gradient: Tensor) -> Tensor:
    count, *shape = gradient.shape
    rows = reshaped(emit, gradient, (count, prod(shape)), hint="rows")
    total = emit("matmul", factors, rows, hint="clipped_row")
    return reshaped(emit, total, tuple(shape), hint="clipped")


def noisy(draft: Draft, gradients: Gradients, deviation: float) -> Gradients:
    """Gradients plus noise of a standard deviation, from inputs that have that of one."""
    noise = {}
    for name, gradient in gradients.items():
        draft.noise.append(draft.external(f"noise_{name}", gradient.shape))
        noise[name] = draft.noise[-1]
    scaled = of_each(draft, noise, "mul", deviation, word="scaled_noise")
    results = {}
    for name, gradient in gradients.items():
        with draft.emit.calling(with_suffix(name)):
            results[name] = draft.emit("add", gradient, scaled[name], hint="noisy")
    return results


def _heading(
    draft: Draft, fragment: Fragment, bound: float, shape: Shape = ()
) -> Operation:
    """The invocation under which factors are listed, as if it were an operation."""
    result, settings = draft.emit.tensor("scalar", shape, "factor"), {"norm": bound}
    return Operation(fragment, (), settings, (result,))  # type: ignore[arg-type]


def _factor(draft: Draft, gradients: Gradients, bound: float, first: int = 0) -> Tensor:
    """The factor that keeps the norm of all axes from the first one on within a bound."""
    emit, parts = draft.emit, []
    for name, gradient in gradients.items():
        with emit.calling(with_suffix(name)):
            square = emit("sqr", gradient, hint="square")
            parts.append(draft.reduced(square, "sum_reduce", "squares", first))
    norm = emit("sqrt", _combined(draft, "add", parts, "square_norm"), hint="norm")
    divisor = emit("add", norm, _SMALL, hint="divisor")
    ratio = emit("div", bound, divisor, hint="ratio")
    return emit("min", ratio, 1.0, hint="factor")


def _combined(
    draft: Draft, operation: str, parts: Iterable[Tensor], word: str
) -> Tensor:
    """Tensors of one shape, made one by an operation of two."""
    emit = draft.emit
    whole = reduce(lambda x, y: emit(operation, x, y, hint=f"{word}_of_some"), parts)
    emit.set_hint(whole, word)
    return whole
