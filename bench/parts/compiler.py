"""The compiler itself: time and memory of whole processes, and time of its stages.

A process is compared with one that only imports the packages that the compiler needs;
one with much data, with tarfile of the standard library; a stage, with Khronos' parser
on the same text. Chains of more and more operations show whether time is linear.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import nnef
import numpy as np

import nnef_grad
from bench.nets import Body, residual
from bench.processes import ROOT, ask
from bench.rows import Measured, Row
from bench.settings import Settings
from bench.timing import interleaved

PART = "compiler"
PACKAGES = "python with lark and click"
LAYERS = 8  # of 32 MiB each
OUTPUTS = {
    "a folder": "out",
    "an archive": "out.tar",
    "a compressed archive": "out.tgz",
}
CHAINS = (1_000, 10_000, 100_000)


def measure(settings: Settings) -> Measured:
    measured: dict[str, Callable[[Settings], Row]] = {
        "23 residual blocks": process,
        "256 MiB of data": data,
        **{f"a chain of {n:,}": partial(stages, n) for n in CHAINS},
    }
    for name, row in measured.items():
        if settings.wants(name):
            yield row(settings)


def process(settings: Settings) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        model, output = Path(folder, "model.nnef"), Path(folder, "out.nnef")
        nnef_grad.save(residual(23), model)
        arguments = (str(model), "-o", str(output), "--force")
        programs = {
            "nnef-grad": python("-m", "nnef_grad", *arguments),
            PACKAGES: python("-c", "import lark, click"),
        }
        for run in programs.values():
            run()  # the tables of the parser are generated once, and kept
        seconds = interleaved(programs, settings.runs, settings.seconds)
    return Row(PART, "23 residual blocks", 1, "python", seconds)


def data(settings: Settings) -> Row:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model"
        kernel = np.ones((4096, 2048), np.float32)
        arrays = {f"w{i}": kernel for i in range(LAYERS)}
        nnef_grad.save(heavy(LAYERS), model, data=arrays)
        arguments = {
            output: [str(model), "-o", str(folder / file), "--force", "-q"]
            for output, file in OUTPUTS.items()
        }
        peer = python("-m", "tarfile", "-c", str(folder / "peer.tar"), str(model))
        programs = {to: python("-m", "nnef_grad", *a) for to, a in arguments.items()}
        seconds = interleaved({**programs, "tarfile": peer}, 3, settings.seconds)
        peaks = {to: ask("compiler", {"arguments": a}) for to, a in arguments.items()}
    return Row(PART, "256 MiB of data", 1, "python", seconds, peaks)


def python(*arguments: str) -> Callable[[], object]:
    command = [sys.executable, *arguments]
    return lambda: subprocess.run(command, check=True, capture_output=True, cwd=ROOT)


def heavy(layers: int) -> nnef_grad.Graph:
    """Layers of 32 MiB of weights each."""
    body = Body()
    h = body.external("x", 1, 2048)
    for i in range(layers):
        wide = f"linear({h}, {body.variable(f'w{i}', 4096, 2048)})"
        h = body.let(f"h{i}", f"slice({wide}, axes = [1], begin = [0], end = [2048])")
    body.let("y", f"copy({h})")
    return body.graph("heavy")


def stages(operations: int, settings: Settings) -> Row:
    """The seconds that 10,000 operations take: constant figures mean linear time."""
    text = chain(operations)
    graph = nnef_grad.loads(text)
    backward = nnef_grad.differentiate(graph)
    programs: dict[str, Callable[[], object]] = {
        "read": lambda: nnef_grad.loads(text),
        "differentiate": lambda: nnef_grad.differentiate(graph),
        "lower": lambda: nnef_grad.lower(backward.graph, "portable"),
        "write": lambda: nnef_grad.dumps(backward),
        "nnef.parse_string": lambda: nnef.parse_string(text),
    }
    gc.collect()
    times = interleaved(programs, 3 if operations < CHAINS[-1] else 1, settings.seconds)
    scaled = {n: [t * 10_000 / operations for t in ts] for n, ts in times.items()}
    return Row(PART, f"a chain of {operations:,}", 1, "python", scaled)


def chain(operations: int) -> str:
    """A chain of element-wise operations."""
    steps = ("mul({h}, w)", "tanh({h})", "add({h}, x)", "relu({h})")
    body = Body()
    body.external("x", 4, 16)
    body.variable("w", 1, 16)
    h = body.let("h", "copy(x)")
    for i in range(operations):
        h = body.let(f"h{i}", steps[i % len(steps)].format(h=h))
    body.let("y", f"copy({h})")
    return body.text("chain")
