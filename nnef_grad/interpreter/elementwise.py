"""Element-wise operations: shapes align from the left, missing dimensions are trailing
singletons.

Where the body of an operation would overflow or cancel, an equivalent stable form is
used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import erfc, sqrt
from typing import Any

import numpy as np

from nnef_grad.graph.ir import STOP
from nnef_grad.interpreter.reduce import max_reduce, sum_reduce
from nnef_grad.interpreter.registry import Array, choice, enter_all, evaluation


def aligned(*operands: Array) -> list[Array]:
    """The operands, with trailing axes of extent 1 up to a common rank."""
    rank = max(x.ndim for x in operands)
    return [x.reshape(x.shape + (1,) * (rank - x.ndim)) for x in operands]


def broadcasting(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with operands broadcast as in NNEF, from the left."""
    return lambda *operands: function(*aligned(*operands))


# ---- Unary ----

enter_all(
    {
        "copy": np.copy,
        STOP: np.copy,
        "neg": np.negative,
        "rcp": lambda x: 1.0 / x,
        "abs": np.abs,
        "sign": np.sign,
        "exp": np.exp,
        "log": np.log,
        "log2": np.log2,
        "sin": np.sin,
        "cos": np.cos,
        "tan": np.tan,
        "asin": np.arcsin,
        "acos": np.arccos,
        "atan": np.arctan,
        "sinh": np.sinh,
        "cosh": np.cosh,
        "tanh": np.tanh,
        "asinh": np.arcsinh,
        "acosh": np.arccosh,
        "atanh": np.arctanh,
        "sqr": np.square,
        "sqrt": np.sqrt,
        "rsqr": lambda x: np.power(x, -2.0),
        "rsqrt": lambda x: 1.0 / np.sqrt(x),
        "floor": np.floor,
        "ceil": np.ceil,
        "not": np.logical_not,
    }
)


@evaluation("round")
def rounded(x: Array) -> Array:
    """Rounding to the nearest integer; halves go up."""
    return np.floor(x + 0.5)


# ---- Binary and ternary ----

add, mul = broadcasting(np.add), broadcasting(np.multiply)
lt, gt = broadcasting(np.less), broadcasting(np.greater)
select = broadcasting(np.where)

enter_all(
    {
        "add": add,
        "sub": broadcasting(np.subtract),
        "mul": mul,
        "div": broadcasting(np.divide),
        "pow": broadcasting(np.power),
        "lt": lt,
        "gt": gt,
        "le": broadcasting(np.less_equal),
        "ge": broadcasting(np.greater_equal),
        "eq": broadcasting(np.equal),
        "ne": broadcasting(np.not_equal),
        "and": broadcasting(np.logical_and),
        "or": broadcasting(np.logical_or),
        "select": select,
    }
)

# The second operand at a tie, and if one is NaN.
minimum = choice("min", lt)(select)
maximum = choice("max", gt)(select)


@evaluation("clamp")
def clamp(x: Array, a: Array, b: Array) -> Array:
    """max(min(x, b), a): the lower bound wins."""
    bounded: Array = maximum(minimum(x, b), a)
    return bounded


@evaluation("add_n")
def add_n(x: Sequence[Array]) -> Array:
    """The sum of one term or more."""
    return reduce(add, x)


@evaluation("copy_n")
def copy_n(x: Array, times: int) -> list[Array]:
    """The same tensor, several times."""
    return [x] * times


# ---- Activations ----


def is_negative(x: Array, *_: Array, **attributes: float) -> Array:
    """Which elements of the first operand are negative."""
    return np.asarray(x < 0.0)


@choice("relu", lambda x: x > 0.0)
def relu(is_positive: Array, x: Array) -> Array:
    """max(x, 0)"""
    return np.where(is_positive, x, 0.0)


@choice("prelu", is_negative)
def prelu(is_negative: Array, x: Array, alpha: Array) -> Array:
    """alpha * x below zero; alpha broadcasts."""
    activated: Array = select(is_negative, mul(alpha, x), x)
    return activated


@choice("leaky_relu", is_negative)
def leaky_relu(is_negative: Array, x: Array, alpha: float) -> Array:
    """alpha * x below zero."""
    return np.where(is_negative, alpha * x, x)


def _elu(is_negative: Array, x: Array, alpha: float) -> Array:
    """alpha * (exp(x) - 1) below zero, without the cancellation near zero."""
    return np.where(is_negative, alpha * np.expm1(x), x)


choice("elu", is_negative)(_elu)


@choice("selu", is_negative)
def selu(is_negative: Array, x: Array, alpha: float, **attributes: float) -> Array:
    """elu times lambda, which is a keyword of Python."""
    return attributes["lambda"] * _elu(is_negative, x, alpha)


@evaluation("sigmoid")
def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)); an exponential that overflows correctly gives zero."""
    return 1.0 / (1.0 + np.exp(-x))


@evaluation("gelu")
def gelu(x: Array) -> Array:
    """The exact x * Phi(x), by erfc: 1 + erf would cancel in the tail."""
    probability: Array = 0.5 * _erfc(-sqrt(0.5) * x)
    return x * probability


_erfc = np.vectorize(erfc, otypes=[np.float64])


@evaluation("softplus")
def softplus(x: Array) -> Array:
    """log(exp(x) + exp(0)), with the larger exponential factored out."""
    return np.logaddexp(x, np.zeros_like(x))


@evaluation("softmax")
def softmax(x: Array, axes: tuple[int, ...]) -> Array:
    """exp(x) / sum(exp(x)); subtracting the maximum keeps exp from overflowing."""
    powers: Array = np.exp(x - max_reduce(x, axes))
    return powers / sum_reduce(powers, axes)


enter_all(
    {
        "silu": lambda x: x * sigmoid(x),
        "softabs": lambda x, epsilon: np.sqrt(np.square(x) + epsilon),
    }
)
