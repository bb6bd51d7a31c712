"""The environment of onnxruntime-training, which wants older packages than we have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

VARIABLE = "NNEF_GRAD_ORT_TRAINING"
CACHE = Path.home() / ".cache" / "nnef-grad" / "onnxruntime-training"
PACKAGES = (
    "onnxruntime-training==1.19.2",
    "numpy==1.26.4",
    "onnx==1.16.2",
    *("cerberus", "h5py", "packaging"),
)


def training_python(given: str | None, *, install: bool) -> str | None:
    """The interpreter of the environment: the given one, that of the variable, or that
    of the cache, which is made if wanted. None if there is none.
    """
    if named := given or os.environ.get(VARIABLE):
        return named
    python = CACHE / "bin" / "python"
    if install and not python.exists():
        make(CACHE)
    return str(python) if python.exists() else None


def make(folder: Path) -> None:
    """Makes the environment, or leaves nothing where the packages are not to be had:
    there are none for Python 3.12 and later.
    """
    print(f"installing onnxruntime-training into {folder}")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    made = subprocess.run([sys.executable, "-m", "venv", folder], check=False)
    if made.returncode or subprocess.run([*pip, *PACKAGES], check=False).returncode:
        shutil.rmtree(folder, ignore_errors=True)
