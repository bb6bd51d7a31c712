"""The compiler itself: time and memory of whole processes, and time of its stages.

A process is compared with one that only imports what it is made with; one with much data,
with tarfile of the standard library; reading and writing, with the Khronos tools;
differentiating, with the builder of gradient graphs of onnxruntime-training, which is
written in C++ too; lowering, with differentiating; and each stage on a long chain of
operations, with the same stage on a short one.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import nnef
import numpy as np

import nnef_grad
from bench import nets
from bench.comparisons import BUILDER, FEW, LIMIT, MANY, PACKAGES, TARGETS
from bench.processes import ROOT, FailedError, ask
from bench.published import PUBLISHED
from bench.rows import Measured, Row, Skipped
from bench.settings import Settings
from bench.timing import interleaved
from nnef_grad.interop import to_onnx
from nnef_grad.ops.traits import FED

PART = "compiler"
CHAIN = 1_000  # repetitions of the steps
LAYERS = 8  # of 32 MiB each
OUTPUTS = {
    "a folder": "out",
    "an archive": "out.tar",
    "a compressed archive": "out.tgz",
}
Programs = dict[str, Callable[[], object]]


def measure(settings: Settings) -> Measured:
    measured: dict[str, Callable[[Settings], Measured]] = {
        "start": start,
        "256 MiB of data": data,
        "stages": stages,
        "growth": growth,
    }
    for name, rows in measured.items():
        if settings.wants(name):
            yield from rows(settings)


# ---- Processes ----


def start(settings: Settings) -> Measured:
    """What a process takes for a network of 1,013 operations, and for nothing."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "resnet.nnef")
        model.write_text(PUBLISHED["resnet"](), "utf-8")
        python = partial(process, Path(folder, "bytecode"))
        output = str(Path(folder, "out.nnef"))
        programs: Programs = {
            "nnef-grad resnet.nnef": python(
                "-m", "nnef_grad", str(model), "-o", output, "--force"
            ),
            "nnef-grad --help": python("-m", "nnef_grad", "--help"),
            PACKAGES: python("-c", "import lark, click"),
        }
        seconds = warmed(programs, settings.runs, settings.seconds)
    yield Row(PART, "start", 1, "whole processes", seconds)


def data(settings: Settings) -> Measured:
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
        python = partial(process, folder / "bytecode")
        peer = python("-m", "tarfile", "-c", str(folder / "peer.tar"), str(model))
        programs = {to: python("-m", "nnef_grad", *a) for to, a in arguments.items()}
        seconds = warmed({**programs, "tarfile": peer}, 3, settings.seconds)
        peaks = {to: ask("compiler", {"arguments": a}) for to, a in arguments.items()}
    yield Row(PART, "256 MiB of data", 1, "whole processes", seconds, peaks)


def warmed(programs: Programs, runs: int, seconds: float) -> dict[str, list[float]]:
    """The times of processes after a first run, which keeps the tables of the parser, and
    the byte code that an installed package has.
    """
    for run in programs.values():
        run()
    return interleaved(programs, runs, seconds)


def process(bytecode: Path, *arguments: str) -> Callable[[], object]:
    """A run of the interpreter, with a folder where it keeps byte code."""
    command = [sys.executable, *arguments]
    kept = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "PYTHONPYCACHEPREFIX": str(bytecode)}
    return lambda: subprocess.run(
        command, check=True, capture_output=True, cwd=ROOT, env=environment
    )


def heavy(layers: int) -> nnef_grad.Graph:
    """Layers of 32 MiB of weights each."""
    body = nets.Body()
    h = body.external("x", 1, 2048)
    for i in range(layers):
        wide = f"linear({h}, {body.variable(f'w{i}', 4096, 2048)})"
        h = body.let(f"h{i}", f"slice({wide}, axes = [1], begin = [0], end = [2048])")
    body.let("y", f"copy({h})")
    return body.graph("heavy")


# ---- Stages ----


def stages(settings: Settings) -> Measured:
    """The stages on a chain, each beside its peer."""
    text = nets.chain(CHAIN)
    graph = nnef_grad.loads(text)
    backward = nnef_grad.differentiate(graph, wrt="variables")
    parsed = nnef.parse_string(nnef_grad.dumps(backward))
    programs: Programs = {
        **stages_of(text),
        "nnef.parse_string": lambda: nnef.parse_string(text),
        "nnef.format_graph": lambda: nnef.format_graph(
            parsed.name,
            parsed.inputs,
            parsed.outputs,
            parsed.operations,
            parsed.tensors,
        ),
    }
    gc.collect()
    seconds = interleaved(programs, settings.runs, settings.seconds)
    if settings.training is not None:
        try:
            seconds[BUILDER] = builder(graph, settings, settings.training)
        except FailedError as error:
            yield Skipped(PART, BUILDER, str(error))
    counts = {"forward": computing(graph), "backward": computing(backward.graph)}
    net = f"a chain of {counts['forward']:,} operations"
    yield Row(PART, net, 1, "stages", seconds, operations=counts)


def stages_of(text: str) -> Programs:
    """The stages of the compiler on a text."""
    graph = nnef_grad.loads(text)
    backward = nnef_grad.differentiate(graph, wrt="variables")
    return {
        "read": lambda: nnef_grad.loads(text),
        "differentiate": lambda: nnef_grad.differentiate(graph, wrt="variables"),
        "write": lambda: nnef_grad.dumps(backward),
        **{
            f"lower to {target}": partial(nnef_grad.lower, backward.graph, target)
            for target in TARGETS
        },
    }


def computing(graph: nnef_grad.Graph) -> int:
    """How many operations of a graph compute something."""
    return sum(op.name not in FED for op in graph.operations)


def builder(graph: nnef_grad.Graph, settings: Settings, python: str) -> list[float]:
    """The times of the peer that builds a gradient graph of the same operations, in an
    environment of its own.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "forward.onnx"))
        to_onnx(graph, file, nets.random_data(graph))
        request: dict[str, Any] = {
            "forward": file,
            "variables": [*graph.labels],
            "runs": settings.runs,
            "seconds": settings.seconds,
        }
        times: list[float] = ask("gradient_builder", request, python)
        return times


def growth(settings: Settings) -> Measured:
    """The seconds that a stage takes for an operation of a short chain and of a long one,
    and the memory that a process takes for the long one.
    """
    seconds: dict[str, list[float]] = {}
    for operations, runs in ((FEW, settings.runs), (MANY, 1)):
        text = nets.chain(operations // len(nets.STEPS))
        times = interleaved(stages_of(text), runs, settings.seconds)
        for stage, taken in times.items():
            seconds[f"{stage}, {operations:,}"] = [t / operations for t in taken]
    memory = {"nnef-grad": peak(nets.chain(MANY // len(nets.STEPS))), LIMIT: 1024.0}
    yield Row(PART, f"{MANY:,} operations", 1, "long chains", seconds, memory)


def peak(text: str) -> float:
    """The MiB that a process takes to compile a text for all runtimes."""
    with tempfile.TemporaryDirectory() as folder:
        model, output = Path(folder, "model.nnef"), Path(folder, "out.nnef")
        model.write_text(text, "utf-8")
        arguments = [str(model), "-o", str(output), "--target", "portable", "-q"]
        return float(ask("compiler", {"arguments": arguments}))
