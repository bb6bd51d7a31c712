"""ONNX files at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.onnx_files import run as in_runtime

import nnef_grad
from nnef_grad import interop
from nnef_grad.commandline.cli import main
from nnef_grad.commandline.step_cli import main as step_main

onnxruntime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

TEXT = """version 1.0;
graph net( x ) -> ( y )
{
    x = external(shape = [4, 3]);
    w = variable(shape = [2, 3], label = 'w');
    b = variable(shape = [1, 2], label = 'b');
    h = linear(x, w, b);
    y = softmax(h, axes = [1]);
}
"""
DATA = {
    "w": np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32),
    "b": np.random.default_rng(1).standard_normal((1, 2)).astype(np.float32),
}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    interop.to_onnx(nnef_grad.loads(TEXT), "model.onnx", DATA)
    return tmp_path / "model.onnx"


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_a_file_becomes_that_of_its_gradients(model: Path) -> None:
    result = run(model, "-o", "model_bwd.onnx", "--with-outputs")
    assert result.exit_code == 0, result.stderr
    random = np.random.default_rng(2)
    fed = {
        "x": random.standard_normal((4, 3)).astype(np.float32),
        "grad_y": random.standard_normal((4, 2)).astype(np.float32),
    }
    found = in_runtime(Path("model_bwd.onnx"), fed)
    backward = nnef_grad.differentiate(nnef_grad.loads(TEXT), with_outputs=True)
    wanted = nnef_grad.evaluate(backward.graph, fed, DATA)
    assert {*found} == {*wanted}
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-6)


def test_a_file_becomes_a_folder_and_a_folder_a_file(model: Path) -> None:
    assert run(model, "-o", "gradients/").exit_code == 0
    assert Path("gradients/graph.nnef").exists()
    nnef_grad.save(nnef_grad.loads(TEXT), "stored", data=DATA)
    assert run("stored", "-o", "stored_bwd.onnx").exit_code == 0
    onnx.checker.check_model("stored_bwd.onnx", full_check=True)


def test_a_file_becomes_a_step(model: Path) -> None:
    words = [str(model), "-o", "step", "--loss", "huber", "--optimizer", "adam"]
    result = CliRunner().invoke(step_main, words)
    assert result.exit_code == 0, result.stderr
    assert "huber" in Path("step/graph.nnef").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("model.onnx -o model.onnx --force", "'model.onnx' is the model itself"),
        ("model.onnx -o other.onnx", "exists already: use --force to replace it"),
        ("model.onnx -o x.onnx --target tract", "is for ONNX Runtime, and not for 'tract'"),
        ("model.onnx -o x.onnx --symbol N=8", "there is no symbol 'N'; there are no symbols"),
        ("model.nnef -o x.onnx", "there are no data for the variables"),
        ("nothing.onnx -o x.onnx", "cannot read 'nothing.onnx'"),
        ("junk.onnx -o x.onnx", "cannot be read as an ONNX file"),
        ("model.onnx -o folder/x.onnx", "No such file or directory"),
    ],
)  # fmt: skip
def test_mistakes(words: str, message: str, model: Path) -> None:
    for name, text in (("model.nnef", TEXT), ("junk.onnx", "junk"), ("other.onnx", "")):
        Path(name).write_text(text, "utf-8")
    before = model.read_bytes()
    result = run(*words.split())
    assert result.exit_code == 2
    assert message in result.stderr
    assert not Path("x.onnx").exists()
    assert model.read_bytes() == before


def test_constants_of_no_axes_and_of_one_value(tmp_path: Path) -> None:
    text = """version 1.0; graph net( x ) -> ( y, z ) {
        x = external(shape = [2, 3]); a = constant(shape = [], value = [2.0]);
        b = constant(shape = [2, 3], value = [3.0]);
        c = constant(shape = [1, 3], value = [1.0, 2.0, 3.0]);
        y = mul(add(x, a), b); z = mul(x, c); }"""
    graph, path = nnef_grad.loads(text), tmp_path / "model.onnx"
    interop.to_onnx(graph, path)
    x = np.ones((2, 3), np.float32)
    y, z = in_runtime(path, {"x": x}).values()
    np.testing.assert_array_equal(y, np.full((2, 3), 9.0))
    np.testing.assert_array_equal(z, [[1.0, 2.0, 3.0]] * 2)


def test_a_step_is_an_onnx_file(model: Path) -> None:
    """With the values to begin with, and the new value of each."""
    words = [str(model), "-o", "step.onnx", "--loss", "mean_squared_error"]
    words += ["--optimizer", "adam", "--learning-rate", "0.1"]
    result = CliRunner().invoke(step_main, words)
    assert result.exit_code == 0, result.stderr
    session = onnxruntime.InferenceSession("step.onnx")
    metadata = session.get_modelmeta().custom_metadata_map
    new_values = json.loads(metadata["nnef_grad.state"])
    assert {"w", "b"} <= {*new_values}
    step = nnef_grad.training_step(
        interop.from_onnx(model).graph,
        loss="mean_squared_error",
        optimizer="adam",
        learning_rate=0.1,
        data=DATA,
    )
    random, state = np.random.default_rng(5), dict[str, np.ndarray]()
    batches = [
        {
            "x": random.standard_normal((4, 3)).astype(np.float32),
            "target_y": random.standard_normal((4, 2)).astype(np.float32),
        }
        for _ in range(4)
    ]
    losses = []
    for batch in batches:
        names = ["loss", *new_values.values()]
        loss, *new = session.run(names, {**batch, **state})
        losses.append(float(loss))
        state = dict(zip(new_values, new, strict=True))
    wanted = [*nnef_grad.training.run(step, batches, runtime="numpy")]
    np.testing.assert_allclose(losses, wanted, 1e-4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--accumulate", "2"], "is two documents, and no ONNX file"),
        (["--state", "variables"], "their state is in inputs"),
        (["--target", "tract"], "is for ONNX Runtime, and not for 'tract'"),
    ],
)
def test_a_step_that_is_no_onnx_file(
    model: Path, words: list[str], message: str
) -> None:
    given = [str(model), "-o", "step.onnx", "--loss", "mean_squared_error", *words]
    result = CliRunner().invoke(step_main, given)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not Path("step.onnx").exists()


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with names that are none of NNEF, a vector for a bias, and an open batch."""
    monkeypatch.chdir(tmp_path)
    helper, random = onnx.helper, np.random.default_rng(3)
    stored = {"fc.weight": (3, 2), "fc.bias": (2,)}
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["in.1", *stored], ["out-1"])],
        "net",
        [helper.make_tensor_value_info("in.1", 1, ["batch", 3])],
        [helper.make_tensor_value_info("out-1", 1, ["batch", 2])],
        [
            onnx.numpy_helper.from_array(
                random.standard_normal(shape).astype(np.float32), name
            )
            for name, shape in stored.items()
        ],
    )
    versions = [helper.make_opsetid("", 17)]
    onnx.save(
        helper.make_model(graph, opset_imports=versions, ir_version=8), "odd.onnx"
    )
    return tmp_path / "odd.onnx"


