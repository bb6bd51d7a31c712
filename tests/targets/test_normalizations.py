"""Normalizations folded into the filters before them: the gradients stay what they are."""

from __future__ import annotations

import numpy as np
import pytest
from support.checks import document

import nnef_grad
from nnef_grad.interpreter.random_values import random_values
from nnef_grad.runtimes import find_runtime
from nnef_grad.targets import lower

CHANNELS = "".join(
    f"{name} = variable(shape = [1, 4], label = '{name}');\n"
    for name in ("mean", "variance", "offset", "scale")
)
NORMALIZED = "y = batch_normalization(c, mean, variance, offset, scale, epsilon = 0.01);\nz = tanh(y);"
X = "x = external(shape = [3, 2, 6, 7]);\n"
W = "w = variable(shape = [4, 2, 3, 2], label = 'w');\n"
BIAS = "b = variable(shape = [1, 4], label = 'b');\n"
SETTINGS = "padding = [(1, 0), (0, 2)], stride = [2, 1], dilation = [1, 2]"


def model(settings: str = SETTINGS, weights: str = W, bias: str = "0.0") -> str:
    own = BIAS if bias == "b" else ""
    made = f"c = conv(x, w, {bias}, {settings});\n"
    return document(X + weights + own + CHANNELS + made + NORMALIZED, outputs="z")


MODELS = {
    "strided": model(),
    "biased": model(bias="b"),
    "a bias of one number": model(bias="0.5"),
    "automatic padding": model("stride = [2, 3]"),
    "a border that repeats": model(SETTINGS + ", border = 'replicate'"),
    "depthwise": model("groups = 0", W.replace("[4, 2, 3, 2]", "[4, 1, 3, 2]")),
    "groups": model("groups = 2", W.replace("[4, 2, 3, 2]", "[4, 1, 3, 2]")),
    "pointwise": model("padding = [(0, 0), (0, 0)]", W.replace("3, 2]", "1, 1]")),
}
WRT = {
    "all": "all",
    "variables": "variables",
    "no filter": ["x", "scale", "offset"],
    "no scale": ["x", "w"],
    "only the input": ["x"],
    "the statistics": ["x", "w", "mean", "variance", "scale"],
}


@pytest.mark.parametrize("target", ["onnx", "onnx-portable"])
@pytest.mark.parametrize("wrt", WRT)
@pytest.mark.parametrize("name", MODELS)
def test_the_gradients_are_the_same(name: str, wrt: str, target: str) -> None:
    graph = nnef_grad.loads(MODELS[name])
    backward = nnef_grad.differentiate(graph, wrt=WRT[wrt]).graph
    lowered = lower(backward, target)
    values = random_values(backward, 0)
    inputs, data = values.inputs, values.variables
    expected = nnef_grad.evaluate(backward, inputs, data)
    found = nnef_grad.evaluate(lowered.graph, inputs, {**data, **lowered.data})
    for result, array in expected.items():
        assert np.allclose(found[result], array, rtol=1e-11, atol=1e-11), result
    is_left = "batch_normalization" in {op.name for op in lowered.graph.operations}
    assert is_left == (wrt == "no filter" and target == "onnx")


SMALL = model().replace("[3, 2, 6, 7]", "[1, 2, 3, 2]")
READ = model().replace("-> ( z )", "-> ( z, c )")


@pytest.mark.parametrize("text", [SMALL, READ])
def test_others_are_left(text: str) -> None:
    """Images smaller than filters, and results that others read."""
    backward = nnef_grad.differentiate(nnef_grad.loads(text), with_outputs=True).graph
    lowered = lower(backward, "onnx")
    assert "batch_normalization" in {op.name for op in lowered.graph.operations}
    values = random_values(backward, 1)
    expected = nnef_grad.evaluate(backward, values.inputs, values.variables)
    found = nnef_grad.evaluate(
        lowered.graph, values.inputs, {**values.variables, **lowered.data}
    )
    for result, array in expected.items():
        assert np.allclose(found[result], array, rtol=1e-11, atol=1e-11), result


def test_the_gradient_of_a_filter_is_made_once() -> None:
    """That which sums are made of is that of the filter, but for the slope."""
    graph = nnef_grad.loads(model())
    backward = nnef_grad.differentiate(graph, wrt=["w", "scale"]).graph
    names = [op.name for op in lower(backward, "onnx").graph.operations]
    unfolded = [op.name for op in backward.operations]
    assert names.count("conv") == unfolded.count("conv") == 2


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("groups", [1, 4])
def test_a_filter_is_not_taken_for_that_of_the_way_back(
    groups: int, runtime: str
) -> None:
    """OpenVINO reads a filter as it was rearranged for another operation."""
    pytest.importorskip(runtime)
    shape = [16, 16 // groups, 3, 3]
    weights = f"w = variable(shape = {shape}, label = 'w');\n"
    settings = f"padding = [(1, 1), (1, 1)], stride = [2, 2], groups = {groups}"
    text = model(settings, weights).replace("[3, 2, 6, 7]", "[2, 16, 20, 20]")
    graph = nnef_grad.loads(text.replace("[1, 4]", "[1, 16]"))
    backward = nnef_grad.differentiate(graph).graph
    values = random_values(backward, 0)
    fed = [x.astype(np.float32) for x in values.inputs.values()]
    data = {name: x.astype(np.float32) for name, x in values.variables.items()}
    expected = nnef_grad.evaluate(backward, dict(values.inputs), values.variables)
    found = find_runtime(runtime).compile(backward, data)(fed)
    for one, (name, other) in zip(found, expected.items(), strict=True):
        scale = np.abs(other).max()
        np.testing.assert_allclose(one / scale, other / scale, atol=1e-4, err_msg=name)
