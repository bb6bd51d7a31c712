"""Lowered graphs compute what they did, and hold nothing that a runtime lacks."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from support.checks import document
from support.lowered import lacking
from support.operation_models import Model, models
from support.rereading import reread

import nnef_grad
from nnef_grad.commandline.cli import main
from nnef_grad.interpreter.random_values import random_values
from nnef_grad.model import declared_variables
from nnef_grad.targets import TARGETS

LOWERED = [target for target in TARGETS if target != "nnef"]
# The distribution function of the normal distribution is approximated.
ROUGH = {"gelu": 1e-6}


def evaluated(
    graph: nnef_grad.Graph, values: Any, data: Mapping[str, Any]
) -> dict[str, Any]:
    """The outputs; integers are fed as numbers where they have become scalars."""
    fed = {
        name: values.inputs[name].astype(np.float64)
        if t.dtype == "scalar"
        else values.inputs[name]
        for name, t in zip(graph.input_names, graph.inputs, strict=True)
    }
    return nnef_grad.evaluate(graph, fed, {**values.variables, **data})


@pytest.mark.parametrize("target", LOWERED)
@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_every_operation_computes_the_same(model: Model, target: str) -> None:
    forward = nnef_grad.loads(model.text)
    for graph in (forward, nnef_grad.differentiate(forward).graph):
        values = random_values(graph, seed=2)
        expected = evaluated(graph, values, {})
        lowered = nnef_grad.lower(graph, target)
        found = evaluated(reread(lowered, values.variables), values, lowered.data)
        # Data of constants are in single precision.
        tolerance = ROUGH.get(model.operation, 1e-6 if lowered.data else 1e-11)
        for name, wanted in expected.items():
            assert found[name].shape == wanted.shape
            np.testing.assert_allclose(
                found[name].astype(float), wanted.astype(float), tolerance, tolerance
            )
        assert lacking(lowered.graph, target) == []


# What the models of single operations do not show.
TOGETHER = {
    "a number beside products": document(
        "a = external(shape = [64, 2]); b = external(shape = [2, 64]);"
        "c = neg(a); m = matmul(a, b); n = matmul(c, b); s = add(m, n); y = add(s, 1.0);",
        inputs="a, b",
    ),
    "numbers that are added": document(
        "x = external(shape = [2]); n = add(1.0, 2.0); y = mul(x, n);"
    ),
    "zeros of two signs": document(
        "x = external(shape = [2]); z = constant(shape = [2], value = [0.0, -0.0]);"
        "y = rcp(z); w = div(1.0, z);",
        outputs="y, w",
    ),
    "windows without axes": document(
        "x = external(shape = []); y = debox(x, size = [], normalize = true);"
    ),
    "literals in place of tensors": document(
        "x = external(shape = []); a = sum_reduce(2.0, axes = []); b = transpose(3.0, axes = []);"
        "c = pad(5.0, padding = []); d = box(7.0, size = []); e = debox(1.5, size = []);"
        "v, i = max_pool_with_index(2.5, size = [], border = 'constant');"
        "f = sample(v, i, size = [], border = 'constant'); s = stack([a, 2.0], axis = 0);"
        "n = local_mean_normalization(2.0, size = []); t = stack([1.0, 2.0], axis = 0);"
        "[g, h] = unstack(t, axis = 0); z = l2_normalization(0.0, axes = []); y = add(x, b);",
        outputs="a, b, c, d, e, f, g, h, n, s, y, z",
    ),
    "literals that are sampled": document(
        "x = external(shape = []); i = argmax_pool(x, size = [], border = 'constant');"
        "y = sample(2.0, i, size = [], border = 'constant');"
        "z = desample(3.0, i, size = []);",
        outputs="y, z",
    ),
    "products of nothing": document(
        "x = external(shape = [2, 3, 4]); s = slice(x, axes = [0], begin = [1], end = [1]);"
        "t = slice(x, axes = [2], begin = [1], end = [1]);"
        "m = matmul(s, s, transposeB = true); n = matmul(t, t, transposeB = true);"
        "y = sum_reduce(m, axes = [0]); z = sum_reduce(n, axes = [0]);",
        outputs="y, z",
    ),
    "a slice of nothing": document(
        "x = external(shape = [2, 1]); r = sqrt(x);"
        "y = slice(r, axes = [1], begin = [1], end = [3]);"
    ),
}


@pytest.mark.parametrize("target", LOWERED)
@pytest.mark.parametrize("text", TOGETHER.values(), ids=TOGETHER)
def test_operations_that_meet_compute_the_same(text: str, target: str) -> None:
    graph = nnef_grad.loads(text)
    values = random_values(graph, seed=2)
    lowered = nnef_grad.lower(graph, target)
    outputs = evaluated(lowered.graph, values, lowered.data)
    for name, expected in evaluated(graph, values, {}).items():
        np.testing.assert_allclose(outputs[name], expected, 1e-6)


def test_the_interface_stays() -> None:
    text = document(
        "x = external(shape = [2, 3]);\nw = variable(shape = [1, 3], label = 'w');\nr = rcp(x);\ny = mul(r, w);"
    )
    backward = nnef_grad.differentiate(nnef_grad.loads(text)).graph
    for target in LOWERED:
        lowered = nnef_grad.lower(backward, target).graph
        assert lowered.input_names == ("x", "grad_y")
        assert lowered.output_names == ("grad_x", "grad_w")
        assert [*lowered.labels] == ["w"]


def test_the_default_target_changes_nothing() -> None:
    graph = nnef_grad.loads(document("x = external(shape = [2]);\ny = rcp(x);"))
    assert nnef_grad.lower(graph, "nnef").graph is graph


def test_an_unknown_target() -> None:
    graph = nnef_grad.loads(document("x = external(shape = [2]);\ny = rcp(x);"))
    with pytest.raises(
        nnef_grad.UsageError, match="the target is one of nnef, khronos"
    ):
        nnef_grad.lower(graph, "cuda")


# ---- The command line ----

MODEL = document(
    "x = external(shape = [2, 3]);\nr = rcp(x);\n[a, b] = split(r, axis = 1, ratios = [1, 2]);\ny = sqr(b);"
)


def test_the_option(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["-", "--target", "onnx"], input=MODEL)
    assert result.exit_code == 0
    graph = nnef_grad.loads(result.stdout)
    assert graph.name == "net_backward"
    assert "rcp" not in {op.name for op in graph.operations}


# What is gathered is looked up in constants; the backward graph needs no bias.
LOOKUP = document(
    "x = external(shape = [4, 3]);\nrows = external<integer>(shape = [2]);\n"
    "bias = variable(shape = [1, 3], label = 'bias');\n"
    "found = gather(x, rows);\nsquare = sqr(found);\ny = add(square, bias);",
    "x, rows",
)


def test_constants_of_tract_want_a_place_for_data(tmp_path: Path) -> None:
    model = tmp_path / "model.nnef"
    model.write_text(LOOKUP)
    result = CliRunner().invoke(main, [str(model), "--target", "tract-standard"])
    assert result.exit_code == 2
    assert "write a folder or an archive, which hold data" in result.stderr


def test_constants_of_tract_are_data(tmp_path: Path) -> None:
    """A model without data has none of what is trained; here nothing of that is used."""
    model, out = tmp_path / "model.nnef", tmp_path / "out"
    model.write_text(LOOKUP)
    arguments = [str(model), "--target", "tract-standard", "--check", "-o", str(out)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.stderr
    graph, data = nnef_grad.load(out), nnef_grad.load_data(out)
    assert list(data) == ["nnef-grad/constants/1"]
    inputs = {
        "x": np.arange(12.0).reshape(4, 3),
        "rows": np.array([3.0, 0.0]),
        "grad_y": np.ones((2, 3)),
    }
    expected = np.array([[0.0, 2.0, 4.0], [0.0] * 3, [0.0] * 3, [18.0, 20.0, 22.0]])
    found = nnef_grad.evaluate(graph, inputs, data)
    np.testing.assert_allclose(found["grad_x"], expected)


def test_constants_go_before_what_lies_about_in_a_model(tmp_path: Path) -> None:
    folder, out = tmp_path / "model", tmp_path / "out"
    ones = np.ones((1, 3), np.float32)
    nnef_grad.save(nnef_grad.loads(LOOKUP), folder, data={"bias": ones})
    (folder / "nnef-grad/constants").mkdir(parents=True)
    shutil.copy(folder / "bias.dat", folder / "nnef-grad/constants/1.dat")
    arguments = [str(folder), "--target", "tract-standard", "-o", str(out)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.stderr
    assert nnef_grad.load_data(out)["nnef-grad/constants/1"].tolist() == [
        [0.0, 1.0, 2.0, 3.0]
    ]


def test_constants_have_data_before_a_training(tmp_path: Path) -> None:
    model, out = tmp_path / "model.nnef", tmp_path / "out"
    model.write_text(LOOKUP.replace("add(", "mul("))
    arguments = [str(model), "--target", "tract-standard", "-o", str(out)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.stderr
    assert "warning: the model has no data for its variables" in result.stderr
    assert list(nnef_grad.load_data(out)) == ["nnef-grad/constants/1"]
    labels = [v.label for v in declared_variables(nnef_grad.load(out))]
    assert labels == ["bias", "nnef-grad/constants/1"]
    again = [
        str(out),
        "--target",
        "tract-standard",
        "-o",
        str(tmp_path / "again"),
        "--check",
    ]
    result = CliRunner().invoke(main, again)
    assert result.exit_code == 0, result.stderr
    assert "warning: the model has no data for its variables" in result.stderr
    assert list(nnef_grad.load_data(tmp_path / "again")) == ["nnef-grad/constants/1"]
