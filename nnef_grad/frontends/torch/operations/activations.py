"""Activations of torch.nn, with the derivatives of PyTorch where they have kinks."""

from __future__ import annotations

from typing import Any

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.elementwise import whole
from nnef_grad.frontends.values import shape_of

_OWN = {"relu": "relu", "silu": "silu"}

# Fragments, whose settings are operands.
_FRAGMENTS = {
    "hardshrink": "hard_shrink", "hardsigmoid": "hard_sigmoid", "hardswish": "hard_swish",
    "leaky_relu": "sloped", "log_sigmoid": "log_sigmoid", "mish": "mish",
    "softshrink": "soft_shrink", "threshold": "threshold",
}  # fmt: skip


@aten(*_OWN)
def own(call: Call, x: Any) -> Any:
    """An operation that the standard has."""
    return whole(call, call(_OWN[call.packet], *call.scalars(x)))


@aten("hardsigmoid", "hardswish", "log_sigmoid", "mish")
def formula(call: Call, x: Any) -> Any:
    """A formula."""
    return call.expand(_FRAGMENTS[call.packet], x)


@aten("hardshrink", "leaky_relu", "softshrink")
def formula_with_setting(call: Call, x: Any, setting: Any) -> Any:
    """A formula with a number."""
    return call.expand(_FRAGMENTS[call.packet], *call.scalars(x, setting))


@aten("gelu")
def gelu(call: Call, x: Any, approximate: str) -> Any:
    """x P(X <= x), or its approximation by tanh."""
    return call.expand("gelu_by_tanh", x) if approximate == "tanh" else call("gelu", x)


@aten("hardtanh")
def hardtanh(call: Call, x: Any, low: Any, high: Any) -> Any:
    """x between bounds, at which its derivative is 0."""
    return whole(call, call("clamp", *call.scalars(x, low, high)))


@aten("prelu", "_prelu_kernel")
def prelu(call: Call, x: Any, slope: Any) -> Any:
    """x, or slope x where it is not positive; a slope for each channel has axis 1."""
    rank, own_rank = len(shape_of(x)), len(shape_of(slope))
    if own_rank == 1 and rank != 1:
        slope = call.reshaped(slope, [1, *shape_of(slope)][:rank], "slope")
    return call.expand("sloped", x, slope)


@aten("rrelu")
def rrelu(call: Call, x: Any, low: Any, high: Any, training: bool) -> Any:
    """x, or the mean slope times x: in evaluation."""
    call.require(
        not training, "in training it draws slopes: put it into evaluation mode"
    )
    return call.expand("sloped", x, (low + high) / 2)


@aten("elu")
def elu(call: Call, x: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    """scale x, or scale alpha (exp(input_scale x) - 1) where x is not positive."""
    if (alpha, scale, input_scale) == (1, 1, 1):
        return call("elu", x)
    return call.expand("scaled_elu", x, *call.scalars(alpha, scale, input_scale))


@aten("celu")
def celu(call: Call, x: Any, alpha: Any) -> Any:
    """x, or alpha (exp(x / alpha) - 1) where x is not positive."""
    return elu(call, x, alpha, 1, 1 / alpha)


_SELU = (1.6732632423543772, 1.0507009873554805, 1)


# From there on the softplus of x is x, to single precision.
_LINEAR = 15.0


@aten("softplus")
def softplus(call: Call, x: Any, beta: Any, threshold: Any) -> Any:
    """log(1 + exp(beta x)) / beta, or x where beta x is above a threshold."""
    beta, threshold = call.scalars(beta, threshold)
    scaled = x if beta == 1.0 else call("mul", x, beta, hint="scaled")
    made = call("softplus", scaled)
    made = made if beta == 1.0 else call("div", made, beta)
    if threshold >= _LINEAR:
        return made
    return call("select", call("gt", scaled, threshold, hint="linear"), x, made)
