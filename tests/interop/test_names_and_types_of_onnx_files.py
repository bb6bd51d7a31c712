"""The names and the data types of an ONNX file are a contract: whoever feeds the file feeds the
gradients' file the same, and asks for tensors by the names that viewers show.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner, Result

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from support.onnx_files import run as in_runtime

import nnef_grad
from nnef_grad import interop
from nnef_grad.commandline.cli import main
from nnef_grad.commandline.step_cli import main as step_main

Array = npt.NDArray[Any]
node = helper.make_node


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model of several types and of names that NNEF does not have."""
    value = helper.make_tensor_value_info
    nodes = [
        node("MatMul", ["x.1", "fc/weight"], ["/fc/MatMul_output_0"]),
        node("Gather", ["table", "ids"], ["/words/Gather_output_0"]),
        node(
            "Add",
            ["/fc/MatMul_output_0", "/words/Gather_output_0"],
            ["/Add_output_0"],
        ),
        node("Identity", ["/Add_output_0"], ["/same/Identity_output_0"]),
        node("Tanh", ["/same/Identity_output_0"], ["y/out"]),
        node("Add", ["ids", "ids"], ["twice"]),
        node("Cast", ["image"], ["/Cast_output_0"], to=T.DOUBLE),
        node("Mul", ["/Cast_output_0", "gain"], ["bright"]),
        node("Not", ["flag"], ["unset"]),
    ]
    inputs = [
        value("x.1", T.FLOAT16, ["N", 4]),
        value("ids", T.INT32, ["N"]),
        value("image", T.UINT8, ["N", 4]),
        value("flag", T.BOOL, [2]),
    ]
    outputs = [
        value("y/out", T.FLOAT16, ["N", 3]),
        value("twice", T.INT32, ["N"]),
        value("bright", T.DOUBLE, ["N", 4]),
        value("unset", T.BOOL, [2]),
    ]
    data = {
        "fc/weight": normal(0, 4, 3).astype(np.float16),
        "table": normal(1, 5, 3).astype(np.float16),
        "gain": normal(2, 1, 4),
    }
    stored = [numpy_helper.from_array(array, name) for name, array in data.items()]
    middle = [value("/Add_output_0", T.FLOAT16, ["N", 3])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, stored, value_info=middle)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, tmp_path / "net.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(words: str) -> Result:
    return CliRunner().invoke(main, words.split())


def declared(path: str) -> dict[str, str]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    ends = (*session.get_inputs(), *session.get_outputs())
    return {end.name: end.type.removeprefix("tensor(")[:-1] for end in ends}


def feeds() -> dict[str, Array]:
    return {
        "x.1": normal(3, 2, 4).astype(np.float16),
        "ids": np.array([4, 0], np.int32),
        "image": np.array([[0, 1, 200, 255], [7, 8, 9, 10]], np.uint8),
        "flag": np.array([True, False]),
        "grad_y/out": normal(4, 2, 3).astype(np.float16),
        "grad_bright": normal(5, 2, 4),
    }


def test_types_are_those_of_the_file(folder: Path) -> None:
    result = run("net.onnx -o net_bwd.onnx --with-outputs")
    assert result.exit_code == 0, result.stderr
    assert declared("net_bwd.onnx") == {
        "x.1": "float16", "ids": "int32", "image": "uint8", "flag": "bool",
        "grad_y/out": "float16", "grad_bright": "double",
        "y/out": "float16", "twice": "int32", "bright": "double", "unset": "bool",
        "grad_x.1": "float16", "grad_fc/weight": "float16", "grad_table": "float16",
        "grad_gain": "double",
    }  # fmt: skip
    stored = {i.name: i.data_type for i in onnx.load("net_bwd.onnx").graph.initializer}
    assert stored["fc/weight"] == T.FLOAT16


