"""OpenVINO puts the elements of a reduction that keeps its axes in another order, where its
operand has got axes behind them: reductions of portable files keep none.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from nnef_grad import interop, loads
from nnef_grad.runtimes import find_runtime

REDUCTIONS = ("sum_reduce", "mean_reduce", "max_reduce", "min_reduce")


def text(operation: str, place: int, axes: list[int]) -> str:
    return f"""version 1.0;
graph net( x ) -> ( y )
{{
    x = external(shape = [3, 5, 2]);
    a = unsqueeze(exp(x), axes = [{place}]);
    y = {operation}(a, axes = {axes});
}}"""


@pytest.mark.parametrize(
    ("operation", "place", "axes"),
    [*product(REDUCTIONS, range(4), ([0], [1], [2], [0, 1], [1, 3]))],
)
def test_what_has_got_an_axis_is_reduced(
    operation: str, place: int, axes: list[int]
) -> None:
    pytest.importorskip("openvino")
    graph = loads(text(operation, place, axes))
    x = np.random.default_rng(0).standard_normal((3, 5, 2)).astype(np.float32)
    (wanted,), (found,) = (
        find_runtime(runtime).compile(graph, {})([x])
        for runtime in ("numpy", "openvino")
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("operation", REDUCTIONS)
@pytest.mark.parametrize(
    "row",
    [
        "squeeze(reduced, axes = [2])",
        "reshape(reduced, shape = [1, 3])",
        "reshape(squeeze(reduced, axes = [0]), shape = [1, 3])",
    ],
)
def test_a_column_becomes_a_row(operation: str, row: str) -> None:
    """It takes what is made a row of a reduction for a column, without a word."""
    pytest.importorskip("openvino")
    graph = loads(
        "version 1.0; graph net( x ) -> ( y ) { x = external(shape = [2, 3, 1]);"
        f" reduced = {operation}(x, axes = [0]); y = {row}; }}"
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 1)).astype(np.float32)
    (wanted,), (found,) = (
        find_runtime(runtime).compile(graph, {})([x])
        for runtime in ("numpy", "openvino")
    )
    assert found.shape == wanted.shape == (1, 3)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_the_reductions_of_a_portable_file_keep_no_axes(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    kept = {}
    for target in ("onnx", "onnx-portable"):
        path = tmp_path / f"{target}.onnx"
        interop.to_onnx(loads(text("sum_reduce", 3, [0])), path, {}, target=target)
        (node,) = (n for n in onnx.load(path).graph.node if n.op_type == "ReduceSum")
        kept[target] = {a.name: a.i for a in node.attribute}
    assert kept == {"onnx": {}, "onnx-portable": {"keepdims": 0}}
