"""What is in an ONNX file that is written: named dimensions, loops, data, metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import operation_models
from support.onnx_files import run
from support.symbolic_loops import CELLS
from support.symbolic_loops import document as loop
from support.symbolic_models import DENSE
from support.symbolic_models import document as open_document

import nnef_grad
from nnef_grad import interop
from nnef_grad.base.errors import UnsupportedError, UsageError

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

DATA = {
    "w": np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32),
    "b": np.random.default_rng(1).standard_normal((1, 4)).astype(np.float32),
}


@pytest.fixture
def backward() -> nnef_grad.Backward:
    text = open_document(DENSE + "y = softmax(h, axes = [1]);")
    return nnef_grad.differentiate(nnef_grad.loads(text))


def test_symbols_are_named_dimensions(
    backward: nnef_grad.Backward, tmp_path: Path
) -> None:
    interop.to_onnx(backward, tmp_path / "x.onnx", DATA)
    model = onnx.load(tmp_path / "x.onnx")
    onnx.checker.check_model(model, full_check=True)
    shapes = {
        x.name: [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim]
        for x in (*model.graph.input, *model.graph.output)
    }
    assert shapes["x"] == shapes["grad_x"] == ["B", 3]
    assert shapes["grad_y"] == ["B", 4]
    assert shapes["grad_w"] == [4, 3]


@pytest.mark.parametrize("target", ["onnx", "onnx-portable"])
def test_sums_lose_their_axes_at_once(tmp_path: Path, target: Any) -> None:
    """What else is read of a sum is read with its axes."""
    text = """version 1.0; graph net( x, b, c ) -> ( y, z, k ) {
        x = external(shape = [2, 3, 4]); b = external(shape = [2]); c = external(shape = [2]);
        y = mul(x, b); z = squeeze(max_reduce(x, axes = [1]), axes = [1]);
        m = mean_reduce(x, axes = [2]); k = sub(squeeze(m, axes = [2]), squeeze(sum_reduce(
        sub(x, m), axes = [2]), axes = [2])); }"""
    backward = nnef_grad.differentiate(nnef_grad.loads(text), with_outputs=True)
    interop.to_onnx(backward, tmp_path / "x.onnx", {}, target=target)
    by_result = {
        n.output[0]: n.op_type for n in onnx.load(tmp_path / "x.onnx").graph.node
    }
    assert by_result["grad_b"] == by_result["k_squeeze_1"] == "ReduceSum"
    assert by_result["z"] == by_result["k_squeeze"] == "Squeeze"
    draw = np.random.default_rng(2).standard_normal
    pairs = zip(backward.graph.input_names, backward.graph.inputs, strict=True)
    fed = {n: draw(x.shape).astype(np.float32) for n, x in pairs}
    expected = nnef_grad.evaluate(backward, fed)
    for name, found in run(tmp_path / "x.onnx", fed).items():
        np.testing.assert_allclose(found, expected[name], 1e-4, 1e-5)


def test_metadata_and_comments(backward: nnef_grad.Backward, tmp_path: Path) -> None:
    interop.to_onnx(backward, tmp_path / "x.onnx", DATA)
    model = onnx.load(tmp_path / "x.onnx")
    found = {x.key: json.loads(x.value) for x in model.metadata_props}
    assert found["nnef_grad.gradients"] == {
        name: f"grad_{name}" for name in ("x", "w", "b")
    }
    assert found["nnef_grad.seeds"] == {"y": "grad_y"}
    comments = {node.name: node.doc_string for node in model.graph.node}
    assert comments["grad_w"].startswith("h_linear = linear(x, w, b)")


def test_loops_are_scans(tmp_path: Path) -> None:
    """Also those inside of others, and both ways: the gradient goes back."""
    graph = nnef_grad.loads(loop(CELLS["lstm"], "T"))
    backward = nnef_grad.differentiate(graph)
    data = {
        label: np.ones(graph.tensors[name].shape, np.float32)
        for name, label in graph.labels.items()
    }
    interop.to_onnx(backward, tmp_path / "x.onnx", data)
    model = onnx.load(tmp_path / "x.onnx")
    onnx.checker.check_model(model, full_check=True)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("Scan") == 2


def test_half_precision_stays_in_the_file(
    backward: nnef_grad.Backward, tmp_path: Path
) -> None:
    """The results are those of the same numbers in single precision, and the file is read
    again as it is.
    """
    halves = {label: x.astype(np.float16) for label, x in DATA.items()}
    widened = {label: x.astype(np.float32) for label, x in halves.items()}
    interop.to_onnx(backward, tmp_path / "half.onnx", halves)
    interop.to_onnx(backward, tmp_path / "single.onnx", widened)
    model = onnx.load(tmp_path / "half.onnx")
    onnx.checker.check_model(model, full_check=True)
    kinds = {x.name: x.data_type for x in model.graph.initializer}
    assert kinds["w"] == kinds["b"] == onnx.TensorProto.FLOAT16
    random = np.random.default_rng(3)
    fed = {
        "x": random.standard_normal((5, 3)).astype(np.float32),
        "grad_y": random.standard_normal((5, 4)).astype(np.float32),
    }
    found, wanted = (run(tmp_path / f"{n}.onnx", fed) for n in ("half", "single"))
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, name)
    read = interop.from_onnx(tmp_path / "half.onnx").data["w"]
    np.testing.assert_array_equal(read, halves["w"])


def test_data_beside_the_file(
    backward: nnef_grad.Backward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(3)
    fed = {
        "x": random.standard_normal((5, 3)).astype(np.float32),
        "grad_y": random.standard_normal((5, 4)).astype(np.float32),
    }
    interop.to_onnx(backward, tmp_path / "one.onnx", DATA)
    monkeypatch.setattr("nnef_grad.targets.onnx.storage.MOST_BYTES", 100)
    interop.to_onnx(backward, tmp_path / "two.onnx", DATA)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"one.onnx", "two.onnx", "two.onnx.data"}
    found, wanted = run(tmp_path / "two.onnx", fed), run(tmp_path / "one.onnx", fed)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
    numbers = nnef_grad.evaluate(backward.graph, fed, DATA)
    for name, array in numbers.items():
        np.testing.assert_allclose(found[name], array, 1e-5, 1e-5)
    with pytest.raises(UsageError, match="exists already"):
        interop.to_onnx(backward, tmp_path / "two.onnx", DATA)
    again = interop.from_onnx(
        tmp_path / "two.onnx", input_shapes={"x": [5, 3], "grad_y": [5, 4]}
    )
    np.testing.assert_array_equal(again.data["w"], DATA["w"])
    (tmp_path / "two.onnx.data").write_bytes(b"short")
    with pytest.raises(UsageError, match="are truncated"):
        interop.from_onnx(tmp_path / "two.onnx")


def test_data_outside_of_the_folder_are_refused(
    backward: nnef_grad.Backward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnef_grad.targets.onnx.storage.MOST_BYTES", 100)
    interop.to_onnx(backward, tmp_path / "x.onnx", DATA)
    model = onnx.load(tmp_path / "x.onnx", load_external_data=False)
    for initializer in model.graph.initializer:
        for entry in initializer.external_data:
            if entry.key == "location":
                entry.value = "../x.onnx.data"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UsageError, match="names no file in the folder"):
        interop.from_onnx(tmp_path / "sub" / "x.onnx")


def test_a_symbol_that_no_input_has_alone(tmp_path: Path) -> None:
    text = open_document("x = external(shape = [B * B, 3]); y = softmax(x);")
    graph = nnef_grad.loads(text)
    with pytest.raises(UnsupportedError, match="'B' is not the extent of an axis"):
        interop.to_onnx(graph, tmp_path / "x.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["onnx", "onnx-portable"])
def test_files_of_all_operations_are_valid(target: str, tmp_path: Path) -> None:
    """By onnx's own checker, for the version of the operators that they say."""
    for model in operation_models.models():
        graph = nnef_grad.loads(model.text)
        try:
            backward = nnef_grad.differentiate(graph)
            data = {
                label: np.ones(graph.tensors[name].shape, np.float32)
                for name, label in graph.labels.items()
            }
            path = tmp_path / "x.onnx"
            interop.to_onnx(backward, path, data, overwrite=True, target=target)
        except (nnef_grad.UnsupportedError, nnef_grad.UsageError):
            continue
        try:
            onnx.checker.check_model(onnx.load(path), full_check=True)
        except Exception as error:
            pytest.fail(f"{model.name}: {error}")
