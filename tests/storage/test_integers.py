"""Tables of integers as tract writes them: with the item types of quantized codes, without
quantization info, and declared as scalars. They are integers, and nobody trains them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper, save
from storage.test_codes import SIGNED, made, tensor_file
from support.stored_models import run, write_archive, write_files

import nnef_grad
from nnef_grad.commandline.cli import main
from nnef_grad.commandline.merge_cli import main as merge_main
from nnef_grad.commandline.step_cli import main as step_main

GRAPH = """version 1.0;

extension tract_registry tract_core;

graph net( x ) -> ( y )
{{
    x = external(shape = [{n}, 4]);
    w = variable<scalar>(label = '/emb/w:0', shape = [20, 4]);
    i = variable<scalar>(label = '/emb/i', shape = [{n}]);
    m = variable<scalar>(label = 'mask', shape = [{n}, 1]);
    rows = tract_core_gather(w, i, axis = 0);
    scaled = mul(rows, tanh(x));
    y = select(m, scaled, x);
}}
"""
CODES = {"i": 3, "u": 2}
# A large table stays a variable, a small one becomes a constant.
SIZES = [30, 12_000]


def model(n: int, dtype: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of the model, and its arrays."""
    random = np.random.default_rng(0)
    arrays = {
        "w": random.standard_normal((20, 4)).astype(np.float32),
        "i": random.integers(0, 20, n).astype(dtype),
        "m": random.integers(0, 2, (n, 1)).astype(bool),
    }
    files = {
        "graph.nnef": GRAPH.format(n=n).encode(),
        "emb/w:0.dat": tensor_file(arrays["w"], 0),
        "emb/i.dat": tensor_file(arrays["i"], CODES[np.dtype(dtype).kind]),
        "mask.dat": tensor_file(arrays["m"], 5),
    }
    return files, arrays


def expected(arrays: dict[str, Any], x: Any, seed: Any) -> dict[str, Any]:
    """The output and the gradients, by torch in double precision."""
    x = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    w = torch.tensor(arrays["w"], dtype=torch.float64, requires_grad=True)
    rows = w[torch.tensor(arrays["i"].astype(np.int64))]
    y = torch.where(torch.tensor(arrays["m"]), rows * torch.tanh(x), x)
    gradients = torch.autograd.grad(y, [x, w], torch.tensor(seed, dtype=torch.float64))
    return dict(zip(["y", "grad_x", "grad_w"], [y.detach(), *gradients], strict=True))


def fed(n: int) -> dict[str, Any]:
    random = np.random.default_rng(1)
    names = ("x", "grad_y")
    return {x: random.standard_normal((n, 4)).astype(np.float32) for x in names}


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
def test_tables_are_no_parameters(n: int, dtype: str, tmp_path: Path) -> None:
    files, arrays = model(n, dtype)
    folder = write_files(tmp_path / "m", files)
    archive = write_archive(tmp_path / "m.tgz", files)
    data = nnef_grad.load_data(archive)
    for label, name in {"/emb/w:0": "w", "/emb/i": "i", "mask": "m"}.items():
        np.testing.assert_array_equal(data[label], arrays[name], strict=True)
    assert {label: x.dtype for label, x in data.items()}["emb/i"] == dtype
    feeds, out = fed(n), tmp_path / "out"
    wanted = expected(arrays, *feeds.values())
    for source in (folder, archive):
        result = run(source, "--check", "--with-outputs", "-o", out, "--force")
        assert result.exit_code == 0, result.stderr
        assert "2 gradients checked" in result.stderr
        assert "zero" not in result.stderr
        backward = nnef_grad.load(out)
        assert backward.output_names == ("grad_x", "grad_w", "y")
        found = nnef_grad.evaluate(backward, feeds, nnef_grad.load_data(out))
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", SIZES)
def test_tables_in_onnx_and_in_steps(n: int, tmp_path: Path) -> None:
    files, arrays = model(n, "int64")
    folder, feeds = write_files(tmp_path / "m", files), fed(n)
    made(main, folder, "-o", tmp_path / "out.onnx", "--with-outputs")
    session = onnxruntime.InferenceSession(str(tmp_path / "out.onnx"))
    wanted = expected(arrays, *feeds.values())
    for name, value in zip(
        ["grad_x", "grad_w", "y"], session.run(None, feeds), strict=True
    ):
        np.testing.assert_allclose(value, wanted[name], rtol=1e-4, atol=1e-5)
    words = ["--loss", "mean_squared_error", "--optimizer", "adam"]
    for out in ("step", "step.onnx"):
        made(step_main, folder, *words, "-o", tmp_path / out)
    labels = nnef_grad.load(tmp_path / "step").labels.values()
    assert not any("/emb/i" in label and label != "/emb/i" for label in labels)


