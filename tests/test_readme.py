"""What the README shows is what the commands print. `--rewrite-cases` brings it up to
date.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.cases import split

import nnef_grad
from nnef_grad import step_cli
from nnef_grad.cli import main

ROOT = Path(__file__).parents[1]
SHOWN = re.compile(
    r"(<!-- (output|step|messages|errors) of: (.*?) -->\n```\n)(.*?)(```\n)", re.DOTALL
)


def output(arguments: str, folder: Path) -> str:
    """What the command writes."""
    return CliRunner().invoke(main, arguments.split()).stdout


def step(arguments: str, folder: Path) -> str:
    """What the command of training steps writes."""
    return CliRunner().invoke(step_cli.main, arguments.split()).stdout


def messages(arguments: str, folder: Path) -> str:
    """What the command says besides."""
    return CliRunner().invoke(main, arguments.split()).stderr


def errors(case: str, folder: Path) -> str:
    """What the command says of the model of a case."""
    model, _, _ = split(ROOT / case)
    path = folder / "model.nnef"
    path.write_text(model, "utf-8")
    shown = CliRunner().invoke(main, [str(path)]).stderr
    return shown.replace(str(path), path.name)


SHOW = {"output": output, "step": step, "messages": messages, "errors": errors}


def test_the_readme_shows_what_the_commands_print(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = ROOT / "README.md"
    text = path.read_text("utf-8")
    monkeypatch.chdir(ROOT)
    current = SHOWN.sub(lambda m: m[1] + SHOW[m[2]](m[3], tmp_path) + m[5], text)
    if request.config.getoption("--rewrite-cases"):
        path.write_text(current, "utf-8")
    else:
        assert current == text


def test_the_readme_s_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, _ = _programs()
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(program, names)
    second = names["second"]
    assert isinstance(second, nnef_grad.Backward)
    assert list(second.gradients) == ["x"]
    assert (tmp_path / "mlp_bwd.nnef").exists()


def test_the_readme_s_gradients_of_a_module(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx", reason="torch exports modules by the package onnx")
    _, program = _programs()
    exec(program, {})
    printed = capsys.readouterr().out
    assert "'weight': array([[" in printed
    assert "'bias': array([4., 4." in printed


def _programs() -> list[str]:
    text = (ROOT / "README.md").read_text("utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)
