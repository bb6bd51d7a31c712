"""The command line of steps: its options, files, messages and exit codes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.processes import environment, python
from support.training_steps import MLP, random_data

import nnef_grad
from nnef_grad.commandline.step_cli import main

# What the commands read.
MODEL = (
    MLP.replace("graph mlp", "graph net")
    .replace("5]", "3]")
    .replace(
        "    y = linear(hidden, weight2, bias2);\n",
        "    logits = linear(hidden, weight2, bias2);\n    y = softmax(logits);\n",
    )
)
DYNAMIC = """version 1.0;

extension tract_registry tract_core;
extension tract_symbol B;

graph net( x ) -> ( y )
{
    x = tract_core_external(shape = [B, 3], datum_type = 'f32');
    fc_weight = variable<scalar>(label = 'fc.weight', shape = [4, 3]);
    y = linear(x, fc_weight, 0.0);
}
"""


def run(*arguments: object, text: str = "") -> Result:
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(main, words, input=text.encode())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models."""
    monkeypatch.chdir(tmp_path)
    graph = nnef_grad.loads(MODEL)
    data = {k: v.astype(np.float32) for k, v in random_data(graph).items()}
    nnef_grad.save(graph, "model", data=data)
    Path("model.nnef").write_text(MODEL)
    Path("dynamic.nnef").write_text(DYNAMIC)
    return tmp_path


def test_the_examples_of_the_help_run() -> None:
    text = run("--help").stdout
    lines = [
        line.strip() for line in text.splitlines() if "nnef-grad-step model/" in line
    ]
    assert len(lines) >= 3
    Path("model/graph.nnef").write_text(
        MODEL.replace("'layer2/weight'", "'classifier/weight'")
    )
    Path("model/classifier").mkdir()
    Path("model/layer2/weight.dat").rename("model/classifier/weight.dat")
    for line in lines:
        result = run(*shlex.split(line)[1:], "--force")
        assert result.exit_code == 0, result.stderr


def test_help_does_without_the_compiler() -> None:
    program = (
        "import sys\nfrom nnef_grad.commandline import step_cli\n"
        "try: step_cli.main(['--help'])\nexcept SystemExit: pass\n"
        "loaded = [m for m in sys.modules if m.startswith(('nnef_grad.', 'numpy', 'lark'))]\n"
        "print(*loaded, file=sys.stderr)"
    )
    done = python(program)
    assert done.returncode == 0, done.stderr
    loaded = {*done.stderr.split()}
    assert loaded <= {
        *("nnef_grad.base", "nnef_grad.base.errors", "nnef_grad.base.source"),
        *("nnef_grad.base.lazy", "nnef_grad.base.choices"),
        *("nnef_grad.commandline", "nnef_grad.commandline.cli"),
        *("nnef_grad.commandline.step_cli", "nnef_grad.commandline.completion"),
    }


def test_a_text_to_a_pipe_and_a_summary() -> None:
    result = run("-", "--loss", "mean_squared_error", text=MODEL)
    assert result.exit_code == 0
    assert nnef_grad.loads(result.stdout).name == "net_step"
    assert "net: 9 operations in, " in result.stderr
    assert "4 tensors updated" in result.stderr
    quiet = run("-", "--loss", "mean_squared_error", "-q", text=MODEL)
    assert (quiet.stdout, quiet.stderr) == (result.stdout, "")


def test_the_step_is_that_of_the_library() -> None:
    words = (
        "--loss y=huber(delta=0.5) --loss logits=hinge(weight=0.1) --optimizer adam "
        "--l2 */weight=0.1 --l2 bias1=0.2 --train weight?,bias1 --freeze layer2/weight "
        "--group layer1/bias:learning_rate=0.1,beta1=0.5 --clip-norm 2 --clip-value 0.5 "
        "--learning-rate 0.01 --loss-scale --state inputs"
    )
    result = run("model/", *words.split())
    assert result.exit_code == 0, result.stderr
    step = nnef_grad.training_step(
        nnef_grad.loads(MODEL),
        loss={"y": "huber(delta=0.5)", "logits": "hinge(weight=0.1)"},
        optimizer="adam",
        l2={"*/weight": 0.1, "bias1": 0.2},
        train=["weight?", "bias1"],
        freeze=["layer2/weight"],
        groups={"layer1/bias": {"learning_rate": 0.1, "beta1": 0.5}},
        clip_norm=2.0,
        clip_value=0.5,
        learning_rate=0.01,
        loss_scale=True,
        state="inputs",
    )
    assert result.stdout == nnef_grad.dumps(step.graph)


