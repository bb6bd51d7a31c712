"""The name of OUT says what it is; a dot in it says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage.test_codes import made
from support.stored_models import (
    FORMS,
    MODEL,
    as_folder,
    files,
    run,
    write_archive,
    write_files,
)

import nnef_grad
from nnef_grad.commandline.merge_cli import main as merge
from nnef_grad.commandline.step_cli import main as step

NAMES = ["ch_ppocr_mobile_v2.0_cls", "model.v2", "a.b.c", "name", "name.d/", ".hidden"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["folder", "tgz", "onnx"])
def test_what_is_made_of_data_is_a_folder(form: str, name: str, tmp_path: Path) -> None:
    model = as_folder(tmp_path)
    if form == "tgz":
        model = write_archive(tmp_path / "m.x.tgz", files())
    if form == "onnx":
        graph, data = nnef_grad.load(model), nnef_grad.load_data(model)
        model = tmp_path / "m.onnx"
        nnef_grad.interop.to_onnx(graph, model, data)
    out = tmp_path / "out" / name
    out.parent.mkdir()
    assert run(model, "-o", f"{tmp_path}/out/{name}", "-q").exit_code == 0
    assert (out / "graph.nnef").is_file()
    assert nnef_grad.load_data(out)
    result = run(model, "-o", f"{tmp_path}/out/{name}", "-q")
    assert (result.exit_code, "exists already" in result.stderr) == (2, True)
    assert run(model, "-o", f"{tmp_path}/out/{name}", "-q", "--force").exit_code == 0


@pytest.mark.parametrize("name", ["x.nnef", "x.v2.nnef", "x.txt", "x.TEXT"])
def test_texts_of_folders(name: str, tmp_path: Path) -> None:
    assert run(as_folder(tmp_path), "-o", tmp_path / name, "-q").exit_code == 0
    assert (tmp_path / name).is_file()


@pytest.mark.parametrize("name", ["x.v2", "grads.json", "x.pt2"])
def test_an_unknown_ending_of_what_is_made_of_a_text(name: str, tmp_path: Path) -> None:
    model = write_files(tmp_path, {"m.nnef": MODEL.encode()}) / "m.nnef"
    result = run(model, "-o", tmp_path / name, "-q")
    assert result.exit_code == 2
    assert (
        "suffix of a text or an archive: .nnef, .tgz, .tar.gz, .tar, or"
        in result.stderr
    )
    assert not (tmp_path / name).exists()


def test_halves_steps_and_merged_models(tmp_path: Path) -> None:
    model = FORMS["folder"](tmp_path)
    words = ["--split", tmp_path / "fwd.v2", "-o", tmp_path / "bwd.v2", "-q"]
    assert run(model, *words).exit_code == 0
    made(step, model, "--loss", "mean_squared_error", "-o", tmp_path / "step.v2")
    made(merge, model, tmp_path / "step.v2", "-o", tmp_path / "merged.v2")
    for name in ("fwd.v2", "bwd.v2", "step.v2", "merged.v2"):
        assert (tmp_path / name / "graph.nnef").is_file()


def test_a_file_is_not_replaced_by_a_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.v2").write_text("mine")
    result = run(as_folder(tmp_path), "-o", tmp_path / "notes.v2", "--force")
    assert (result.exit_code, "is a file, not a folder" in result.stderr) == (2, True)
    assert (tmp_path / "notes.v2").read_text() == "mine"
