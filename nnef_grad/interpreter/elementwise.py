"""Element-wise operations: shapes align from the left, missing dimensions are trailing
singletons. Matrix products, whose biases align in this way. Reductions: the reduced axes
stay, with extent 1.

Where the body of an operation would overflow or cancel, an equivalent stable form is
used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import erfc, prod, sqrt
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.graph.ir import STOP
from nnef_grad.interpreter.registry import choice, enter, require

Axes = tuple[int, ...]


def aligned(*operands: Array) -> list[Array]:
    """The operands, with trailing axes of extent 1 up to a common rank."""
    rank = max(x.ndim for x in operands)
    return [x.reshape(x.shape + (1,) * (rank - x.ndim)) for x in operands]


def broadcasting(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with operands broadcast as in NNEF, from the left. Those of a graph with
    symbols may not be, for some of their numbers.
    """

    def broadcast(*operands: Array) -> Any:
        whole = aligned(*operands)
        shapes = [x.shape for x in whole]
        fits = all(len({*axis} - {1}) < 2 for axis in zip(*shapes, strict=True))
        require(fits, f"the shapes {' and '.join(map(str, shapes))} do not fit")
        return function(*whole)

    return broadcast


def rounded(x: Array) -> Array:
    """Rounding to the nearest integer; halves go up."""
    return np.floor(x + 0.5)


add, mul = broadcasting(np.add), broadcasting(np.multiply)
lt, gt = broadcasting(np.less), broadcasting(np.greater)
select = broadcasting(np.where)

enter(
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
        "round": rounded,
        "not": np.logical_not,
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
        "add_n": lambda x: reduce(add, x),
        "copy_n": lambda x, times: [x] * times,
    }
)

# The second operand at a tie, and if one is NaN.
minimum = choice("min", lt)(select)
maximum = choice("max", gt)(select)


def clamp(x: Array, a: Array, b: Array) -> Array:
    """max(min(x, b), a): the lower bound wins."""
    bounded: Array = maximum(minimum(x, b), a)
    return bounded


# ---- Reductions ----


def sum_reduce(input: Array, axes: Axes, normalize: bool = False) -> Array:
    """The sum, or the mean."""
    total: Array = input.sum(axis=axes, keepdims=True)
    return total / _volume(input, axes) if normalize else total


def mean_reduce(input: Array, axes: Axes) -> Array:
    """The sum, divided by the number of its terms."""
    return sum_reduce(input, axes, normalize=True)


def _moments(input: Array, axes: Axes) -> list[Array]:
    """Mean and population variance."""
    mean = mean_reduce(input, axes)
    return [mean, mean_reduce(np.square(input - mean), axes)]


def _reduction(function: Callable[..., Any], **start: float) -> Callable[..., Array]:
    """A reduction of numpy; start is the result for nothing, if numpy has none."""
    return lambda x, axes: np.asarray(function(x, axis=axes, keepdims=True, **start))


max_reduce = _reduction(np.max, initial=-np.inf)
min_reduce = _reduction(np.min, initial=np.inf)


def _position(find: Callable[..., Array]) -> Callable[[Array, Axes], Array]:
    """The index of the first extremum, in row-major order over the reduced axes."""

    def position(input: Array, axes: Axes) -> Array:
        volume = _volume(input, axes)
        require(volume > 0, "there is no extremum of nothing")
        kept = [axis for axis in range(input.ndim) if axis not in axes]
        rows = input.transpose(*kept, *sorted(axes))
        rows = rows.reshape(*rows.shape[: len(kept)], volume)
        return np.expand_dims(find(rows, axis=-1), axes)

    return position


def _volume(input: Array, axes: Axes) -> int:
    """The number of elements reduced to one."""
    return prod(input.shape[axis] for axis in axes)


enter(
    {
        "sum_reduce": sum_reduce,
        "mean_reduce": mean_reduce,
        "moments": _moments,
        "max_reduce": max_reduce,
        "min_reduce": min_reduce,
        "all_reduce": _reduction(np.all),
        "any_reduce": _reduction(np.any),
        "argmax_reduce": _position(np.argmax),
        "argmin_reduce": _position(np.argmin),
    }
)


# ---- Activations ----


def _is_negative(x: Array, *_: Array, **attributes: float) -> Array:
    return np.asarray(x < 0.0)


def _elu(is_negative: Array, x: Array, alpha: float) -> Array:
    """alpha * (exp(x) - 1) below zero, without the cancellation near zero."""
    return np.where(is_negative, alpha * np.expm1(x), x)


@choice("selu", _is_negative)
def selu(is_negative: Array, x: Array, alpha: float, **attributes: float) -> Array:
    """elu times lambda, which is a keyword of Python."""
    return attributes["lambda"] * _elu(is_negative, x, alpha)


choice("elu", _is_negative)(_elu)
choice("relu", lambda x: x > 0.0)(lambda is_positive, x: np.where(is_positive, x, 0.0))
choice("prelu", _is_negative)(
    lambda is_negative, x, alpha: select(is_negative, mul(alpha, x), x)
)
choice("leaky_relu", _is_negative)(
    lambda is_negative, x, alpha: np.where(is_negative, alpha * x, x)
)


def _sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)); an exponential that overflows correctly gives zero."""
    return 1.0 / (1.0 + np.exp(-x))


def _softmax(x: Array, axes: Axes) -> Array:
    """exp(x) / sum(exp(x)); subtracting the maximum keeps exp from overflowing."""
    powers: Array = np.exp(x - max_reduce(x, axes))
    return powers / sum_reduce(powers, axes)


_erfc = np.vectorize(erfc, otypes=[np.float64])


def _batch_normalization(*operands: Array, epsilon: float) -> Array:
    x, mean, variance, offset, scale = aligned(*operands)
    normalized: Array = offset + scale * (x - mean) / np.sqrt(variance + epsilon)
    return normalized


# ---- Matrix products ----


def _matmul(
    A: Array, B: Array, transposeA: bool = False, transposeB: bool = False
) -> Array:
    """The product of the last two axes. Ranks are equal; numpy broadcasts the rest."""
    left = A.swapaxes(-1, -2) if transposeA else A
    right = B.swapaxes(-1, -2) if transposeB else B
    return np.asarray(np.matmul(left, right))


enter(
    {
        "clamp": clamp,
        "sigmoid": _sigmoid,
        "silu": lambda x: x * _sigmoid(x),
        # x * Phi(x), by erfc: 1 + erf would cancel in the tail.
        "gelu": lambda x: x * (0.5 * _erfc(-sqrt(0.5) * x)),
        # log(exp(x) + exp(0)), with the larger exponential factored out.
        "softplus": lambda x: np.logaddexp(x, np.zeros_like(x)),
        "softabs": lambda x, epsilon: np.sqrt(np.square(x) + epsilon),
        "softmax": _softmax,
        "batch_normalization": _batch_normalization,
        "matmul": _matmul,
        "linear": lambda x, w, bias: add(_matmul(x, w, transposeB=True), bias),
    }
)
