"""QuantizeLinear and DequantizeLinear, against fake quantization in torch and ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.onnx_files import run

import nnef_grad
from nnef_grad.interop import from_onnx, to_onnx

onnx = pytest.importorskip("onnx")

CODES = {np.uint8: (0, 255), np.int8: (-128, 127), np.int16: (-32768, 32767)}


def file_of(
    place: Path, nodes: list[Any], constants: dict[str, Any], shape: list[int]
) -> Path:
    helper, kinds = onnx.helper, onnx.TensorProto
    names = [node.output[0] for node in nodes]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", kinds.FLOAT, shape)],
        [helper.make_tensor_value_info(names[-1], kinds.FLOAT, None)],
        [onnx.numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21)]
    path = place / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def around(axis: int) -> list[Any]:
    node = onnx.helper.make_node
    return [
        node("QuantizeLinear", ["x", "scale", "zero"], ["codes"], axis=axis),
        node("DequantizeLinear", ["codes", "scale", "zero"], ["y"], axis=axis),
    ]


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_fake_quantization(tmp_path: Path, dtype: Any, axis: int | None) -> None:
    """Ties, the first and the last code, and what lies beyond them, are among the values."""
    random = np.random.default_rng(0)
    first, last = CODES[dtype]
    shape: tuple[int, ...] = () if axis is None else (5 + axis,)
    # Powers of two: the quotients are exact, and so are ties.
    scale = np.asarray(2.0 ** random.integers(-3, 0, shape), np.float32)
    zero = np.asarray(random.integers(-3 if first else 0, 4, shape), dtype)
    along = [1, 1]
    if axis is not None:
        along[axis] = shape[0]
    s, z = (np.reshape(v, along).astype(np.float64) for v in (scale, zero))
    level = random.integers(2 * first - 40, 2 * last + 40, (5, 6)) / 2.0
    level[0, :4] = first, last, first - 0.5, last + 0.5
    x = ((level - z) * s).astype(np.float32)
    seed = random.standard_normal((5, 6)).astype(np.float32)
    leaf = torch.tensor(x, requires_grad=True)
    if axis is None:
        y = torch.fake_quantize_per_tensor_affine(
            leaf, float(scale), int(zero), first, last
        )
    else:
        y = torch.fake_quantize_per_channel_affine(
            leaf,
            torch.tensor(scale),
            torch.tensor(zero.astype(np.int32)),
            axis,
            first,
            last,
        )
    y.backward(torch.tensor(seed))
    path = file_of(tmp_path, around(axis or 0), {"scale": scale, "zero": zero}, [5, 6])
    model = from_onnx(path)
    found = nnef_grad.evaluate(model.graph, {"x": x}, model.data)["y"]
    np.testing.assert_array_equal(found.astype(np.float32), y.detach())
    backward = nnef_grad.differentiate(model.graph, wrt="x")
    gradients = nnef_grad.evaluate(backward, {"x": x, "grad_y": seed}, model.data)
    np.testing.assert_allclose(gradients["grad_x"], leaf.grad, rtol=1e-6)
    pytest.importorskip("onnxruntime")
    to_onnx(backward, tmp_path / "bwd.onnx", model.data)
    results = run(tmp_path / "bwd.onnx", {"x": x, "grad_y": seed})
    np.testing.assert_allclose(results["grad_x"], leaf.grad, rtol=1e-6)


@pytest.mark.parametrize("zero", [np.int8(5), np.array([-128, 127], np.int8)])
def test_codes_of_infinity(zero: Any, tmp_path: Path) -> None:
    """The first and the last one, which have no gradient, as the logarithm of zero has."""
    constants = {"scale": np.full(zero.shape, 0.5, np.float32), "zero": zero}
    path = file_of(tmp_path, around(1), constants, [3, 2])
    x = np.array([[-np.inf, np.inf], [np.inf, -np.inf], [0.2, -0.2]], np.float32)
    graph, data = from_onnx(path)
    backward = nnef_grad.differentiate(graph, wrt="x", with_outputs=True)
    to_onnx(backward, tmp_path / "b.onnx", data)
    found = run(tmp_path / "b.onnx", {"x": x, "grad_y": np.ones((3, 2), np.float32)})
    np.testing.assert_array_equal(found["y"], run(path, {"x": x})["y"])
    np.testing.assert_array_equal(found["grad_x"], [[0, 0], [0, 0], [1, 1]])


def test_constant_codes_are_a_variable(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    w = random.integers(-128, 128, (6, 4)).astype(np.int8)
    scale = random.uniform(0.01, 0.1, 4).astype(np.float32)
    node = onnx.helper.make_node
    nodes = [
        node("DequantizeLinear", ["w", "scale"], ["numbers"], axis=1),
        node("MatMul", ["x", "numbers"], ["y"]),
    ]
    path = file_of(tmp_path, nodes, {"w": w, "scale": scale}, [3, 6])
    model = from_onnx(path)
    assert [*model.graph.labels] == ["numbers"]
    np.testing.assert_array_equal(model.data["numbers"], w * scale)
    x = random.standard_normal((3, 6)).astype(np.float32)
    pytest.importorskip("onnxruntime")
    # Otherwise it multiplies codes, with a smaller precision.
    (wanted,) = run(path, {"x": x}, is_optimised=False).values()
    found = nnef_grad.evaluate(model.graph, {"x": x}, model.data)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_constant_codes_have_the_name_in_the_file(tmp_path: Path) -> None:
    """Quantizers call the numbers of a bias as it was called."""
    node = onnx.helper.make_node
    nodes = [
        node("DequantizeLinear", ["w", "scale"], ["fc.weight"]),
        node("Mul", ["x", "fc.weight"], ["y"]),
    ]
    constants = {"w": np.ones((2, 2), np.int8), "scale": np.float32(0.5)}
    model = from_onnx(file_of(tmp_path, nodes, constants, [2, 2]))
    backward = nnef_grad.differentiate(model.graph)
    to_onnx(backward, tmp_path / "b.onnx", model.data, in_file=model.in_file)
    outputs = onnx.load(tmp_path / "b.onnx").graph.output
    assert [y.name for y in outputs] == ["grad_x", "grad_fc.weight"]


@pytest.mark.parametrize("bits", [4, 8])
def test_constant_codes_of_one_scale_are_a_variable(bits: int, tmp_path: Path) -> None:
    kind = {4: onnx.TensorProto.INT4, 8: onnx.TensorProto.INT8}[bits]
    nodes = [
        onnx.helper.make_node("DequantizeLinear", ["w", "scale"], ["numbers"]),
        onnx.helper.make_node("Mul", ["x", "numbers"], ["y"]),
    ]
    path = file_of(tmp_path, nodes, {"scale": np.float32(0.5)}, [2, 2])
    file = onnx.load(path)
    codes = onnx.helper.make_tensor("w", kind, [2, 2], np.array([1, -2, 3, 4]))
    file.graph.initializer.append(codes)
    onnx.save(file, path)
    model = from_onnx(path)
    assert [*model.graph.labels] == ["numbers"]
    np.testing.assert_array_equal(model.data["numbers"], [[0.5, -1], [1.5, 2]])


def test_codes_that_are_not_integers_are_refused(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    constants = {
        "scale": np.float32(0.1),
        "zero": np.zeros((), ml_dtypes.float8_e4m3fn),
    }
    path = file_of(tmp_path, around(0), constants, [2, 3])
    with pytest.raises(nnef_grad.UnsupportedError, match="codes of type float8"):
        from_onnx(path)
