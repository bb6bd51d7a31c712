"""Functions of PyTorch that have a backward function of their own, which makes cotangents of
inputs from those of results: a linear map, of which our calculus takes the transpose T.

Results are y + T(x - x), where gradients flow through the first x alone: what reaches it is what
the backward function makes of theirs, and the value is y.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import unwrap
from textwrap import shorten
from typing import Any, NamedTuple

import torch

from nnef_grad.base.errors import UnsupportedError
from nnef_grad.frontends.torch.derivatives import HELD, TRANSPOSED, VARIABLE
from nnef_grad.frontends.torch.internals import is_fake
from nnef_grad.frontends.torch.linearity import ADVICE


class Own(NamedTuple):
    """A function of PyTorch: its name, and what it is made of."""

    name: str
    forward: Callable[..., Any]
    setup_context: Callable[..., Any]
    backward: Callable[..., Any]
    vjp: Callable[..., Any]

    @property
    def is_split(self) -> bool:
        """Whether its context is set up apart."""
        return self.setup_context is not torch.autograd.Function.setup_context


def own_of(function: Any) -> Own:
    """The parts of a function, while nothing is replaced."""
    parts = (getattr(function, name) for name in Own._fields[1:])
    return Own(function.__name__, *parts)


class Context:
    """The context that the two functions share, as torch has it."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()
        self._apart: tuple[Any, ...] = ()
        self._materializes = True

    def save_for_backward(self, *tensors: Any) -> None:
        """Keeps tensors for the backward function."""
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keeps tensors for the derivative in a direction, which is not asked for."""

    def mark_non_differentiable(self, *results: Any) -> None:
        """Says which results have no gradients."""
        self._apart = results

    def mark_dirty(self, *_: Any) -> None:
        """Says which inputs are written."""
        raise UnsupportedError("it writes into its inputs")

    def set_materialize_grads(self, value: bool) -> None:
        """Says whether there are zeros in place of cotangents that there are none of."""
        self._materializes = value

    def has_gradient(self, y: Any) -> bool:
        """Whether a result has one."""
        is_one = isinstance(y, torch.Tensor) and y.is_floating_point()
        return is_one and not any(y is x for x in self._apart)

    def without(self, y: Any) -> Any:
        """The cotangent of a result that has no gradient."""
        is_tensor = isinstance(y, torch.Tensor)
        return torch.zeros_like(y) if is_tensor and self._materializes else None


def call(
    function: Own,
    args: Sequence[Any],
    active: Sequence[bool],
    linearly: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> Any:
    """The results of a function, whose gradients are those of its backward function.

    Args:
        active: which arguments are tensors that have gradients.
        linearly: makes of the backward function one in which nothing stops gradients, and
            nothing is decided by them.
    """
    context = Context(tuple(active))
    result = _forward(function, context, args)
    results = result if isinstance(result, tuple) else (result,)
    ys = [y for y in results if context.has_gradient(y)]
    gs = [VARIABLE(torch.zeros_like(y)) for y in ys]
    given = iter(gs)
    cotangents = [
        next(given) if context.has_gradient(y) else context.without(y) for y in results
    ]
    made = _backward(function, context, cotangents, linearly)
    pairs = [
        (x, v.sum_to_size(x.shape).to(x.dtype))
        for x, v, is_active in zip(args, made, active, strict=False)
        if is_active and isinstance(v, torch.Tensor)
    ]
    # Also where a backward function that calls this one stops no gradients.
    own = [torch.ops.aten.detach.default(y) for y in ys]
    if pairs and ys:
        us = [x - HELD(x) for x, _ in pairs]
        zeros = TRANSPOSED([v for _, v in pairs], gs, us, function.name)
        own = [y + zero for y, zero in zip(own, zeros, strict=True)]
    found = iter(own)
    whole = tuple(next(found) if context.has_gradient(y) else y for y in results)
    return whole if isinstance(result, tuple) else whole[0]


def forward(function: Own, args: Sequence[Any]) -> Any:
    """The results of a function where torch keeps no gradients."""
    return _forward(function, Context((False,) * len(args)), args)


def stand_ins(
    function: Own, called: Callable[[Own, Sequence[Any], Sequence[bool]], Any]
) -> dict[str, Callable[..., Any]]:
    """What torch calls in place of what a function is made of.

    Args:
        called: calls a function, with its arguments, and which of them have gradients.
    """

    def forward(*args: Any) -> Any:
        given = args if function.is_split else args[1:]
        return called(
            function, given, [is_fake(x) and x.is_floating_point() for x in given]
        )

    def set_up(*_: Any) -> None:
        """There is a context of ours."""

    return {
        "forward": forward,
        **({"setup_context": set_up} if function.is_split else {}),
    }


def _forward(function: Own, context: Context, args: Sequence[Any]) -> Any:
    """The results, by either of the two forms of such functions."""
    if not function.is_split:
        return function.forward(context, *args)
    result = function.forward(*args)
    function.setup_context(context, tuple(args), result)
    return result


def _backward(
    function: Own,
    context: Context,
    cotangents: Sequence[Any],
    linearly: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> tuple[Any, ...]:
    """The backward function on cotangents, without torch's wrapping."""
    is_vjp = function.vjp is not torch.autograd.Function.vjp
    own = unwrap(function.vjp if is_vjp else function.backward)
    try:
        made = linearly(own)(context, *cotangents)
    except Exception as error:
        message = f"the backward function of '{function.name}' cannot be traced"
        why = shorten(" ".join(str(error).split()), 200, placeholder=" ...")
        raise UnsupportedError(f"{message}: {why}; {ADVICE}") from error
    return made if isinstance(made, tuple) else (made,)