def test_names_and_shapes_of_the_file(odd: Path) -> None:
    assert run(odd, "-o", "all.onnx").exit_code == 0
    session = onnxruntime.InferenceSession("all.onnx")
    fed = {
        "in.1": np.ones((4, 3), np.float32),
        "grad_out-1": np.ones((4, 2), np.float32),
    }
    names = [value.name for value in session.get_outputs()]
    assert names == ["grad_in.1", "grad_fc.weight", "grad_fc.bias"]
    given = {value.name: fed[value.name] for value in session.get_inputs()}
    found = dict(zip(names, session.run(None, given), strict=True))
    np.testing.assert_array_equal(found["grad_fc.bias"], [4.0, 4.0])
    assert found["grad_fc.weight"].shape == (3, 2)
    gradients = json.loads(
        session.get_modelmeta().custom_metadata_map["nnef_grad.gradients"]
    )
    assert gradients["fc.bias"] == "grad_fc.bias"
    assert (
        run(odd, "-o", "one.onnx", "--wrt", "in.1", "--outputs", "out-1").exit_code == 0
    )
    (value,) = onnxruntime.InferenceSession("one.onnx").get_outputs()
    assert value.name == "grad_in.1"


def test_a_step_has_the_names_and_shapes_of_the_file(odd: Path) -> None:
    words = [str(odd), "-o", "step.onnx", "--loss", "huber", "--optimizer", "momentum"]
    result = CliRunner().invoke(step_main, words)
    assert result.exit_code == 0, result.stderr
    session = onnxruntime.InferenceSession("step.onnx")
    state_inputs = session.get_overridable_initializers()
    inputs = {value.name: value.shape for value in state_inputs}
    outputs = {value.name: value.shape for value in session.get_outputs()}
    assert inputs["fc.bias"] == outputs["new_fc.bias"] == [2]
    state = json.loads(session.get_modelmeta().custom_metadata_map["nnef_grad.state"])
    assert state["fc.weight"] == "new_fc.weight"


@pytest.mark.parametrize(
    "words", ["--batch 4", "--symbol batch=4", "--input-shape in.1=4,3"]
)
def test_numbers_for_what_a_file_leaves_open(words: str, odd: Path) -> None:
    folder = ["-o", "there/", "--target", "portable"]
    result = run(odd, *folder)
    assert result.exit_code == 2
    assert "give it one with --symbol" in result.stderr
    assert run(odd, *folder, *words.split()).exit_code == 0
    assert {x.shape[0] for x in nnef_grad.load("there").inputs} == {4}
