"""Steps in ONNX files whose state must be fed, as bindings other than Python's want."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import nnef_grad
from nnef_grad.commandline.step_cli import main
from nnef_grad.training import run

onnxruntime: Any = pytest.importorskip("onnxruntime")
onnx: Any = pytest.importorskip("onnx")

ROOT = Path(__file__).parents[2]
WORDS = ["--loss", "mean_squared_error", "--optimizer", "adam"]


def _made(folder: Path, model: Path, *more: str) -> Any:
    paths = {name: str(folder / f"{name}.onnx") for name in ("step", "start")}
    words = [str(model), "-o", paths["step"], "--start", paths["start"], *WORDS, *more]
    return CliRunner().invoke(main, words)


@pytest.mark.parametrize("target", ["onnx", "onnx-portable"])
@pytest.mark.parametrize("name", ["mlp.onnx", "bias.onnx"])
def test_it_trains_as_in_python(tmp_path: Path, name: str, target: str) -> None:
    model = ROOT / "samples" / name if name == "mlp.onnx" else _with_bias(tmp_path)
    done = _made(tmp_path, model, "--target", target)
    assert done.exit_code == 0, done.output
    told = json.loads((tmp_path / "step.json").read_text())
    step, start = (
        onnxruntime.InferenceSession(tmp_path / told[part])
        for part in ("step", "start")
    )
    assert not start.get_inputs()
    assert not step.get_overridable_initializers()
    fed = {x.name: (x.type, x.shape) for x in step.get_inputs()}
    assert [*told["inputs"]] == [*fed]
    for place, (kind, shape) in fed.items():
        given = told["inputs"][place]
        assert (given["type"], given["shape"]) == ("float32", shape)
        assert kind == "tensor(float)"
    roles = {n: x["role"] for n, x in told["inputs"].items()}
    assert [*told["state"]] == [n for n, role in roles.items() if role == "state"]

    names = [x.name for x in start.get_outputs()]
    state = dict(zip(names, start.run(None, {}), strict=True))
    random = np.random.default_rng(7)
    batches = [
        {
            n: random.standard_normal(fed[n][1]).astype(np.float32)
            for n, role in roles.items()
            if role in ("data", "target")
        }
        for _ in range(4)
    ]
    losses = []
    for batch in batches:
        rate = {"learning_rate": np.array(0.05, np.float32)}
        wanted = [told["loss"], *told["state"].values()]
        loss, *new = step.run(wanted, {**batch, **rate, **state})
        state = dict(zip(told["state"], new, strict=True))
        losses.append(float(loss))
    read = nnef_grad.interop.from_onnx(model)
    own = nnef_grad.training_step(
        read.graph, data=read.data, loss=WORDS[1], optimizer=WORDS[3]
    )
    inputs = own.graph.input_names
    fed_there = [{n: x for n, x in b.items() if n in inputs} for b in batches]
    expected = list(run(own, fed_there, learning_rate=0.05, runtime="numpy"))
    np.testing.assert_allclose(losses, expected, 1e-4)
    assert losses[-1] != losses[0]


def _with_bias(folder: Path) -> Path:
    """A file whose bias has one axis, and whose names no text of NNEF has."""
    helper, random = onnx.helper, np.random.default_rng(0)
    w, b = (random.standard_normal(n).astype(np.float32) for n in ((3, 4), (3,)))
    arrays = [onnx.numpy_helper.from_array(a, n) for n, a in (("l.w", w), ("l.b", b))]
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "l.w", "l.b"], ["y"], transB=1)],
        "net",
        [helper.make_tensor_value_info("x", 1, [5, 4])],
        [helper.make_tensor_value_info("y", 1, [5, 3])],
        arrays,
    )
    opsets = [helper.make_opsetid("", 17)]
    path = folder / "bias.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_what_is_refused(tmp_path: Path) -> None:
    model = ROOT / "samples" / "mlp.onnx"
    words = [str(model), "-o", str(tmp_path / "step"), *WORDS]
    done = CliRunner().invoke(main, [*words, "--start", str(tmp_path / "s.onnx")])
    assert (done.exit_code, "-o step.onnx" in done.output) == (2, True)
    (tmp_path / "start.onnx").write_text("mine")
    done = _made(tmp_path, model)
    assert (done.exit_code, "exists already" in done.output) == (2, True)
    assert [p.name for p in tmp_path.iterdir()] == ["start.onnx"]
