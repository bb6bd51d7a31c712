"""Workers: processes that measure, each for one row, so that a row begins with a fresh
memory and fresh threads, and one that crashes takes no other with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        check=False,
    )
    if found.returncode:
        said = found.stderr.strip().splitlines() or [f"exit code {found.returncode}"]
        raise FailedError(shortened(said[-1]))
    return json.loads(found.stdout.splitlines()[-1])


def shortened(message: str) -> str:
    """A message whose beginning is left out where it is long: ONNX Runtime writes whole
    signatures before what went wrong.
    """
    return message if len(message) < LONGEST else f"... {message[-LONGEST:]}"


def answer(function: Callable[[dict[str, Any]], object]) -> None:
    """Reads the request of a worker, and prints what the function returns for it."""
    request = json.load(sys.stdin)
    print("\n" + json.dumps(function(request)))