def test_what_is_computed_is_that_of_single_precision(folder: Path) -> None:
    assert run("net.onnx -o net_bwd.onnx --with-outputs").exit_code == 0
    given = feeds()
    found, own = (
        in_runtime(Path("net_bwd.onnx"), given),
        in_runtime(Path("net.onnx"), given),
    )
    for name, array in own.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_allclose(found[name], array, rtol=2e-3, atol=2e-3)
    x, seed = (given[n].astype(float) for n in ("x.1", "grad_y/out"))
    slope = seed * (1 - own["y/out"].astype(float) ** 2)
    weight = normal(0, 4, 3).astype(np.float16).astype(float)
    wanted = {
        "grad_x.1": slope @ weight.T,
        "grad_fc/weight": x.T @ slope,
        "grad_gain": (given["grad_bright"] * given["image"]).sum(0, keepdims=True),
    }
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=5e-3, atol=5e-3)


def test_gradients_of_half_precision_are_computed_in_single(tmp_path: Path) -> None:
    """A sum of many small terms, which would stand still in half precision."""
    value = helper.make_tensor_value_info
    nodes = [node("Mul", ["x", "w"], ["y"])]
    ends = [value(n, T.FLOAT16, [5000, 1]) for n in ("x", "y")]
    weight = numpy_helper.from_array(np.ones((1, 1), np.float16), "w")
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [weight])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(
        helper.make_model(graph, opset_imports=opsets, ir_version=8),
        tmp_path / "net.onnx",
    )
    graph, data, in_file = (m := interop.from_onnx(tmp_path / "net.onnx")).graph, m.data, m.in_file  # fmt: skip
    backward, path = nnef_grad.differentiate(graph), tmp_path / "net_bwd.onnx"
    interop.to_onnx(backward, path, data, in_file=in_file)
    fed = {n: np.ones((5000, 1), np.float16) for n in ("x", "grad_y")}
    found = in_runtime(path, fed)
    assert found["grad_w"].dtype == np.float16
    assert found["grad_w"].item() == 5000


@pytest.mark.parametrize(
    ("option", "outputs"),
    [
        ("--wrt /Add_output_0", {"grad_/Add_output_0": "float16"}),
        ("--wrt /same/Identity_output_0", {"grad_/Add_output_0": "float16"}),
        ("--wrt x.1,fc/weight", {"grad_x.1": "float16", "grad_fc/weight": "float16"}),
        (
            "--wrt x.1 --also /Add_output_0,/fc/MatMul_output_0",
            {
                "grad_x.1": "float16",
                "/Add_output_0": "float16",
                "/fc/MatMul_output_0": "float",
            },
        ),
        ("--wrt x.1,table --stop /words/Gather_output_0", {"grad_x.1": "float16"}),
    ],
)
def test_tensors_have_their_names_in_the_file(
    folder: Path, option: str, outputs: dict[str, str]
) -> None:
    result = run(f"net.onnx -o net_bwd.onnx --outputs y/out {option}")
    assert result.exit_code == 0, result.stderr
    found = declared("net_bwd.onnx")
    assert {name: found[name] for name in outputs} == outputs
    properties = {p.key: p.value for p in onnx.load("net_bwd.onnx").metadata_props}
    gradients = json.loads(properties["nnef_grad.gradients"])
    assert all(gradients[n.removeprefix("grad_")] == n for n in outputs if "grad_" in n)


def test_checks_show_the_names_of_the_file(folder: Path) -> None:
    result = run("net.onnx -o net_bwd.onnx --check --batch 2")
    assert "grad_fc/weight  [4, 3]" in result.stderr
    result = run("net.onnx -o net_bwd.onnx --check --batch 2 --force --format json")
    checked = json.loads(result.stderr.splitlines()[0])["check"]
    assert {g["gradient"] for g in checked} >= {"grad_x.1", "grad_table"}


