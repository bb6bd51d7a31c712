"""Workers: processes that measure, each for one row, so that a row begins with a fresh
memory and fresh threads, and one that crashes takes no other with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from bench.timing import timed

LONGEST = 160
ROOT = Path(__file__).parents[1]


class FailedError(Exception):
    """A worker did not answer; says why, in a line."""


def ask(worker: str, request: dict[str, Any], python: str = sys.executable) -> Any:
    """What a module of bench/workers answers to a request.

    Raises:
        FailedError: the process failed.
    """
    found = subprocess.run(
        [python, "-m", f"bench.workers.{worker}"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        **SURROUNDINGS,
    )
    if found.returncode:
        raise FailedError(last_line(found.stderr, found.returncode))
    return json.loads(found.stdout.splitlines()[-1])


SURROUNDINGS: Any = {
    "cwd": ROOT,
    "env": {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
}


def last_line(written: str, code: int) -> str:
    """What a process that failed said last."""
    said = written.strip().splitlines() or [f"exit code {code}"]
    return shortened(said[-1])


def shortened(message: str) -> str:
    """A message whose beginning is left out where it is long: ONNX Runtime writes whole
    signatures before what went wrong.
    """
    return message if len(message) < LONGEST else f"... {message[-LONGEST:]}"


def answer(function: Callable[[dict[str, Any]], object]) -> None:
    """Reads the request of a worker, and prints what the function returns for it."""
    request = json.load(sys.stdin)
    print("\n" + json.dumps(function(request)))


def answer_by_kind(*functions: Callable[..., object]) -> None:
    """`answer`, by the function that the request names."""
    known = {function.__name__: function for function in functions}
    answer(lambda request: known[request.pop("kind")](**request))


# ---- Programs that stay, and run when they are told to ----

# What is timed; it returns the results.
Program = Callable[[], Any]


class Running:
    """A program in a process of its own, which runs when it is called.

    Attributes:
        results: what it computed when it was run first.
    """

    def __init__(self, worker: str, request: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"bench.workers.{worker}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **SURROUNDINGS,
        )
        self._write(json.dumps(request))
        file = self._read()
        with np.load(file) as stored:
            self.results = [*stored.values()]
        Path(file).unlink()

    def __call__(self) -> float:
        """Runs it once; returns the seconds."""
        self._write("run")
        return float(self._read())

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _read(self) -> str:
        """A line that the program answers, among those that its packages write."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                return str(line).removeprefix(ANSWER).strip()
        _, written = self._process.communicate()
        raise FailedError(last_line(written, self._process.returncode))

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()


ANSWER = "answer: "


def serve(prepare: Callable[[dict[str, Any]], Program]) -> None:
    """Prepares the program of a request, stores what it computes, and runs it for each
    further line.
    """
    request = json.loads(sys.stdin.readline())
    program = prepare(request)
    file = Path(request["folder"], f"{os.getpid()}.npz")
    np.savez(file, *map(np.asarray, program()))
    # What a runtime plans for its memory in the first run, it takes in the second.
    program()
    print(f"{ANSWER}{file}", flush=True)
    for _ in sys.stdin:
        print(f"{ANSWER}{timed(program)}", flush=True)
