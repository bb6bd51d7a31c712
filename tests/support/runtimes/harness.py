"""Runs cases in the processes of a consumer.

A process takes one case after the other, and waits for more until the program ends:
starting one takes as long as a hundred cases. When it dies, the case that it had is tried
again in a new one: it may be an earlier case that broke the memory.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnef_grad.targets import TARGETS
from support.runtimes.cases import Array, Case, Outcome, Stored

# What each of them imports. numpy and nnef, which writes the files of variables, are
# there wherever the tests are.
CONSUMERS: dict[str, tuple[str, ...]] = {
    "khronos": ("nnef",),
    "session": ("nnef",),
    "interpreter": ("nnef", "nnef_tools", "torch"),
    "tract": ("nnef", "tract"),
    "onnx": ("nnef", "onnx", "onnxruntime"),
    "openvino": ("nnef", "onnx", "openvino"),
    "converter": ("nnef", "nnef_tools", "onnx", "onnxruntime"),
}
# What reads ONNX besides, by its name in engines.py. `web` wants packages of npm, too.
ENGINES: dict[str, tuple[str, ...]] = {
    "reference": ("nnef", "onnx"),
    "web": ("nnef", "onnx"),
    "tvm": ("nnef", "onnx", "tvm"),
    "iree": ("nnef", "onnx", "iree"),
    "tinygrad": ("nnef", "onnx", "tinygrad"),
    "mnn": ("nnef", "onnx", "MNN"),
}
NPM = Path(__file__).parents[3] / "samples" / "web" / "node_modules"
SECONDS = 60.0
# Importing torch takes long on a machine that is busy.
SECONDS_TO_START = 180.0
LINES = 6
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "RUST_BACKTRACE": "0",
    # Memory that nobody has written holds numbers that cannot pass for zeros, so that
    # reading it is wrong every time.
    "MALLOC_PERTURB_": "66",
}


class MissingError(Exception):
    """A consumer is not installed; the message says what to install."""


def missing(consumer: str) -> str:
    """What must be installed for a consumer to run, in a sentence; empty if nothing."""
    wanted = {**CONSUMERS, **ENGINES}[consumer]
    names = ", ".join(name for name in wanted if find_spec(name) is None)
    if consumer == "web" and not (NPM.exists() and shutil.which("node")):
        return "Node.js, and packages of npm: make npm"
    extra = "engines" if consumer in ENGINES else "runtimes"
    return f"{names}: pip install --group {extra}" if names else ""


def consumers_of(target: str) -> tuple[str, ...]:
    """What runs the graphs of a target: tract is one consumer, with operations of its own
    and without, and so is ONNX Runtime, alone and for all engines of ONNX.
    """
    names = (name.removesuffix("-standard") for name in TARGETS[target])
    return tuple("onnx" if name == "engines" else name for name in names)


def needs(*consumers: str) -> None:
    """Skips a test that wants consumers which are not installed."""
    for consumer in consumers:
        if absent := missing(consumer):
            pytest.skip(f"{consumer} wants {absent}")


def run(
    consumer: str, cases: Sequence[Case | Stored], seconds: float = SECONDS
) -> list[Outcome]:
    """What a consumer makes of each case.

    Args:
        consumer: one of `CONSUMERS` or `ENGINES`.
        cases: the graphs with their data, or where these are stored.
        seconds: the time limit of a case.

    Raises:
        MissingError: the consumer is not installed.
    """
    if missing(consumer):
        raise MissingError(f"{consumer} wants {missing(consumer)}")
    worker = _worker(consumer)
    with tempfile.TemporaryDirectory() as name:
        return [
            worker.run(_written(case, Path(name) / str(number)), seconds)
            for number, case in enumerate(cases)
        ]


@cache
def _worker(consumer: str) -> _Worker:
    """The one process of a consumer, which ends with the program."""
    folder = tempfile.TemporaryDirectory()
    worker = _Worker(consumer, Path(folder.name) / "stderr")
    atexit.register(folder.cleanup)
    atexit.register(worker.end)
    return worker


# ---- Data ----


def _written(case: Case | Stored, folder: Path) -> Path:
    if isinstance(case, Stored):
        shutil.copytree(case.folder, folder)
    else:
        folder.mkdir()
        (folder / "graph.nnef").write_text(case.text, "utf-8")
    _save(folder / "inputs.npz", case.inputs)
    _save(folder / "variables.npz", {} if isinstance(case, Stored) else case.variables)
    return folder


def _save(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes arrays after an array of their names: not every name is good for a key."""
    np.savez(path, np.array(list(arrays), np.str_), *arrays.values())