def test_tables_beside_codes_of_a_quantization(tmp_path: Path) -> None:
    """What quantization info is about is quantized, and the others are integers."""
    files, arrays = model(12_000, "int8")
    codes = np.random.default_rng(2).integers(-100, 100, (20, 4)).astype(np.int8)
    info = {"graph.quant": f'"w": {SIGNED};\n'.encode()}
    folder = write_files(
        tmp_path / "m", {**files, **info, "emb/w:0.dat": tensor_file(codes, 3)}
    )
    graph, data = nnef_grad.load(folder), nnef_grad.load_data(folder)
    assert graph.tensors["i"].dtype == "integer"
    for label in ("/emb/i", "/emb/w:0"):
        with pytest.raises(nnef_grad.UsageError, match="quantized codes"):
            data[label]
    known = data.of(graph)
    np.testing.assert_array_equal(known["/emb/i"], arrays["i"], strict=True)
    np.testing.assert_allclose(known["/emb/w:0"], (codes - 3.0) * 0.01, rtol=1e-6)
    result = run(folder, "--check", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert "2 gradients checked" in result.stderr
    arrays["w"], feeds = (codes - 3.0) * 0.01, fed(12_000)
    backward = nnef_grad.load(tmp_path / "out")
    stored = nnef_grad.load_data(tmp_path / "out").of(backward)
    found = nnef_grad.evaluate(backward, feeds, stored)
    for name, value in expected(arrays, *feeds.values()).items():
        if name in found:
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)


def test_codes_without_info_are_no_numbers(tmp_path: Path) -> None:
    """In the standard, a scalar with codes is quantized, whatever is missing."""
    text = "version 1.0;\ngraph net( x ) -> ( y )\n{\n    x = external(shape = [3]);\n    w = variable(shape = [3], label = 'w');\n    y = mul(x, w);\n}\n"
    codes = np.arange(3, dtype=np.int8)
    files = {"graph.nnef": text.encode(), "w.dat": tensor_file(codes, 3)}
    folder = write_files(tmp_path, files)
    graph, data = nnef_grad.load(folder), nnef_grad.load_data(folder)
    x = np.ones(3, np.float32)
    with pytest.raises(nnef_grad.UsageError, match="quantized codes"):
        nnef_grad.evaluate(graph, {"x": x}, data)
    with pytest.raises(nnef_grad.UsageError, match="quantized codes"):
        nnef_grad.check(graph, nnef_grad.differentiate(graph), variables=data)


@pytest.mark.parametrize("n", SIZES)
def test_tables_that_tract_writes(n: int, tmp_path: Path) -> None:
    tract = pytest.importorskip("tract")
    _, arrays = model(n, "int64")
    nodes = [
        helper.make_node("Mul", ["w", "s"], ["ws"]),
        helper.make_node("Gather", ["ws", "i"], ["rows"]),
        helper.make_node("Mul", ["rows", "x"], ["scaled"]),
        helper.make_node("Where", ["m", "scaled", "x"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in {"x": [n, 4], "s": [1]}.items()
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [n, 4])
    tables = [numpy_helper.from_array(x, name) for name, x in arrays.items()]
    graph = helper.make_graph(nodes, "net", inputs, [output], tables)
    opset = [helper.make_opsetid("", 17)]
    save(
        helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "m.onnx"
    )
    loaded = tract.onnx().load(str(tmp_path / "m.onnx")).into_model()
    writer = tract.nnef().with_tract_extra().with_onnx()
    writer.write_model_to_tar(loaded, str(tmp_path / "m.tar"))
    result = run(
        tmp_path / "m.tar", "--check", "-o", tmp_path / "out", "--target", "tract"
    )
    assert result.exit_code == 0, result.stderr
    assert "3 gradients checked" in result.stderr
    assert "zero" not in result.stderr
    feeds = {**fed(n), "s": np.array([1.5], np.float32)}
    names = nnef_grad.load(tmp_path / "out").input_names
    model_ = writer.load(str(tmp_path / "out"))
    found = model_.into_runnable().run([feeds[name] for name in names])
    w, x, s = (
        torch.tensor(a, dtype=torch.float64, requires_grad=True)
        for a in (arrays["w"], feeds["x"], feeds["s"])
    )
    rows = (w * s)[torch.tensor(arrays["i"])]
    y = torch.where(torch.tensor(arrays["m"]), rows * x, x)
    wanted = torch.autograd.grad(y, [x, w, s], torch.tensor(feeds["grad_y"]).double())
    order = nnef_grad.load(tmp_path / "out").output_names
    by_name = dict(zip(["grad_x", "grad_w_0", "grad_s"], wanted, strict=True))
    for name, value in zip(order, found, strict=True):
        np.testing.assert_allclose(
            value.to_numpy(), by_name[name], rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("n", SIZES)
def test_trained_values_are_merged_beside_tables(n: int, tmp_path: Path) -> None:
    files, arrays = model(n, "int64")
    folder, trained = write_files(tmp_path / "m", files), tmp_path / "trained"
    write_files(trained, {"emb/w:0.dat": tensor_file(arrays["w"] + 1, 0)})
    write_files(trained, {"emb/i.dat": files["emb/i.dat"]})
    made(merge_main, folder, trained, "-o", tmp_path / "out")
    data = nnef_grad.load_data(tmp_path / "out")
    np.testing.assert_array_equal(data["/emb/w:0"], arrays["w"] + 1)
    np.testing.assert_array_equal(data["/emb/i"], arrays["i"])