@pytest.mark.parametrize("out", ["step", "step/", "step.tar", "step.tgz"])
def test_a_model_with_data_to_a_step_with_data(out: str) -> None:
    words = ["--loss", "mean_squared_error", "--optimizer", "adam"]
    result = run("model/", *words, "-o", out, "--learning-rate", "0.1")
    assert result.exit_code == 0, result.stderr
    graph, data = nnef_grad.load(out), nnef_grad.load_data(out)
    assert nnef_grad.dumps(graph).count("update(") == 14
    before = nnef_grad.load_data("model")
    for label in before:
        assert (np.asarray(data[label]) == np.asarray(before[label])).all()
    assert not np.asarray(data["layer1/weight/first_moment"]).any()
    feeds = {"x": np.ones((4, 3)), "target_y": np.ones((4, 3))}
    assert np.isfinite(nnef_grad.evaluate(graph, feeds, data)["loss"])


def test_a_folder_for_a_runtime_that_keeps_nothing() -> None:
    words = ["--loss", "softmax_cross_entropy_with_labels", "--output", "logits"]
    result = run("model", "-o", "step", *words, "--target", "onnx")
    assert result.exit_code == 0, result.stderr
    graph, data = nnef_grad.load("step"), nnef_grad.load_data("step")
    assert graph.input_names[:4] == (
        *("x", "target_logits"),
        *("learning_rate", "weight1"),
    )
    assert {*data} == {"weight1", "bias1", "weight2", "bias2"}


def test_a_pair_of_documents() -> None:
    result = run("model", "-o", "step", "--loss", "huber", "--accumulate", 4)
    assert result.exit_code == 0, result.stderr
    assert nnef_grad.load("step").name == "net_accumulate"
    assert nnef_grad.load("step/apply").name == "net_apply"
    assert nnef_grad.load("step/apply").input_names == ("learning_rate",)


def test_warnings_reach_stderr() -> None:
    result = run("model", "-o", "step", "--loss", "softmax_cross_entropy")
    assert result.exit_code == 0
    assert "warning: 'softmax_cross_entropy' begins with a softmax" in result.stderr
    assert "give the loss to 'logits'" in result.stderr
    result = run(
        *("model", "-o", "step", "--force", "--loss", "softmax_cross_entropy"),
        *("--format", "json"),
    )
    (warning,) = json.loads(result.stderr)["warnings"]
    assert "give the loss to 'logits'" in warning["message"]


@pytest.mark.parametrize("words", ["--symbol B=5", "--batch 5", "--input-shape x=5,3"])
def test_a_symbol_of_the_dialect(words: str) -> None:
    result = run("dynamic.nnef", "--loss", "huber", *words.split())
    assert result.exit_code == 0, result.stderr
    assert "x = external(shape = [5, 3]);" in result.stdout
    assert "fc_weight = variable(shape = [4, 3], label = 'fc.weight');" in result.stdout


# ---- Mistakes ----


def files(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("model.nnef -o step --loss huber", "the model has no data for 'layer1/bias'"),
        ("model -o model --loss huber --force", "is the model itself"),
        ("model -o model.nnef --loss huber", "model.nnef' exists already: use --force"),
        (
            "model -o step.nnef --loss huber --accumulate 2",
            "write a folder or an archive",
        ),
        ("model -o step", "Missing option '--loss'"),
        ("none -o step --loss huber", "cannot read 'none'"),
        ("model -o step --loss huber --learning-rate 0", "'--learning-rate'"),
        ("model -o step --loss huber --clip-norm -1", "'--clip-norm'"),
        ("model -o step --loss huber --accumulate 0", "'--accumulate'"),
        (
            "model -o step --loss huber --statistics-momentum 2",
            "'--statistics-momentum'",
        ),
        ("model -o step --loss huber --target onx", "'onx' is not one of"),
        ("model -o step --loss huber --rules none.nnef", "cannot read 'none.nnef'"),
        ("model -o step --loss huber --l2 0.1 --l2 w=0.1", "--l2 expects one X"),
        ("model -o step --loss y=huber --output y", "without --output"),
        ("model -o none/step --loss huber", "cannot write"),
        ("model -o step --loss huber --train ,", "nothing is left to train"),
        ("model -o step --loss huber --input-shape x", "--input-shape expects"),
        ("model -o step --loss huber --symbol B=2", "standard document has no symbols"),
        ("dynamic.nnef -o step.nnef --loss huber --symbol C=2", "has no symbol 'C'"),
        (
            "dynamic.nnef -o step.nnef --loss huber --symbol B",
            "--symbol expects NAME=N",
        ),
    ],
)
def test_a_mistake_has_one_message_and_writes_nothing(
    words: str, message: str, folder: Path
) -> None:
    before = files(folder)
    result = run(*words.split())
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert files(folder) == before


