"""Processes that run the package as it is under test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nnef_grad


def environment(**more: str) -> dict[str, str]:
    """The variables of a process that imports this package, wherever it runs."""
    root = Path(nnef_grad.__file__).parents[1]
    return {**os.environ, "PYTHONPATH": str(root), **more}


def python(
    program: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the text of a program in Python, in a folder."""
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=folder,
        check=False,
    )


def shell(command: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of bash in a folder."""
    return subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        env=environment(**more),
        cwd=folder,
        check=False,
    )
