"""Fourier transforms in ONNX files: ONNX Runtime computes the same, and gradients agree with
central differences.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from support.onnx_files import run

import nnef_grad
from nnef_grad import interop

STEP = "step = Constant <value_int = 3> () "
SIZE = "size = Constant <value_int = {}> () "
AXIS = "axis = Constant <value_int = {}> () "
# The graph, the version of the operators, and the shape of the input.
CASES = {
    "windows": (f"{STEP} y = STFT (x, step, window)", 17, [2, 20]),
    "windows of a column": (f"{STEP} y = STFT (x, step, window)", 17, [2, 20, 1]),
    "both sides": (f"{STEP} y = STFT <onesided = 0> (x, step, window)", 17, [2, 20]),
    "no window": (f"{STEP}{SIZE.format(7)} y = STFT (x, step, , size)", 17, [2, 20]),
    "real": ("y = DFT <axis = 1> (x)", 17, [2, 7, 1]),
    "real, one side": ("y = DFT <axis = 1, onesided = 1> (x)", 17, [2, 7, 3, 1]),
    "complex": ("y = DFT <axis = 2> (x)", 17, [2, 3, 5, 2]),
    "inverse": ("y = DFT <axis = 1, inverse = 1> (x)", 17, [2, 6, 2]),
    "longer": (f"{SIZE.format(9)} y = DFT <axis = 1> (x, size)", 17, [2, 6, 1]),
    "shorter": (f"{SIZE.format(4)} y = DFT <axis = 1> (x, size)", 17, [2, 6, 2]),
    "an axis as an operand": (f"{AXIS.format(-2)} y = DFT (x, , axis)", 20, [2, 6, 2]),
    "the usual axis": ("y = DFT <onesided = 1> (x)", 20, [2, 3, 6, 1]),
}


def saved(folder: Path, nodes: str, version: int, shape: list[Any]) -> Path:
    text = f"""<ir_version: 8, opset_import: ["": {version}]>
    net (float[{", ".join(map(str, shape))}] x) => (float[N] y) {{ {nodes} }}"""
    model = onnx.parser.parse_model(text)
    if "window" in nodes:
        window = np.hanning(8).astype(np.float32) + np.float32(0.1)
        model.graph.initializer.append(onnx.numpy_helper.from_array(window, "window"))
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


@pytest.mark.parametrize("name", CASES)
def test_a_transform(name: str, tmp_path: Path) -> None:
    nodes, version, shape = CASES[name]
    path = saved(tmp_path, nodes, version, shape)
    x = np.random.default_rng(0).standard_normal(shape)
    graph, data = interop.from_onnx(path)
    found = nnef_grad.evaluate(graph, {"x": x}, data)["y"]
    wanted = run(path, {"x": x.astype(np.float32)})["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert nnef_grad.check(graph, nnef_grad.differentiate(graph), variables=data).passed


def test_a_signal_of_any_length(tmp_path: Path) -> None:
    path = saved(tmp_path, f"{STEP} y = STFT (x, step, window)", 17, ["B", "T"])
    graph, data = interop.from_onnx(path)
    backward = nnef_grad.differentiate(graph)
    for batch, length in ((1, 8), (2, 9), (3, 20)):
        x = np.random.default_rng(length).standard_normal((batch, length))
        y = run(path, {"x": x.astype(np.float32)})["y"]
        found = nnef_grad.evaluate(backward.graph, {"x": x, "grad_y": y}, data)
        # The gradient of half the sum of squares, along a direction.
        move = np.random.default_rng(1).standard_normal(x.shape)
        above, below = (
            nnef_grad.evaluate(graph, {"x": x + s * move}, data)["y"]
            for s in (1e-4, -1e-4)
        )
        slope = ((above**2).sum() - (below**2).sum()) / 4e-4
        np.testing.assert_allclose((found["grad_x"] * move).sum(), slope, rtol=1e-4)


def test_a_transform_along_an_open_axis_needs_its_number(tmp_path: Path) -> None:
    path = saved(tmp_path, "y = DFT <axis = 1> (x)", 17, [2, "T", 1])
    with pytest.raises(nnef_grad.NnefGradError, match="needs the number of T"):
        interop.from_onnx(path)
    assert interop.from_onnx(path, symbols={"T": 6}).graph.outputs[0].shape == (2, 6, 2)