def test_some_data_are_missing(folder: Path) -> None:
    Path("model/layer2/bias.dat").unlink()
    before = files(folder)
    result = run("model", "-o", "step", "--loss", "huber")
    assert result.exit_code == 2
    assert "no data for 'layer2/bias'" in result.stderr
    assert files(folder) == before


def test_a_step_is_replaced_by_force_alone(folder: Path) -> None:
    words = ["model", "-o", "step", "--loss", "huber", "--optimizer"]
    assert run(*words, "adam", "--accumulate", 2).exit_code == 0
    before = files(folder)
    result = run(*words, "sgd")
    assert result.exit_code == 2
    assert "use --force to replace it" in result.stderr
    assert files(folder) == before
    # A mistake does not cost the step that is there.
    assert run(*words, "sgdd", "--force").exit_code == 2
    assert files(folder) == before
    assert run(*words, "sgd", "--force").exit_code == 0
    assert {p.name for p in Path("step").iterdir()} == {
        "graph.nnef",
        "layer1",
        "layer2",
    }


def test_the_console_script() -> None:
    script = Path(sys.executable).parent / "nnef-grad-step"
    command = [script] if script.exists() else [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        [*map(str, command), "model", "--loss", "huber", "-q"],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    assert done.stdout.startswith("version 1.0;")


# Where the package was installed before it had the script.
PROGRAM = "from nnef_grad.__main__ import make_step; make_step()"


def test_the_console_script_is_declared() -> None:
    text = (Path(nnef_grad.__file__).parents[1] / "pyproject.toml").read_text("utf-8")
    assert 'nnef-grad-step = "nnef_grad.__main__:make_step"' in text


@pytest.mark.parametrize(
    ("target", "wanted"), [("nnef", "f2"), ("tract", "f2"), ("portable", "f4")]
)
def test_what_is_frozen_stays_in_half_precision(target: str, wanted: str) -> None:
    """In the files of the model; what is trained is in single precision."""
    data = {k: v.astype("f2") for k, v in random_data(nnef_grad.loads(MODEL)).items()}
    nnef_grad.save(nnef_grad.loads(MODEL), "half", data=data)
    widened = {label: x.astype("f4") for label, x in data.items()}
    nnef_grad.save(nnef_grad.loads(MODEL), "single", data=widened)
    options = shlex.split(
        "--loss softmax_cross_entropy --optimizer sgd --train 'layer2/*' -q"
    )
    for model in ("half", "single"):
        result = run(model, "-o", f"{model}_step/", *options, "--target", target)
        assert result.exit_code == 0, result.stderr
    frozen = Path("half_step/layer1/weight.dat")
    assert frozen.samefile("half/layer1/weight.dat") == (wanted == "f2")
    losses = []
    for folder in ("half_step", "single_step"):
        graph, stored = nnef_grad.load(folder), nnef_grad.load_data(folder)
        kinds = {label: stored[label].dtype for label in stored}
        assert kinds["layer1/weight"] == ("f4" if folder == "single_step" else wanted)
        assert {kinds[n] for n in kinds if "layer1" not in n} == {np.dtype("f4")}
        random = np.random.default_rng(0)
        inputs = {
            name: stored[name]
            if name in stored
            else random.standard_normal(x.shape).astype("f4")
            for name, x in zip(graph.input_names, graph.inputs, strict=True)
        }
        losses.append(nnef_grad.evaluate(graph, inputs, stored))
    for name, value in losses[1].items():
        np.testing.assert_array_equal(losses[0][name], value)


def test_a_step_in_half_precision_runs_in_every_runtime() -> None:
    from nnef_grad.training import run as train

    graph = nnef_grad.loads(MODEL)
    data = {k: v.astype("f2") for k, v in random_data(graph).items()}
    random = np.random.default_rng(0)
    batch = [random.random((4, 3)), np.eye(3)[[0, 2, 1, 1]]]
    settings: Any = {"loss": "softmax_cross_entropy", "optimizer": "sgd"}
    settings["train"] = "layer2/*"
    found = {}
    for target in ("nnef", "tract", "onnx", "portable"):
        step = nnef_grad.training_step(graph, data=data, target=target, **settings)
        for runtime in ("numpy", "tract", "onnxruntime", "khronos"):
            losses = [*train(step, [batch] * 3, runtime=runtime, learning_rate=0.1)]
            found[target, runtime] = losses
    wanted = found["nnef", "numpy"]
    assert wanted[2] < wanted[0]
    for pair, losses in found.items():
        np.testing.assert_allclose(losses, wanted, rtol=1e-5, err_msg=str(pair))