def _read(folder: Path, answer: Mapping[str, Any]) -> Outcome:
    """The outcome that an answer tells of, in all settings."""
    others = {
        setting.replace("_", " "): _read_one(folder, other, setting)
        for setting, other in answer["others"].items()
    }
    return replace(_read_one(folder, answer), others=others)


def _read_one(folder: Path, answer: Mapping[str, Any], setting: str = "") -> Outcome:
    if "refused" in answer:
        return Outcome(failure="refused", message=answer["refused"])
    if "shapes" in answer:
        return Outcome({name: tuple(s) for name, s in answer["shapes"].items()})
    with np.load(folder / f"outputs{setting}.npz") as archive:
        arrays = [archive[key] for key in archive.files]
    outputs = dict(zip(answer["outputs"], arrays, strict=True))
    return Outcome({name: array.shape for name, array in outputs.items()}, outputs)


# ---- Processes ----


class _Worker:
    """A consumer in a process, which is started when it is needed."""

    def __init__(self, consumer: str, errors: Path) -> None:
        self._consumer = consumer
        self._errors = errors
        self._said_before = 0
        self._process: subprocess.Popen[str] | None = None

    def end(self) -> None:
        """Ends the process, if there is one."""
        if self._process is not None:
            self._end(self._process)

    def run(self, folder: Path, seconds: float = SECONDS) -> Outcome:
        """What the consumer makes of the case in a folder."""
        is_used = self._process is not None
        outcome = self._ask(folder, seconds)
        if outcome.failure == "crashed" and is_used:
            outcome = self._ask(folder, seconds)
        return outcome

    def _ask(self, folder: Path, seconds: float) -> Outcome:
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(f"{folder}\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._crashed(process)
        line = _line(process, seconds)
        if line is None:
            self._end(process)
            message = f"no answer in {seconds:g} seconds"
            return Outcome(failure="timed out", message=message)
        return _read(folder, json.loads(line)) if line else self._crashed(process)

    def _started(self) -> subprocess.Popen[str]:
        with self._errors.open("ab") as errors:
            self._said_before = errors.tell()
            if self._process is not None:
                return self._process
            process = self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-W",
                    "ignore",
                    "-m",
                    f"support.runtimes.{'engines' if self._consumer in ENGINES else self._consumer}",
                    self._consumer,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
                cwd=ROOT,
                env={**os.environ, **ENVIRONMENT},
            )
        if not _line(process, SECONDS_TO_START):
            process.kill()
            message = self._crashed(process).message
            raise RuntimeError(f"'{self._consumer}' does not start: {message}")
        return process

    def _crashed(self, process: subprocess.Popen[str]) -> Outcome:
        code = process.wait()
        self._end(process)
        end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        said = self._errors.read_bytes()[self._said_before :].decode("utf-8", "replace")
        # Below the first lines stands a trace of the stack.
        message = "\n".join([end, *said.strip().splitlines()[:LINES]])
        return Outcome(failure="crashed", message=message)

    def _end(self, process: subprocess.Popen[str]) -> None:
        """Ends the process, if it has not ended."""
        self._process = None
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            # What it was told last may be on its way still.
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _line(process: subprocess.Popen[str], seconds: float) -> str | None:
    """The next line of an answer: empty if the process has died, None if it is late."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline() if ready else None
