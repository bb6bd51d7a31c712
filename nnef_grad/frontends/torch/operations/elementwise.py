"""Element by element, with the conventions of PyTorch where a derivative is a choice."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.values import dtype_of, is_known, is_open
from nnef_grad.graph.ir import Tensor

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

# Fragments of one operand.
_UNARY = {
    "deg2rad": "deg2rad", "erf": "erf", "special_erf": "erf", "erfc": "erfc",
    "special_erfc": "erfc", "exp2": "exp2", "special_exp2": "exp2", "expm1": "expm1",
    "special_expm1": "expm1", "frac": "fraction", "log10": "log10", "log1p": "log1p",
    "special_log1p": "log1p", "rad2deg": "rad2deg", "sinc": "sinc",
    "special_sinc": "sinc", "special_entr": "entropy", "special_ndtr": "ndtr",
}  # fmt: skip

# Fragments of two operands.
_BINARY = {
    "atan2": "atan2", "arctan2": "atan2", "copysign": "copysign", "fmax": "larger_number",
    "fmin": "smaller_number", "hypot": "hypot", "ldexp": "ldexp",
    "logaddexp": "logaddexp", "logaddexp2": "logaddexp2", "xlogy": "xlogy",
    "special_xlogy": "xlogy", "special_xlog1py": "xlog1py",
}  # fmt: skip

# Single precision holds all whole numbers below.
_EXACT = 2**24


def whole(call: Call, x: Any) -> Any:
    """Whole scalars as integers, if the result is of integers."""
    is_scalar = isinstance(x, Tensor) and x.dtype == "scalar"
    if not is_scalar or call.result_dtype != "integer":
        return x
    return call.reading.cast(x, "integer", call.hint, call.span)


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


@aten(*_UNARY)
def unary(call: Call, x: Any) -> Any:
    """An operation that is a formula."""
    return call.expand(_UNARY[call.packet], *call.scalars(x))


@aten(*_BINARY)
def binary(call: Call, x: Any, y: Any) -> Any:
    """A formula of two operands."""
    return whole(call, call.expand(_BINARY[call.packet], *numbers(call, x, y)))


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
    return whole(call, made)


_RESTS = {"remainder": "modulo", "fmod": "remainder_of_dividend"}


@aten(*_RESTS)
def rest(call: Call, x: Any, y: Any) -> Any:
    """The remainder of a division, with the sign of the divisor, or of the dividend."""
    return whole(call, call.expand(_RESTS[call.packet], *numbers(call, x, y)))


_POWERS = {2: "sqr", 0.5: "sqrt", -0.5: "rsqrt", -1: "rcp", -2: "rsqr"}


@aten("pow", "float_power")
def power(call: Call, x: Any, y: Any) -> Any:
    """x to the power of y."""
    if isinstance(y, (int, float)) and y in _POWERS:
        return call(_POWERS[y], call.typed(x, call.result_dtype))
    made = call("pow", *numbers(call, x, y))
    is_whole = call.result_dtype == "integer"
    return whole(call, call("round", made)) if is_whole else made


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


# ---- What NNEF has no form of ----

_MISSING = {
    "angle": "complex numbers", "complex": "complex numbers",
    "digamma": "the digamma function", "erfinv": "the inverse of the error function",
    "i0": "a Bessel function", "imag": "complex numbers",
    "lgamma": "the logarithm of the gamma function",
    "mvlgamma": "the logarithm of the gamma function", "polar": "complex numbers",
    "polygamma": "a polygamma function", "real": "complex numbers",
    "special_erfcx": "the scaled error function",
    "special_erfinv": "the inverse of the error function",
    "special_i0": "a Bessel function",
    "special_ndtri": "the inverse of the normal distribution",
}  # fmt: skip


@aten(*_MISSING)
def missing(call: Call, x: Any, y: Any = None) -> Any:
    """Refused: no formula in elementary functions of real numbers is exact enough."""
    call.refuse(
        f"{_MISSING[call.packet]}: NNEF has none, nor a formula for it; compute it with "
        "other functions of real numbers, or outside the module"
    )
