"""The line on a terminal that says what takes its time."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import environment

MODEL = """version 1.0;

graph net( x, w ) -> ( y )
{
    x = external(shape = [2, 3]);
    w = external(shape = [1, 3]);
    h = tanh(x);
    y = mul(h, w);
}
"""
# Every stage takes a moment, which is more than the delay.
SLOW = """
import time
import nnef_grad.commandline.console as console
from nnef_grad.commandline import cli, command
from nnef_grad.interpreter.gradcheck import _Comparison

console.DELAY = console.INTERVAL = 0.02

def slowly(function):
    def slow(*arguments, **options):
        time.sleep(0.2)
        return function(*arguments, **options)
    return slow

for owner, name in (
    (command.Reading, "open"), (command.Deriving, "backward"), (command, "_lower"), (command, "_write_all")
):
    setattr(owner, name, slowly(getattr(owner, name)))
_Comparison._measure = slowly(_Comparison._measure)
cli.main()
"""


def on_a_terminal(folder: Path, *arguments: str) -> tuple[int, str]:
    """Runs the command with a terminal as stderr: the exit code, and what it shows."""
    (folder / "m.nnef").write_text(MODEL, "utf-8")
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-c", SLOW, "m.nnef", *arguments],
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=folder,
        env=environment(),
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:
            break
    os.close(ours)
    program.communicate()
    return program.returncode, shown.decode()


def remaining(shown: str) -> list[str]:
    """The lines that are left on the terminal in the end."""
    return [re.sub(r".*\r\x1b\[K", "", line) for line in shown.split("\r\n")]


def test_every_stage_is_shown_and_gone_in_the_end(tmp_path: Path) -> None:
    code, shown = on_a_terminal(tmp_path, "--check")
    assert code == 0
    for stage in ("reading", "differentiating", "lowering", "writing"):
        assert f"\r\x1b[K{stage} ... 0 s" in shown
    assert "checking gradients ... 1 of 2, about 0 s left" in shown
    first, *rows, conclusion, summary, end = remaining(shown)
    assert first.split() == ["gradient", "shape", "error", "verdict"]
    assert sorted(row.split()[0] for row in rows) == ["grad_w", "grad_x"]
    assert conclusion.startswith("2 gradients checked")
    assert summary.startswith("net: ")
    assert end == ""


@pytest.mark.parametrize("option", ["--quiet", "--format=json"])
def test_nothing_is_shown_to_programs(option: str, tmp_path: Path) -> None:
    code, shown = on_a_terminal(tmp_path, option)
    assert (code, "\x1b" in shown) == (0, False)


def test_nothing_is_shown_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "m.nnef").write_text(MODEL, "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SLOW, "m.nnef"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
        check=True,
    )
    assert done.stderr.startswith("net: ")
