"""Convolutions with a stride along an axis that has one window: OpenVINO read beside the data."""

from __future__ import annotations

import numpy as np
import pytest
from support.checks import document

import nnef_grad
from nnef_grad.runtimes import find_runtime
from nnef_grad.targets import lower


@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ([3, 1, 9, 4], "stride = [1, 2], padding = [(0, 0), (0, 0)]"),
        ([18, 1, 9, 2], "stride = [1, 3], padding = [(1, 1), (0, 1)]"),
        ([2, 1, 9, 4], "stride = [1, 3], padding = [(0, 1), (2, 0)]"),
        (
            [2, 2, 9, 4],
            "stride = [1, 2], padding = [(0, 0), (0, 0)], dilation = [2, 1]",
        ),
    ],
)
def test_a_stride_that_takes_no_step(shape: list[int], settings: str) -> None:
    pytest.importorskip("openvino")
    body = f"x = external(shape = {shape});\nw = variable(shape = [5, {shape[1]}, 3, 3], label = 'w');\ny = conv(x, w, {settings});"
    graph = nnef_grad.loads(document(body))
    random = np.random.default_rng(0)
    x, data = (
        random.standard_normal(shape),
        {"w": random.standard_normal((5, shape[1], 3, 3))},
    )
    want = nnef_grad.evaluate(graph, {"x": x}, data)["y"]
    lowered = lower(graph, "openvino")
    same = nnef_grad.evaluate(lowered.graph, {"x": x}, {**data, **lowered.data})["y"]
    assert np.allclose(same, want, rtol=1e-12)
    (found,) = find_runtime("openvino").compile(graph, data)([x.astype(np.float32)])
    assert np.allclose(found, want, rtol=1e-4, atol=1e-4)