def test_nodes_keep_the_names_of_their_results(folder: Path) -> None:
    assert run("net.onnx -o net_bwd.onnx").exit_code == 0
    made = {y for n in onnx.load("net_bwd.onnx").graph.node for y in n.output}
    assert {"/fc/MatMul_output_0", "/Add_output_0"} <= made


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--wrt /Add_output_1", "no tensor '/Add_output_1'; did you mean '/Add_output_0'?"),
        ("--also flag", "'flag' is an input: what is computed can be returned"),
        ("--wrt twice", "'twice' is a tensor of type integer"),
        ("--hvp --also /Add_output_0", "--hvp returns no other outputs: leave out --also"),
    ],
)  # fmt: skip
def test_other_names_are_refused(folder: Path, words: str, message: str) -> None:
    result = run(f"net.onnx -o net_bwd.onnx {words}")
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize("words", ["huber --output y/out", "y/out=huber(delta = 0.5)"])
def test_a_step_has_the_types_of_the_file_and_trains_in_single(
    folder: Path, words: str
) -> None:
    loss = words.split(" --") if "--" in words else [words]
    options = ["--loss", loss[0], *(["--output", "y/out"] if len(loss) > 1 else [])]
    result = CliRunner().invoke(step_main, ["net.onnx", *options, "-o", "step.onnx"])
    assert result.exit_code == 0, result.stderr
    fed = onnx.load("step.onnx").graph.input
    types = {x.name: x.type.tensor_type.elem_type for x in fed}
    assert (types["x.1"], types["ids"]) == (T.FLOAT16, T.INT32)
    assert types["fc/weight"] == T.FLOAT


def test_long_paths_are_short_in_texts_and_whole_in_files(tmp_path: Path) -> None:
    long = "StatefulPartitionedCall/model/bidirectional/forward_lstm/while/body/"
    names = [f"{long}{cell}/MatMul:0" for cell in ("lstm_cell", "other_cell")]
    value = helper.make_tensor_value_info
    nodes = [node("Tanh", ["x"], [names[0]]), node("Neg", [names[0]], [names[1]])]
    ends = [value(n, T.FLOAT, [2]) for n in ("x", names[1])]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(
        helper.make_model(graph, opset_imports=opsets, ir_version=8),
        tmp_path / "net.onnx",
    )
    model = interop.from_onnx(tmp_path / "net.onnx")
    inside = model.in_file.found[names[0]]
    assert inside == "bidirectional_forward_lstm_while_body_lstm_cell_MatMul_0"
    backward = nnef_grad.differentiate(model.graph, wrt=[inside])
    path = tmp_path / "net_bwd.onnx"
    interop.to_onnx(backward, path, model.data, in_file=model.in_file)
    (gradient,) = onnx.load(path).graph.output
    assert gradient.name == f"grad_{names[0]}"


@pytest.mark.parametrize("option", ["", "--per-example", "--jacobian"])
def test_derivatives_of_a_bias_have_axes_before_its_own(
    tmp_path: Path, option: str
) -> None:
    """One for the examples, or those of the output; a bias of ONNX has one axis."""
    random = np.random.default_rng(0)
    w, b = (random.standard_normal(n).astype(np.float32) for n in ((3, 4), (3,)))
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
        "net",
        [helper.make_tensor_value_info("x", 1, [5, 4])],
        [helper.make_tensor_value_info("y", 1, [5, 3])],
        [numpy_helper.from_array(a, n) for n, a in (("w", w), ("b", b))],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    paths = [str(tmp_path / name) for name in ("m.onnx", "d.onnx")]
    words = [paths[0], *option.split(), "--wrt", "b", "-o", paths[1]]
    assert CliRunner().invoke(main, words).exit_code == 0
    session = onnxruntime.InferenceSession(tmp_path / "d.onnx")
    seed = random.standard_normal((5, 3)).astype(np.float32)
    fed = {"x": random.standard_normal((5, 4)).astype(np.float32), "grad_y": seed}
    (made,) = session.run(None, {x.name: fed[x.name] for x in session.get_inputs()})
    each = np.eye(3)[np.newaxis, :, np.newaxis].repeat(5, 0)  # [5, 3, 1, 3]
    wanted = {"": seed.sum(0), "--per-example": seed, "--jacobian": each}[option]
    np.testing.assert_allclose(made, wanted, 1e-5)


def test_checks_show_the_shapes_of_the_file(folder: Path) -> None:
    """A bias is a row in the graph."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[N, 2, 3] x) => (float[N, 2, 3] y)
    <float[2, 2, 1] w = {1, 2, 3, 4}, float[2] b = {1, 2}> { y = Conv (x, w, b) }"""
    onnx.save(onnx.parser.parse_model(text), "bias.onnx")
    lines = run("bias.onnx -o bias_bwd.onnx --check").stderr.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("grad_b")] == ["[2]"]
