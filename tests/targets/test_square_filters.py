"""OpenVINO takes a filter that it has rearranged for a convolution for that of a deconvolution
where it has as many channels in as out: each gets one of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnef_grad import differentiate, interop, loads
from nnef_grad.runtimes import find_runtime

# The gradient is a deconvolution by the same filter.
TEXT = """version 1.0;
graph net( x ) -> ( y )
{
    x = external(shape = [1, 16, 3, 1]);
    w = variable(shape = [16, 16, 3, 1], label = 'w');
    a = conv(x, w, padding = [(0, 0), (0, 0)]);
    y = tanh(a);
}"""


# What is stored in half precision is cast before it is read.
TYPES = pytest.mark.parametrize("dtype", [np.float32, np.float16])


@TYPES
def test_a_filter_read_in_two_ways(dtype: type) -> None:
    pytest.importorskip("openvino")
    graph = differentiate(loads(TEXT), with_outputs=True)
    random = np.random.default_rng(0)
    data: dict[str, Any] = {"w": random.standard_normal((16, 16, 3, 1)).astype(dtype)}
    fed = [
        random.standard_normal(x.shape).astype(np.float32) for x in graph.graph.inputs
    ]
    wanted, found = (
        find_runtime(runtime).compile(graph.graph, data)(fed)
        for runtime in ("numpy", "openvino")
    )
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@TYPES
def test_a_portable_file_has_two_filters(dtype: type, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    data: dict[str, Any] = {"w": np.ones((16, 16, 3, 1), dtype)}
    path = tmp_path / "m.onnx"
    backward = differentiate(loads(TEXT))
    interop.to_onnx(backward, path, data, target="onnx-portable")
    model = onnx.load(path)
    kinds = {node.op_type for node in model.graph.node}
    stored = [x.name for x in model.graph.initializer if list(x.dims) == [16, 16, 3, 1]]
    assert len(stored) == 1 + ("ConvTranspose" in kinds)
