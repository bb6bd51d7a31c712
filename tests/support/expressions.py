"""Expressions with edges, where a derivative is not finite, and random ones: in branches
that are taken and in others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from support import lazy_reading
from support.checks import document

Array = npt.NDArray[Any]


def model(expression: str, shape: Sequence[int]) -> str:
    text = document(f"x = external(shape = {list(shape)}); y = {expression};")
    extension = "extension KHR_enable_operator_expressions;"
    return text.replace("version 1.0;", f"version 1.0;\n{extension}")


EDGES = [
    "1.0 / x", "log(x)", "log2(x)", "sqrt(x)", "rsqrt(x)", "rcp(x)", "rsqr(x)", "pow(x, 0.5)",
    "pow(x, 1.5)", "pow(x, -1.0)", "sin(x) / x", "x * log(x)", "asin(1.0 - x)", "acos(1.0 - x)",
    "acosh(1.0 + x)", "atanh(1.0 - x)", "exp(-1.0 / x)",
]  # fmt: skip


COMPOSITIONS = [
    "pow(x, x)", "log(sinh(x))", "sqrt(log(1.0 + x))", "tanh(x) / x", "log(x) / sqrt(x)",
    "sigmoid(log(x))", "exp(-sqr(log(x)))", "silu(1.0 / x)", "gelu(log(x))",
    "(2.0 * x) * log(2.0 * x) * sqrt(2.0 * x)", "softplus(rcp(x))", "cos(rsqrt(x))",
    "sqrt(x) * sqrt(x) * log(x)", "select(x < 1.0, log(x), sqrt(x))", "clamp(rcp(x), -5.0, 3.0)",
    "min(rcp(x), sqrt(x))", "max(log(x), 0.1 * x)", "relu(log(x))", "abs(log(x)) * sqrt(x)",
    "(1.0 - cos(x)) / sqr(x)", "log(1.0 - exp(-x))", "1.0 / (1.0 / x + 1.0 / sqrt(x))",
    "relu(1.0 - 1.0 / x) * log(x)", "select(x > 3.0, exp(x * x), select(x > 0.5, log(x), 1.0 / x))",
]  # fmt: skip


WRAPPINGS = [
    "select(x > 0.0, {}, 0.0)",
    "select(x <= 0.0, 0.0, {})",
    "select(x <= 0.0, x * sin(x), {})",
    "select(x > 0.0, select(x > -1.0, {}, 1.0), 2.0)",
    "x * select(x > 0.0, {}, 0.0) + 1.0 / (1.0 + x * x)",
]


POINTS = np.array([0.0, -2.0, -0.0, 0.25, 0.75, 1.5])


NORM = "sqrt(sum_reduce(x * x, axes = [1]))"


UNARY = list(lazy_reading.FUNCTIONS)


BOUNDS = ["0.0", "1.0", "0.5", "-1.0", "2.0"]


def draw(chance: random.Random, depth: int) -> str:
    """A random expression in x, element by element."""
    if depth == 0:
        return "x" if chance.random() < 0.75 else chance.choice(BOUNDS[1:])

    def inner() -> str:
        return draw(chance, chance.randrange(depth))

    kind = chance.random()
    if kind < 0.3:
        return f"{chance.choice(UNARY)}({inner()})"
    if kind < 0.6:
        return f"({inner()} {chance.choice('+-*/')} {inner()})"
    if kind < 0.7:
        return f"{chance.choice(['max', 'min'])}({inner()}, {inner()})"
    condition = (
        f"{inner()} {chance.choice(['>', '<', '>=', '<='])} {chance.choice(BOUNDS)}"
    )
    return f"select({condition}, {inner()}, {inner()})"


MOVES = [
    "transpose({}, axes = [1, 0])",
    "reshape({}, shape = [3, 3])",
    "concat([slice({}, axes = [1], begin = [0], end = [1]), slice({}, axes = [1], begin = [1], end = [3])], axis = 1)",
    "concat([slice({}, axes = [0], begin = [1], end = [3]), slice({}, axes = [0], begin = [2], end = [3])], axis = 0)",
    "sum_reduce({}, axes = [1])",
    "mean_reduce({}, axes = [0])",
    "max_reduce({}, axes = [1])",
    "tile(slice({}, axes = [1], begin = [1], end = [2]), repeats = [1, 3])",
]


def draw_tensor(chance: random.Random, depth: int) -> str:
    """A random expression of tensors of shape [3, 3], or broadcast to it."""
    if depth == 0:
        return f"(x + {draw(chance, 2)})"

    def inner() -> str:
        return draw_tensor(chance, chance.randrange(depth))

    kind = chance.random()
    if kind < 0.3:
        move = chance.choice(MOVES)
        return move.format(*(f"(x - x + {inner()})" for _ in range(move.count("{}"))))
    if kind < 0.5:
        return f"{chance.choice(UNARY)}({inner()})"
    if kind < 0.7:
        return f"({inner()} {chance.choice('+-*/')} {inner()})"
    condition = f"{inner()} {chance.choice(['>', '<'])} {chance.choice(BOUNDS)}"
    return f"select({condition}, {inner()}, {inner()})"
