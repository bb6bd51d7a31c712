"""The ranges of tensors: no element lies outside of them, and those that are said to be
finite are.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from support.expressions import Array, draw, draw_tensor, model
from support.operation_models import Model, models

import nnef_grad
from nnef_grad.autodiff.ranges import Ranges
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.interpreter.random_values import random_values
from nnef_grad.ops.ranges import Range


def found(graph: Graph) -> dict[Tensor, Range]:
    ranges = Ranges({t: op for op in graph.operations for t in op.outputs})
    for operation in graph.operations:
        ranges.assume(operation)
    return {t: ranges.of(t) for op in graph.operations for t in op.outputs}


def hold(graph: Graph, inputs: Mapping[str, Array]) -> None:
    """Asserts that the elements of all tensors are in their ranges."""
    ranges = {
        t: r
        for t, r in found(graph).items()
        if t.dtype == "scalar" and t not in graph.inputs
    }
    whole = replace(graph, outputs=tuple(ranges))
    variables = random_values(graph, 0).variables
    for name, values in nnef_grad.evaluate(whole, inputs, variables).items():
        known = ranges[graph.tensors[name]]
        assert not known.is_finite or np.isfinite(values).all(), (name, known)
        numbers = values[np.isfinite(values)]
        slack = 1e-12 * np.abs(numbers)
        assert (numbers >= known.lower - slack).all(), (name, known)
        assert (numbers <= known.upper + slack).all(), (name, known)


@pytest.mark.parametrize("seed", range(20))
def test_random_expressions_keep_to_their_ranges(seed: int) -> None:
    chance = random.Random(seed)
    generator = np.random.default_rng(seed)
    for _ in range(10):
        expression = chance.choice([draw, draw_tensor])(chance, 4)
        x = generator.choice([0.1, 1.0, 10.0]) * generator.standard_normal((3, 3))
        x[0, 0] = 0.0
        hold(nnef_grad.loads(model(f"x + {expression}", (3, 3))), {"x": x})


@pytest.mark.parametrize("given", models(), ids=lambda given: given.name)
def test_operations_and_their_derivatives_keep_to_their_ranges(given: Model) -> None:
    graph = nnef_grad.loads(given.text)
    hold(graph, random_values(graph, 1).inputs)
    backward = nnef_grad.differentiate(graph).graph
    hold(backward, random_values(backward, 2).inputs)


KNOWN = {
    "exp(x)": (-np.inf, np.inf, False),
    "exp(-sqr(x))": (0.0, 1.0, True),
    "sqrt(x * x + 0.25)": (0.5, np.inf, True),
    "1.0 / (2.0 + tanh(x))": (1 / 3, 1.0, True),
    "log(x)": (-np.inf, np.inf, False),
    "log(1.5 + sin(x))": (np.log(0.5), np.log(2.5), True),
    "pow(0.5 + sqr(x), -0.75)": (0.0, 0.5**-0.75, True),
    "pow(x, 2.0)": (0.0, np.inf, True),
    "pow(x, 0.5)": (-np.inf, np.inf, False),
    "sqrt(x)": (-np.inf, np.inf, False),
    "clamp(x, -1.0, 2.0)": (-1.0, 2.0, True),
    "select(x > 0.0, sigmoid(x), -abs(x))": (-np.inf, 1.0, True),
    "asin(0.5 * cos(x))": (np.arcsin(-0.5), np.arcsin(0.5), True),
    "x / 4.0": (-np.inf, np.inf, True),
    "sum_reduce(select(x == max_reduce(x, axes = [0]), 1.0, 0.0), axes = [0])": (
        1.0,
        np.inf,
        True,
    ),
    "1.0 / x": (-np.inf, np.inf, False),
    "exp(x - max_reduce(x, axes = [0]))": (0.0, 1.0, True),
    "sum_reduce(exp(x - max_reduce(x, axes = [0])), axes = [0])": (1.0, np.inf, True),
    "sum_reduce(exp(x - max_reduce(x, axes = [0])), axes = [])": (0.0, np.inf, True),
    "sum_reduce(exp(x - max_reduce(x, axes = [0])), axes = [0], normalize = true)": (
        0.0,
        1.0,
        True,
    ),
    "sum_reduce(exp(x - min_reduce(x, axes = [0])), axes = [0])": (
        -np.inf,
        np.inf,
        False,
    ),
    "sum_reduce(exp(x), axes = [0])": (-np.inf, np.inf, False),
    "sum_reduce(0.25 + sqr(x), axes = [0])": (0.25, np.inf, True),
    "sum_reduce(0.25 + sigmoid(x), axes = [0], normalize = true)": (0.25, 1.25, True),
}


@pytest.mark.parametrize("expression", KNOWN)
def test_what_is_known_of(expression: str) -> None:
    graph = nnef_grad.loads(model(expression, [3]))
    (output,) = graph.outputs
    known = found(graph)[output]
    lower, upper, is_finite = KNOWN[expression]
    assert (known.lower, known.upper) == pytest.approx((lower, upper))
    assert known.is_finite == is_finite


@pytest.mark.parametrize(
    "expression", ["sqrt(sqr(sqr(1.0e-20 + sqr(x))))", "max(x, 1.0e-50)"]
)
def test_what_single_precision_rounds_to_zero_may_be_zero(expression: str) -> None:
    graph = nnef_grad.loads(model(expression, [3]))
    known = found(graph)[graph.outputs[0]]
    assert known.lower == 0.0
    assert not known.has_finite_reciprocal


@pytest.mark.parametrize(
    "statements",
    [
        "p = pow(m, 2.0); q = sub(p, 9.0);",
        "p = pow(m, 1.0); q = sub(p, 3.0);",
        "u = clamp(x, 1.0, 2.0); p = pow(m, u); q = sub(p, 3.0);",
        "e = exp(neg(add(v, 86.0))); q = sub(4.4737793061811207e-38, e);",
    ],
)
def test_bounds_are_not_rounded_inwards(statements: str) -> None:
    """A power that may be its least number less that number may be zero: the slope of its
    root is infinite there, and a branch that is not taken has no gradient.
    """
    text = f"""version 1.0;
graph net( x, w ) -> ( y )
{{
    x = external(shape = [2]);
    w = external(shape = [2]);
    c = gt(x, 0.0);
    v = sqr(w);
    m = min(add(v, 3.0), 5.0);
    {statements}
    s = sqrt(q);
    y = select(c, s, 0.0);
}}
"""
    backward = nnef_grad.differentiate(nnef_grad.loads(text), wrt="w", seed="ones")
    values = {"x": np.array([-1.0, 1.0]), "w": np.array([0.0, 1.0])}
    with np.errstate(all="ignore"):
        gradient = nnef_grad.evaluate(backward, values)["grad_w"]
    assert gradient[0] == 0.0
