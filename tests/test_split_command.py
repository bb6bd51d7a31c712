"""`--split`: two documents in place of one, in every format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.onnx_files import run as in_runtime

import nnef_grad
from nnef_grad.commandline.cli import main

# The mask of h is smaller than what it is made of; y is an output and saved.
TEXT = """version 1.0;

graph net( x ) -> ( y )
{
    x = external(shape = [4, 6]);
    w = variable(shape = [6, 6], label = 'w');
    t = matmul(x, w);
    h = relu(t);
    s = add(h, x);
    y = tanh(s);
}
"""
DATA = {"w": np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32)}
Arrays = Mapping[str, np.ndarray[Any, Any]]
FORMATS = ("{}.nnef", "{}", "{}.tgz")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    nnef_grad.save(nnef_grad.loads(TEXT), "model", data=DATA)
    return tmp_path


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def fed() -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(1)
    return {
        name: random.standard_normal((4, 6)).astype(np.float32)
        for name in ("x", "grad_y")
    }


def wanted() -> Arrays:
    backward = nnef_grad.differentiate(nnef_grad.loads(TEXT), with_outputs=True)
    return nnef_grad.evaluate(backward.graph, fed(), DATA)


def agree(found: Arrays, tolerance: float) -> None:
    for name, array in wanted().items():
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("form", FORMATS)
def test_two_documents_compute_what_one_does(form: str) -> None:
    first, second = form.format("first"), form.format("second")
    result = run("model", "--split", first, "-o", second)
    assert result.exit_code == 0, result.stderr
    forward, backward = nnef_grad.load(first), nnef_grad.load(second)
    assert forward.output_names == ("y", "saved_mask_h")
    assert backward.input_names == ("y", "saved_mask_h", "x", "grad_y")
    data: Any = DATA if form.endswith(".nnef") else nnef_grad.load_data(first)
    made = nnef_grad.evaluate(forward, {"x": fed()["x"]}, data)
    if not form.endswith(".nnef"):
        data = nnef_grad.load_data(second)
    given = {name: {**fed(), **made}[name] for name in backward.input_names}
    agree({**made, **nnef_grad.evaluate(backward, given, data)}, 1e-6)


def test_the_backward_document_may_go_to_stdout() -> None:
    result = run("model", "--split", "first", "-q")
    second = nnef_grad.loads(result.stdout)
    assert second.input_names == ("y", "saved_mask_h", "x", "grad_y")


def test_onnx_files() -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    result = run("model", "--split", "first.onnx", "-o", "second.onnx")
    assert result.exit_code == 0, result.stderr
    known = fed()
    for name in ("first.onnx", "second.onnx"):
        known |= in_runtime(Path(name), known)
    agree(known, 1e-5)
    properties = {p.key: p.value for p in onnx.load("second.onnx").metadata_props}
    assert json.loads(properties["nnef_grad.gradients"])["w"] == "grad_w"


def test_tract() -> None:
    pytest.importorskip("tract")
    from support.runtimes.tract import execute

    result = run("model", "--target", "tract", "--split", "first", "-o", "second")
    assert result.exit_code == 0, result.stderr
    known: dict[str, Any] = fed()
    for name in ("first", "second"):
        inputs = nnef_grad.load(name).input_names
        known |= execute(Path(name), {x: known[x] for x in inputs})
    agree(known, 1e-5)


def test_statistics_of_both_together() -> None:
    result = run("model", "--split", "first", "-o", "second", "--stats")
    *_, line, _ = result.stderr.splitlines()
    # The mask and y; then those, and a gradient or two.
    assert line.startswith("between the halves: 120 B, peak of both: ")
    assert line.endswith("multiply-adds added: 0")
    words = ("--stats", "--format", "json", "--force")
    first, _ = run("model", "--split", "first", "-o", "second", *words).stderr.split(
        "\n"
    )[:2]
    found = json.loads(first)["statistics"]
    assert found["together"]["saved_bytes"] == 120
    assert found["backward"]["name"] == "net_backward"


def test_the_check_is_of_the_whole() -> None:
    result = run("model", "--split", "first", "-o", "second", "--check")
    assert result.exit_code == 0, result.stderr
    assert "grad_w" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--split", "-"], "--split writes FORWARD to a path"),
        (["--split", "same", "-o", "same"], "FORWARD and OUT are both 'same'"),
        (
            ["--split", "model", "-o", "second", "--force"],
            "'model' is the model itself",
        ),
        (["--split", "there", "-o", "second"], "'there' exists already"),
        (["--split", "first.onnx", "--target", "tract"], "is for ONNX Runtime"),
        (["--split", "first", "-o", "none/second.nnef"], "cannot write"),
        (["--split", "p.html", "-o", "second"], "does not have the suffix of a text"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_refused_writes_nothing(
    words: list[str], message: str, folder: Path
) -> None:
    (folder / "there").mkdir()
    (folder / "there" / "notes.txt").write_text("mine", "utf-8")
    before = sorted(folder.rglob("*"))
    result = run("model", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert sorted(folder.rglob("*")) == before


def test_both_documents_are_written_or_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, written = nnef_grad.save, []

    def full_after_the_first(graph: Any, path: str, **options: Any) -> None:
        written.append(path)
        if len(written) > 1:
            raise nnef_grad.UsageError("the disk is full")
        save(graph, path, **options)

    monkeypatch.setattr(nnef_grad, "save", full_after_the_first)
    result = run("model", "--split", "first", "-o", "second")
    assert (result.exit_code, written) == (2, ["first", "second"])
    assert [path.name for path in folder.iterdir()] == ["model"]
