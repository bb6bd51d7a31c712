"""A branch that is not taken has no gradient, whatever its slope is: orders one to three,
against a reading that computes the branches that are taken, and no others.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from support import lazy_reading
from support.checks import document
from support.expressions import (
    COMPOSITIONS,
    EDGES,
    NORM,
    POINTS,
    WRAPPINGS,
    Array,
    draw,
    draw_tensor,
    model,
)

import nnef_grad
from nnef_grad.graph.extents import as_numbers


# What a derivative is multiplied with before the next one is taken: no two alike.
def weights(count: int, order: int) -> list[float]:
    return [1.0 + 0.25 * ((3 * i + order) % 7) for i in range(count)]


def expected(expression: str, x: Array, orders: int) -> list[list[float]]:
    """The values, then the derivatives of each order, as torch finds them for what is
    taken.
    """
    numbers = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in x.flat]
    tensor = lazy_reading.read(expression, lazy_reading.of_numbers(x.shape, numbers))
    rows = [[float(tensor.at(i).detach()) for i in tensor.indices()]]
    for order in range(orders):
        factors = [torch.tensor(w) for w in weights(len(rows[-1]), order)]
        found = lazy_reading.gradients(tensor, factors, numbers)
        tensor = lazy_reading.of_numbers(x.shape, found)
        rows.append([float(n.detach()) for n in found])
    return rows


def emitted(expression: str, x: Array, orders: int) -> list[list[float]]:
    """The same by backward graphs of backward graphs."""
    graph, feeds = nnef_grad.loads(model(expression, x.shape)), {"x": x}
    rows = []
    for order in range(orders):
        (output,), names = graph.outputs, graph.output_names
        backward = nnef_grad.differentiate(graph, wrt=["x"])
        graph = backward.graph
        factors = weights(int(np.prod(as_numbers(output.shape))), order)
        feeds[backward.seeds[names[0]]] = np.reshape(factors, output.shape)
        values = nnef_grad.evaluate(backward, feeds)
        rows.append([float(v) for v in values[backward.gradients["x"]].flat])
    return rows


def agree(expression: str, x: Array, orders: int = 3) -> int:
    """Asserts equal derivatives of an element-wise expression wherever value and
    derivatives are finite, and returns how many that are.
    """
    values, *wanted = expected(expression, x, orders)
    finite, checked = np.isfinite(values), 0
    found = emitted(expression, x, orders)
    for order, rows in enumerate(zip(found, wanted, strict=True), start=1):
        mine, theirs = map(np.array, rows)
        finite &= np.isfinite(theirs)
        close = np.isclose(mine, theirs, rtol=1e-7, atol=1e-8)
        assert close[finite].all(), (
            f"order {order} of {expression}: {mine}, not {theirs}"
        )
        checked += int(finite.sum())
    return checked


def agree_in_all(expression: str, x: Array, orders: int = 2) -> int:
    """The same for an expression that is not element-wise: up to the first order that
    is not finite everywhere. Returns that order.
    """
    values, *wanted = expected(expression, x, orders)
    rows = [values, *wanted]
    count = next(
        (k for k, row in enumerate(rows) if not np.isfinite(row).all()), len(rows)
    )
    found = emitted(expression, x, max(count - 1, 1))
    for order in range(1, count):
        mine, theirs = np.array(found[order - 1]), np.array(wanted[order - 1])
        close = np.isclose(mine, theirs, rtol=1e-7, atol=1e-8)
        assert close.all(), f"order {order} of {expression}: {mine}, not {theirs}"
    return count


# ---- Functions with an edge at zero ----


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("edge", [*EDGES, *COMPOSITIONS])
def test_an_edge_in_a_branch(edge: str, wrapping: str) -> None:
    # Of every order, on the side that is not taken all, and on the other one at least.
    assert agree(wrapping.format(edge), POINTS) >= 3 * (3 + 1)


@pytest.mark.parametrize(
    "expression",
    [
        "relu(log(x))", "max(log(x), 0.0)", "max(sqrt(x) - 1.0, 0.0)", "min(rcp(x), -3.0)",
        "clamp(log(x), -1.0, 1.0)", "relu(1.0 - rcp(x))", "relu(x * log(x))", "relu(sqrt(x) - 0.6)",
    ],
)  # fmt: skip
def test_what_selects_by_value(expression: str) -> None:
    assert agree(expression, np.array([0.0, 0.25, 0.75, 1.5, 4.0])) >= 3 * 4


def test_a_gradient_that_happens_to_be_zero_is_right() -> None:
    """At x = 2 the cotangent of the logarithm is zero, and its derivative is not."""
    assert agree("(x - 2.0) * log(x)", np.array([2.0])) == 3
    assert agree("select(x > 0.0, (x - 2.0) * sqrt(x), 0.0)", np.array([2.0, 0.0])) == 6


# ---- Sums, parts and repetitions in branches ----


@pytest.mark.parametrize(
    "expression",
    [
        f"select({NORM} > 0.0, x / {NORM}, 0.0)",
        f"select({NORM} > 0.0, log({NORM}), 0.0)",
        "select(x > 0.3, x / (1.0 + sqrt(sum_reduce(x * x, axes = [1]))), 0.0)",
        "select(x < 0.3, 0.0, x / (1.0 + sqrt(sum_reduce(x * x, axes = [1]))))",
        "select(x > 0.0, reshape(log(reshape(x, shape = [6])), shape = [2, 3]), 0.0)",
        "transpose(select(transpose(x, axes = [1, 0]) > 0.0, log(transpose(x, axes = [1, 0])), 0.0), axes = [1, 0])",
        "slice(sqrt(x), axes = [1], begin = [1], end = [3])",
        "concat([slice(rcp(x), axes = [1], begin = [1], end = [2]), slice(x, axes = [1], begin = [0], end = [2])], axis = 1)",
        "max_reduce(sqrt(x), axes = [1])",
        "select(x > 0.0, x * log(mean_reduce(x, axes = [0])), 0.0)",
        "select(sum_reduce(x, axes = [0]) > 0.0, tile(sqrt(sum_reduce(x, axes = [0])), repeats = [2, 1]), x)",
    ],
)  # fmt: skip
def test_of_tensors(expression: str) -> None:
    """All elements of a row are zero, and where no row is divided by, the first."""
    row = [0.0, 0.0, 0.0] if "sum_reduce" in expression else [0.0, 0.25, 1.0]
    assert agree_in_all(expression, np.array([[0.0, 0.5, 2.0], row])) == 3


def test_what_a_pool_passes_over() -> None:
    statements = (
        "x = external(shape = [1, 1, 4]); s = sqrt(x);"
        " y = max_pool(s, size = [1, 1, 2], stride = [1, 1, 2], padding = [(0, 0), (0, 0), (0, 0)]);"
    )
    x = np.array([[[0.0, 4.0, 9.0, 1.0]]])
    graph = nnef_grad.loads(document(statements))
    for expected in ([0.0, 1 / 4, 1 / 6, 0.0], [0.0, -1 / 32, -1 / 108, 0.0]):
        backward = nnef_grad.differentiate(graph, wrt=["x"], seed="ones")
        graph = backward.graph
        found = nnef_grad.evaluate(backward, {"x": x})[backward.gradients["x"]]
        np.testing.assert_allclose(found, [[expected]], rtol=1e-12)


# ---- Random expressions ----


@pytest.mark.parametrize("seed", range(20))
def test_random_expressions(seed: int) -> None:
    chance = random.Random(seed)
    points = np.array([0.0, 1.0, -1.0, 0.5, 2.0, -2.0])
    for _ in range(10):
        branches = draw(chance, 4), draw(chance, 4)
        agree("x * x + select(x > 0.0, {}, {})".format(*branches), points)


@pytest.mark.parametrize("seed", range(10))
def test_random_expressions_of_tensors(seed: int) -> None:
    chance = random.Random(seed)
    x = np.array([[0.0, 1.0, -1.0], [0.5, 2.0, -2.0], [0.0, 0.0, 3.0]])
    for _ in range(10):
        branches = draw_tensor(chance, 3), draw_tensor(chance, 3)
        agree_in_all("x * x + select(x > 0.0, {}, {})".format(*branches), x)


def test_a_cotangent_that_is_zero_by_chance_has_a_derivative() -> None:
    body = "x = external(shape = [2]);\nz = external(shape = [2]);\nl = log(x);\ny = mul(z, l);"
    graph = nnef_grad.loads(document(body, "x, z"))
    product = nnef_grad.hvp(graph)
    x, z = np.array([2.0, 4.0]), np.array([0.0, 3.0])
    feeds = {"x": x, "z": z, "vector_x": np.ones(2), "vector_z": np.zeros(2)}
    found = nnef_grad.evaluate(product, feeds)
    np.testing.assert_allclose(found["hvp_z"], 1.0 / x)
