"""The Khronos parser in a process of its own.

It crashes on some texts, loops on others and eats the memory on a third kind. A crash
is an answer like any other here, and the next text gets a new process.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

TIMEOUT = 5.0
MEMORY = 1 << 30

# In the other process, which reads a request a line and writes an answer a line.
_SERVER = """
import json, os, sys
import nnef
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, ValueError):
    pass
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

def plain(value):
    if isinstance(value, nnef.Identifier):
        return {"tensor": str(value)}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [plain(item) for item in value]}
    return value

def items(values):
    return [[name, plain(value)] for name, value in values.items()]

def answer(text, lowered, shapes):
    graph = nnef.parse_string(text, lowered=lowered)
    if shapes:
        nnef.infer_shapes(graph)
    return {
        "name": graph.name, "inputs": graph.inputs, "outputs": graph.outputs,
        "dtypes": {name: tensor.dtype for name, tensor in graph.tensors.items()},
        "shapes": {name: tensor.shape for name, tensor in graph.tensors.items()},
        "operations": [
            [op.name, op.dtype, items(op.inputs), items(op.attribs), items(op.outputs)]
            for op in graph.operations
        ],
    }

for line in sys.stdin:
    try:
        reply = {"graph": answer(*json.loads(line))}
    except Exception as error:
        reply = {"refused": f"{type(error).__name__}: {error}"}
    print(json.dumps(reply), file=answers, flush=True)
"""


class Answer(NamedTuple):
    """What became of a text: a graph, a refusal, or neither.

    Attributes:
        verdict: accepts, refuses, or crashes.
        message: why it was refused, or how it crashed.
        graph: the graph as plain values.
    """

    verdict: str
    message: str = ""
    graph: Any = None


class Khronos:
    """Gives texts to the Khronos parser."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def parse(
        self, text: str, lowered: Sequence[str] = (), shapes: bool = True
    ) -> Answer:
        """Parses a text and infers its shapes.

        Args:
            text: the document.
            lowered: operations whose bodies are put in their place.
            shapes: whether shapes are inferred, which no graph survives that holds a
                fragment without a body.
        """
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([text, list(lowered), shapes]) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], TIMEOUT)
        line = process.stdout.readline() if ready else ""
        if not line:
            return Answer("crashes", self._ended(process, bool(ready)))
        reply = json.loads(line)
        if "refused" in reply:
            return Answer("refuses", reply["refused"])
        return Answer("accepts", graph=reply["graph"])

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._ended(self._process, ended=False)

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVER.replace("MEMORY", str(MEMORY))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )
        return self._process

    def _ended(self, process: subprocess.Popen[str], ended: bool) -> str:
        self._process = None
        if not ended:
            process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        return f"signal {-code}" if ended else f"no answer in {TIMEOUT} seconds"
