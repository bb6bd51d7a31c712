"""The page about tract: all that it shows runs, the loop where there is neither PyTorch nor
nnef-grad. `--rewrite-cases` brings it up to date.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from support.pages import invoke, run_examples, runs, up_to_date
from support.processes import environment
from support.runtimes import needs

import nnef_grad
from nnef_grad import cli, step_cli

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tract.md"
TONES = ROOT / "samples" / "exported" / "tones"
HEAD = re.compile(r"(<!-- head of: (.*?) -->\n```\n)(.*?)(```\n)", re.DOTALL)
# Runs a script with modules that cannot be imported.
WITHOUT = """
import runpy, sys
sys.modules.update(dict.fromkeys(("nnef_grad", "torch"), None))
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The network, and what the device has heard."""
    copytree(TONES, tmp_path / "tones")
    random = np.random.default_rng(0)
    pitches = random.integers(4, size=(100, 32))
    turns = (pitches + 1)[:, :, None, None] * 0.11 * np.arange(64)
    sounds = np.sin(2 * np.pi * turns).astype(np.float32)
    targets = np.eye(4, dtype=np.float32)[pitches]
    np.savez(tmp_path / "heard.npz", sounds=sounds, targets=targets)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def head(words: str) -> str:
    """The head of the document that the command writes."""
    text, _, _ = invoke(step_cli.main, words).stdout.partition("\n{")
    return text + "\n"


@pytest.mark.usefixtures("folder")
def test_the_page_is_up_to_date(request: pytest.FixtureRequest) -> None:
    def change(text: str) -> str:
        return HEAD.sub(lambda m: m[1] + head(m[2]) + m[4], text)

    up_to_date(PAGE, change, request)


def test_the_examples_of_the_page_run(folder: Path) -> None:
    needs("tract")
    losses: list[float] = []

    def run_script(line: str) -> None:
        script = line.removeprefix("python ")
        command = [sys.executable, "-c", WITHOUT, script]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment(), check=False
        )
        assert done.returncode == 0, done.stderr
        losses.append(float(done.stdout.removeprefix("loss ")))

    commands = {
        "nnef-grad": runs(cli.main),
        "nnef-grad-step": runs(step_cli.main),
        "python": run_script,
    }
    run_examples(PAGE, folder, commands)
    assert len(losses) == 1
    assert losses[0] < 0.1
    assert changed(folder) == {"head.weight", "head.bias"}


def changed(folder: Path) -> set[str]:
    """The labels of the network whose values are others than those of the export."""
    before, after = nnef_grad.load_data(TONES), nnef_grad.load_data(folder / "tones")
    return {label for label in before if (before[label] != after[label]).any()}
