"""Element by element, with the conventions of PyTorch where a derivative is a choice."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.values import dtype_of, is_known, is_open, shape_of

# ---- What passes a tensor on ----


@aten("alias", "clone", "contiguous", "lift_fresh", "lift_fresh_copy", "positive")
def itself(call: Call, x: Any) -> Any:
    """The tensor itself: where it lies in memory is no matter of the graph."""
    return x


@aten("to", "_to_copy", "type_as", "float", "double", "half", "int", "long", "bool")
def converted(call: Call, x: Any) -> Any:
    """A conversion: the data type is that of the result in PyTorch."""
    return call.typed(x, call.result_dtype)


@aten("detach", "detach_")
def detach(call: Call, x: Any) -> Any:
    """The tensor, which no gradient flows through."""
    return call.stopped(x)


@aten("item", "_local_scalar_dense")
def item(call: Call, x: Any) -> Any:
    """A number that Python reads: a tensor without axes, and without gradients."""
    return call.stopped(call.reshaped(x, []))


# ---- Functions that are operations of the standard, or formulas ----

# Operations of NNEF that are those of PyTorch.
_SAME = {
    "abs": "abs", "absolute": "abs", "acos": "acos", "arccos": "acos",
    "acosh": "acosh", "arccosh": "acosh", "asin": "asin", "arcsin": "asin",
    "asinh": "asinh", "arcsinh": "asinh", "atan": "atan", "arctan": "atan",
    "atanh": "atanh", "arctanh": "atanh", "cos": "cos", "cosh": "cosh", "exp": "exp",
    "log": "log", "log2": "log2", "neg": "neg", "negative": "neg",
    "reciprocal": "rcp", "rsqrt": "rsqrt", "sgn": "sign", "sigmoid": "sigmoid",
    "special_expit": "sigmoid", "sign": "sign", "sin": "sin", "sinh": "sinh",
    "sqrt": "sqrt", "square": "sqr", "tan": "tan", "tanh": "tanh",
}  # fmt: skip

# Fragments, whose settings are operands.
_FORMULAS = {
    "arctan2": "atan2", "atan2": "atan2", "copysign": "copysign", "deg2rad": "deg2rad",
    "erf": "erf", "erfc": "erfc", "exp2": "exp2", "expm1": "expm1",
    "fmax": "larger_number", "fmin": "smaller_number", "fmod": "remainder_of_dividend",
    "frac": "fraction", "hardshrink": "hard_shrink", "hardsigmoid": "hard_sigmoid",
    "hardswish": "hard_swish", "hypot": "hypot", "isfinite": "is_finite",
    "isinf": "is_infinite", "isneginf": "is_below_all", "isposinf": "is_above_all",
    "ldexp": "ldexp", "leaky_relu": "sloped", "log10": "log10", "log1p": "log1p",
    "log_sigmoid": "log_sigmoid", "logaddexp": "logaddexp", "logaddexp2": "logaddexp2",
    "mish": "mish", "rad2deg": "rad2deg", "remainder": "modulo", "sinc": "sinc",
    "softshrink": "soft_shrink", "special_entr": "entropy", "special_erf": "erf",
    "special_erfc": "erfc", "special_exp2": "exp2", "special_expm1": "expm1",
    "special_log1p": "log1p", "special_ndtr": "ndtr", "special_sinc": "sinc",
    "special_xlog1py": "xlog1py", "special_xlogy": "xlogy", "xlogy": "xlogy",
    # Times a power of two, or divided by one and rounded down.
    "__lshift__": "ldexp", "bitwise_left_shift": "ldexp",
    "__rshift__": "shifted_right", "bitwise_right_shift": "shifted_right",
}  # fmt: skip

# Single precision holds all whole numbers below.
_EXACT = 2**24


def operands(call: Call, *values: Any) -> list[Any]:
    """Operands with the data type of the result, and with as many axes."""
    dtype = call.result_dtype
    if dtype == "integer":
        _require_exact(call, values)
    return call.aligned(*(call.typed(x, dtype) for x in values))


def numbers(call: Call, *values: Any) -> list[Any]:
    """Operands as scalars, with as many axes."""
    if call.result_dtype == "integer":
        _require_exact(call, values)
    return call.aligned(*call.scalars(*values))


def _require_exact(call: Call, values: Any) -> None:
    known = [x for x in values if is_known(x) and not is_open(x)]
    most = max((np.max(np.abs(x), initial=0) for x in known), default=0)
    call.require(
        most < _EXACT,
        f"integers are computed in single precision, which has no {most} exactly",
    )


@aten(*_SAME)
def same(call: Call, x: Any) -> Any:
    """An operation that the standard has."""
    return call(_SAME[call.packet], x)


@aten(*_FORMULAS)
def formula(call: Call, *operands: Any) -> Any:
    """A formula."""
    return call.whole(call.expand(_FORMULAS[call.packet], *numbers(call, *operands)))


# ---- Arithmetic ----

_SUMS = {"add": "add", "sub": "sub", "subtract": "sub"}
# What sums and products of truth values are.
_LOGIC = {"add": "or", "mul": "and"}


@aten(*_SUMS)
def added(call: Call, x: Any, y: Any, alpha: Any = 1) -> Any:
    """x + alpha y, or x - alpha y."""
    name = _SUMS[call.packet]
    x, y = operands(call, x, y)
    if call.result_dtype == "logical":
        return call(_LOGIC[name], x, y)
    return call(name, x, y if alpha == 1 else call("mul", y, alpha, hint="part"))


@aten("mul", "multiply")
def product(call: Call, x: Any, y: Any) -> Any:
    """x y."""
    is_logical = call.result_dtype == "logical"
    return call(_LOGIC["mul"] if is_logical else "mul", *operands(call, x, y))


@aten("div", "divide", "true_divide")
def quotient(call: Call, x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    """x / y, rounded down or towards zero perhaps."""
    made = call("div", *numbers(call, x, y))
    if rounding_mode == "floor":
        made = call("floor", made)
    if rounding_mode == "trunc":
        made = call.expand("towards_zero", made)
    return call.whole(made)


_POWERS = {2: "sqr", 0.5: "sqrt", -0.5: "rsqrt", -1: "rcp", -2: "rsqr"}


@aten("pow", "float_power")
def power(call: Call, x: Any, y: Any) -> Any:
    """x to the power of y."""
    if isinstance(y, (int, float)) and y in _POWERS:
        return call(_POWERS[y], call.typed(x, call.result_dtype))
    made = call("pow", *numbers(call, x, y))
    is_whole = call.result_dtype == "integer"
    return call.whole(call("round", made)) if is_whole else made


# ---- Rounding ----

_ROUNDING = {"floor": "floor", "ceil": "ceil"}


@aten(*_ROUNDING)
def rounded_to_one_side(call: Call, x: Any) -> Any:
    """The next whole number below, or above."""
    return x if dtype_of(x) == "integer" else call(_ROUNDING[call.packet], x)


@aten("trunc", "fix")
def truncated(call: Call, x: Any) -> Any:
    """The next whole number towards zero."""
    return x if dtype_of(x) == "integer" else call.expand("towards_zero", x)


@aten("round", "special_round")
def rounded(call: Call, x: Any, decimals: int = 0) -> Any:
    """The nearest number with so many decimals; halves go to even numbers."""
    if dtype_of(x) == "integer":
        return x
    if not decimals:
        return call.expand("round_even", x)
    factor, (there, back) = 10.0 ** abs(decimals), ("mul", "div")
    if decimals < 0:
        there, back = back, there
    return call(back, call.expand("round_even", call(there, x, factor)), factor)


# ---- Bounds ----


@aten("clamp", "clip")
def clamped(call: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    """x between bounds; its derivative at a bound is 1, as a bound is the first operand
    of the extremum.
    """
    bounds = [("max", low), ("min", high)]
    given = [bound for _, bound in bounds if bound is not None]
    made, *others = operands(call, x, *given)
    for name, bound in zip(
        [n for n, b in bounds if b is not None], others, strict=True
    ):
        made = call(name, bound, made)
    return made


_EXTREMA = {
    "maximum": ("max", "larger"), "max": ("max", "larger"),
    "minimum": ("min", "smaller"), "min": ("min", "smaller"),
}  # fmt: skip


@aten("maximum", "minimum", "max.other", "min.other")
def extremum(call: Call, x: Any, y: Any) -> Any:
    """The larger or the smaller number; both have half of the gradient at a tie."""
    name, fragment = _EXTREMA[call.packet]
    x, y = operands(call, x, y)
    is_scalar = call.result_dtype == "scalar"
    return call.expand(fragment, x, y) if is_scalar else call(name, x, y)


# ---- Signs, and other steps ----


@aten("signbit")
def is_negative(call: Call, x: Any) -> Any:
    """Whether x < 0: zero has no sign in NNEF."""
    return call("lt", x, 0.0)


@aten("logit", "special_logit")
def logit(call: Call, x: Any, eps: float | None = None) -> Any:
    """log(x / (1 - x)), with x between eps and 1 - eps."""
    (x,) = call.scalars(x)
    inside = x if eps is None else clamped(call, x, eps, 1.0 - eps)
    return call.expand("logit", inside)


@aten("bitwise_not")
def complement(call: Call, x: Any) -> Any:
    """Whether it is false; -x - 1 for integers."""
    if call.result_dtype == "logical":
        return call("not", x)
    return call.whole(call("sub", -1.0, *numbers(call, x)))


# ---- Activations: they have the derivatives of PyTorch at their kinks ----


@aten("relu", "silu")
def own(call: Call, x: Any) -> Any:
    """An operation that the standard has."""
    return call.whole(call(call.packet, *call.scalars(x)))


@aten("gelu")
def gelu(call: Call, x: Any, approximate: str) -> Any:
    """x P(X <= x), or its approximation by tanh."""
    return call.expand("gelu_by_tanh", x) if approximate == "tanh" else call("gelu", x)


@aten("hardtanh")
def hardtanh(call: Call, x: Any, low: Any, high: Any) -> Any:
    """x between bounds, at which its derivative is 0."""
    return call.whole(call("clamp", *call.scalars(x, low, high)))


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
