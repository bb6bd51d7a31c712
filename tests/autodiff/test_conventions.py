"""Where a derivative is a choice: every row of docs/conventions.md."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from support import reference
from support.checks import document

import nnef_grad
from nnef_grad.language.library import STDLIB

PAGE = Path(__file__).parents[2] / "docs" / "conventions.md"
INF = math.inf


class Point(NamedTuple):
    """A value of x, of one axis, and the gradient of the sum of the outputs there."""

    statements: str
    x: list[float]
    gradient: list[float]


WINDOW = "padding = [(0, 0), (0, 0), (0, 0)]"
POOLED = f"r = reshape(x, shape = [1, 1, 4]); y = max_pool(r, size = [1, 1, 2], stride = [1, 1, 2], {WINDOW});"

# By the beginning of the row.
ROWS: dict[str, list[Point]] = {
    "`max(x, y)`": [
        Point("y = max(x, 1.0);", [1.0, 0.5, 2.0], [0.0, 0.0, 1.0]),
        Point("y = max(1.0, x);", [1.0, 0.5, 2.0], [1.0, 0.0, 1.0]),
        Point("y = min(x, 1.0);", [1.0, 0.5, 2.0], [0.0, 1.0, 0.0]),
        Point("y = min(1.0, x);", [1.0, 0.5, 2.0], [1.0, 1.0, 0.0]),
    ],
    "`relu`": [Point("y = relu(x);", [0.0, -1000.0, 1000.0], [0.0, 0.0, 1.0])],
    "`clamp`": [
        Point("y = clamp(x, -1.0, 1.0);", [-1.0, 1.0, 0.5, 1000.0], [0.0, 0.0, 1.0, 0.0]),
        Point("y = clamp(0.5, x, 1.0);", [0.5, 0.75, 0.25], [1.0, 1.0, 0.0]),
        Point("y = clamp(0.5, 0.0, x);", [0.5, 0.25, 0.75], [1.0, 1.0, 0.0]),
    ],
    "`abs`": [Point("y = abs(x);", [0.0, -1000.0, 1000.0], [0.0, -1.0, 1.0])],
    "`prelu`, `leaky_relu`": [
        Point("y = prelu(x, 0.5);", [0.0, -2.0], [1.0, 0.5]),
        Point("y = leaky_relu(x, alpha = 0.5);", [0.0, -2.0], [1.0, 0.5]),
        Point("y = elu(x, alpha = 3.0);", [0.0, -1000.0, 1000.0], [1.0, 0.0, 1.0]),
        Point("y = selu(x, alpha = 2.0, lambda = 3.0);", [0.0, 1000.0], [3.0, 3.0]),
    ],
    "ties of `max_reduce`": [
        Point("y = max_reduce(x, axes = [0]);", [2.0, 1.0, 2.0], [0.5, 0.0, 0.5]),
        Point("y = min_reduce(x, axes = [0]);", [1.0, 1.0, 2.0, 1.0], [1 / 3, 1 / 3, 0.0, 1 / 3]),
    ],
    "ties of `max_pool`": [
        Point(POOLED, [2.0, 2.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.0]),
        Point(POOLED.replace("y = max_pool", "y, i = max_pool_with_index"), [2.0, 2.0, 1.0, 3.0], [1.0, 0.0, 0.0, 1.0]),
        Point(
            "r = reshape(x, shape = [1, 1, 4]); c = constant(shape = [1, 2], value = [0.0, 4.0]);"
            " b = constant<integer>(shape = [1, 1], value = [0]); y = max_roi_pool(r, c, b, output_size = [2]);",
            [2.0, 2.0, 1.0, 1.0],
            [1.0, 0.0, 1.0, 0.0],
        ),
    ],
    "`sign`": [
        Point(f"f = {name}(x); y = mul(f, x);", [0.75, -2.5], value)
        for name, value in {
            "sign": [1.0, -1.0],
            "floor": [0.0, -3.0],
            "ceil": [1.0, -2.0],
            "round": [1.0, -2.0],
        }.items()
    ]
    + [
        Point(f"m = {name}(x, 1.0); y = select(m, x, 0.0);", [1.0, 2.0], value)
        for name, value in {"lt": [0.0, 0.0], "ge": [1.0, 1.0], "eq": [1.0, 0.0]}.items()
    ]
    + [Point("i = argmax_reduce(x, axes = [0]); s = cast<scalar>(i); y = mul(s, x);", [1.0, 2.0], [1.0, 1.0])],
    "`min_max_linear_quantize`": [
        Point("y = min_max_linear_quantize(x, 0.0, 3.0, bits = 2, signed = false, symmetric = false);", [0.25, 1.75, -1.0, 4.0, 3.0], [1.0, 1.0, 0.0, 0.0, 0.0]),
        Point("y = linear_quantize(x, 0.0, 3.0, bits = 2);", [0.25, 1.75, -1.0, 4.0], [1.0, 1.0, 0.0, 0.0]),
        Point("c = constant(shape = [1], value = [1.25]); y = min_max_linear_quantize(c, 0.0, x, bits = 2, signed = false, symmetric = false);", [3.0], [1 / 3 - 1.25 / 3]),
        Point("c = constant(shape = [1], value = [5.0]); y = min_max_linear_quantize(c, 0.0, x, bits = 2, signed = false, symmetric = false);", [3.0], [1.0]),
        Point("c = constant(shape = [1], value = [1.25]); y = min_max_linear_quantize(c, x, 3.0, bits = 2, signed = false, symmetric = false);", [0.0], [1.25 / 3 - 1 / 3]),
        Point("y = zero_point_linear_quantize(x, 1, 0.5, bits = 2, signed = false, symmetric = false);", [0.3, 1.1, -0.6, 1.4, -0.8], [1.0, 1.0, 1.0, 0.0, 0.0]),
        Point("c = constant(shape = [1], value = [0.6]); y = zero_point_linear_quantize(c, 0, x, bits = 4, signed = false, symmetric = false);", [0.5], [1.0 - 1.2]),
        Point("c = constant(shape = [1], value = [6.0]); y = zero_point_linear_quantize(c, 0, x, bits = 2, signed = false, symmetric = false);", [0.5], [3.0]),
        Point("y = logarithmic_quantize(x, 4.0, bits = 2);", [3.0, -1.25, 5.0, 0.1], [4.0 / 3.0, 1.0 / 1.25, 0.0, 0.0]),
        Point("c = constant(shape = [1], value = [3.0]); y = logarithmic_quantize(c, x, bits = 2);", [4.0], [0.0]),
    ],
    "`pow(x, y)` with respect to x": [
        Point("y = pow(x, 0.0);", [0.0, 2.0], [0.0, 0.0]),
        Point("y = pow(x, 2.0);", [0.0, 3.0], [0.0, 6.0]),
        Point("y = pow(x, 1.0);", [0.0], [1.0]),
    ],
    "`pow(x, y)` with respect to y": [
        Point("y = pow(0.0, x);", [2.0], [0.0]),
        Point("y = pow(-2.0, x);", [2.0], [0.0]),
    ],
    "`sqrt`, `log`": [
        Point("y = sqrt(x);", [0.0], [INF]),
        Point("y = log(x);", [0.0], [INF]),
        Point("y = log2(x);", [0.0], [INF]),
        Point("y = rcp(x);", [0.0], [-INF]),
        Point("y = rsqrt(x);", [0.0], [-INF]),
        Point("y = rsqr(x);", [0.0], [-INF]),
    ]
    + [
        Point(f"m = gt(x, 0.5); s = {name}(x); y = select(m, s, 0.0);", [0.0, -1.0, 1.0], [0.0, 0.0, value])
        for name, value in {"sqrt": 0.5, "log": 1.0, "rcp": -1.0, "rsqrt": -0.5, "rsqr": -2.0}.items()
    ],
    "`gelu`": [
        Point("y = gelu(x);", [0.0, 1000.0, -1000.0, 1.0], [0.5, 1.0, 0.0, 1.0833154705876864]),
    ],
}  # fmt: skip


def rows() -> list[str]:
    """The first cell of each row of the page."""
    return re.findall(r"^\| (?!where|-)(.*?) \|", PAGE.read_text("utf-8"), re.MULTILINE)


def test_every_row_has_a_test() -> None:
    assert len(rows()) == len(ROWS)
    assert all(row.startswith(start) for row, start in zip(rows(), ROWS, strict=True))


@pytest.mark.parametrize(
    "point",
    [point for points in ROWS.values() for point in points],
    ids=lambda point: point.statements,
)
def test_a_point(point: Point) -> None:
    gradient = sum_gradient(point, [])
    assert gradient == pytest.approx(point.gradient, rel=1e-12, abs=1e-15)


def sum_gradient(point: Point, expand: list[str]) -> list[float]:
    """The gradient of the sum of the outputs, by the backward graph."""
    external = f"x = external(shape = [{len(point.x)}]);"
    text = document(f"{external} {point.statements}")
    graph = nnef_grad.loads(text, expand=expand)
    emitted = nnef_grad.dumps(nnef_grad.differentiate(graph, seed="ones"))
    feeds = {"x": torch.tensor(point.x, dtype=torch.float64)}
    (found,) = reference.outputs(emitted, feeds, {})
    return [float(value) for value in found]


def test_gelu_by_the_body_of_the_standard() -> None:
    point = Point("y = gelu(x);", [1.0], [])
    sigmoid = 1.0 / (1.0 + math.exp(-1.702))
    expected = sigmoid + 1.702 * sigmoid * (1.0 - sigmoid)
    assert sum_gradient(point, ["gelu"]) == pytest.approx([expected])


# The conventions for these are the definitions in the standard library.
BY_DEFINITION = ("`relu`", "`clamp`", "`prelu`, `leaky_relu`", "`max(x, y)`")
DEFINED = [
    (name, point)
    for start in BY_DEFINITION
    for point in ROWS[start]
    for name in re.findall(r"y = (\w+)\(", point.statements)
    if STDLIB[name].body is not None
]


@pytest.mark.parametrize(
    ("name", "point"), DEFINED, ids=[point.statements for _, point in DEFINED]
)
def test_an_expanded_graph_has_the_same_gradients(name: str, point: Point) -> None:
    near = [
        (x, g) for x, g in zip(point.x, point.gradient, strict=True) if abs(x) < 100.0
    ]
    found = sum_gradient(point._replace(x=[x for x, _ in near]), [name])
    assert found == pytest.approx([g for _, g in near])


def test_there_are_definitions_to_compare_with() -> None:
    assert {name for name, _ in DEFINED} >= {"relu", "elu", "leaky_relu"}
