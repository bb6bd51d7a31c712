"""gelu, which has no probability to read in NNEF, and its derivative, which needs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.operation_models import document_of

import nnef_grad

GELU = document_of("x = external(shape = [61]); y = gelu(x);")


@pytest.mark.parametrize("target", ["tract", "onnx", "portable"])
def test_the_normal_distribution_is_approximated(target: str) -> None:
    fed = {"x": np.linspace(-9.0, 9.0, 2001)}
    graph = nnef_grad.loads(GELU.replace("61", "2001"))
    exact = nnef_grad.evaluate(graph, fed)["y"]
    found = nnef_grad.evaluate(nnef_grad.lower(graph, target).graph, fed)["y"]
    assert np.abs(found - exact).max() < 5e-8


@pytest.mark.parametrize("target", ["khronos", "tract", "onnx", "portable"])
def test_the_derivative_of_gelu_has_its_probability(target: str) -> None:
    """No element is divided to find it, which the derivative in standard NNEF does."""
    graph = nnef_grad.loads(GELU)
    backward = nnef_grad.differentiate(graph).graph
    lowered = nnef_grad.lower(backward, target).graph
    assert [op.name for op in backward.operations].count("div") == 1
    names = [op.name for op in lowered.operations]
    # That of the approximation; ONNX has the error function.
    approximations = int(target != "onnx")
    assert names.count("div") == names.count("select") == approximations
    assert names.count("tract_core_erf") == 1 - approximations
    fed = {"x": np.linspace(-6, 6, 61), "grad_y": np.linspace(2, 3, 61)}
    expected = nnef_grad.evaluate(backward, fed)["grad_x"]
    found = nnef_grad.evaluate(lowered, fed)["grad_x"]
    np.testing.assert_allclose(found, expected, atol=2e-8)


@pytest.mark.parametrize(("divided", "slope"), [(2.0, 3.0), (1.0, 0.39)])
def test_another_derivative_of_gelu_stays(divided: float, slope: float) -> None:
    """A rule of the user's is computed as it is written, however near it is to ours."""
    rules = nnef_grad.Rules()

    @rules.vjp("gelu")
    def straight(emit: Any, operation: Any, dy: Any) -> list[Any]:
        (x,), (y,) = operation.operands, operation.outputs
        small = emit("lt", emit("sqr", x), 0.5)
        divisor = emit("select", small, divided, x)
        series = emit("add", 0.5, emit("mul", x, slope))
        return [emit("mul", dy, emit("select", small, series, emit("div", y, divisor)))]

    graph = nnef_grad.loads(GELU)
    backward = nnef_grad.differentiate(graph, rules=rules).graph
    fed = {"x": np.linspace(-2, 2, 61), "grad_y": np.linspace(2, 3, 61)}
    expected = nnef_grad.evaluate(backward, fed)["grad_x"]
    found = nnef_grad.evaluate(nnef_grad.lower(backward, "onnx").graph, fed)["grad_x"]
    np.testing.assert_allclose(found, expected, atol=2e-7)
