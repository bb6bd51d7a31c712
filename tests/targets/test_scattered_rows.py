"""Rows of a table that receive gradients, for each example, and onto those of its other uses."""

from __future__ import annotations

import numpy as np
import pytest
from support.checks import document

import nnef_grad
from nnef_grad.runtimes import find_runtime
from nnef_grad.targets import lower

WORDS = "i = external<integer>(shape = [3, 4]);\nw = variable(shape = [9, 2], label = 'w');\ne = gather(w, i);\n"
# Scores by the table that words were taken from; the gradients are added up.
TIED = (
    WORDS
    + "h = reshape(tanh(e), shape = [12, 2]);\ns = matmul(h, w, transposeB = true);\ny = reshape(s, shape = [3, 4, 9]);"
)
GRAPHS = {
    "tied": (TIED, True),
    "tied, summed": (TIED, False),
    "rows": (WORDS + "y = sqr(e);", True),
    "unread": (WORDS.replace("e = gather", "y = gather"), True),
    "an axis more": (
        WORDS.replace("[3, 4]", "[3, 2, 2]") + "y = sqr(e);",
        True,
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("least", [0, -2])
def test_gradients_in_onnx_runtime(name: str, least: int) -> None:
    """Indices below zero or too large, which no gather has, receive nothing."""
    pytest.importorskip("onnxruntime")
    body, per_example = GRAPHS[name]
    graph = nnef_grad.loads(document(body, "i"))
    backward = nnef_grad.differentiate(graph, per_example=per_example)
    text = nnef_grad.dumps(lower(backward.graph, "onnx").graph)
    assert "scatter_nd" in text
    assert "onehot" not in text
    assert ("zeros" in text) == (not name.startswith("tied"))
    is_read = name != "unread"
    assert ("clamp" in text) == (not is_read)
    random = np.random.default_rng(0)
    i = random.integers(
        least if not is_read else 0,
        9 - (least if not is_read else 0),
        graph.inputs[0].shape,
    )
    fed = {"i": i, "grad_y": random.standard_normal(graph.outputs[0].shape)}
    data = {"w": random.standard_normal((9, 2))}
    wanted = nnef_grad.evaluate(backward, fed, data)["grad_w"]
    run = find_runtime("onnxruntime").compile(backward.graph, data)
    (found,) = run([i, fed["grad_y"].astype(np.float32)])
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_product_that_is_read_elsewhere_stays_apart() -> None:
    """What it is added to is not changed under others."""
    graph = nnef_grad.loads(document(TIED, "i"))
    backward = nnef_grad.differentiate(graph, per_example=True)
    text = nnef_grad.dumps(backward).replace(
        "-> ( grad_w )", "-> ( grad_w, grad_w_from_e )"
    )
    kept = nnef_grad.loads(text)
    lowered = nnef_grad.dumps(lower(kept, "onnx").graph)
    assert "grad_w = add(" in lowered
    assert "zeros" in lowered


@pytest.mark.parametrize(
    "target", ["nnef", "portable", "onnx-portable", "tract", "khronos"]
)
def test_other_targets_have_the_product(target: str) -> None:
    graph = nnef_grad.loads(document(TIED, "i"))
    backward = nnef_grad.differentiate(graph, per_example=True)
    assert "scatter_nd" not in nnef_grad.dumps(lower(backward.graph, target).graph)


def test_an_open_number_of_examples_has_the_product() -> None:
    text = document(WORDS.replace("[3, 4]", "[n, 4]") + "y = sqr(e);", "i")
    opened = text.replace(";", ";\nextension tract_symbol n;", 1)
    backward = nnef_grad.differentiate(nnef_grad.loads(opened), per_example=True)
    assert "scatter_nd" not in nnef_grad.dumps(lower(backward.graph, "onnx").graph)
