"""Networks of PyTorch: their gradients by ONNX files in ONNX Runtime and in OpenVINO, in
place of PyTorch, in eager mode or compiled.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from bench.parts.models import each
from bench.processes import FailedError, Running, ask
from bench.rows import Measured, Row, Skipped
from bench.settings import Settings
from bench.timing import in_turns
from bench.workers.results import difference
from bench.workers.torch_models import NETS

PART = "real"
RUNTIMES = ("onnxruntime", "openvino")
PEERS = {"torch": False, "torch.compile": True}


def measure(settings: Settings) -> Measured:
    yield from each(PART, NETS, rows, settings)


def rows(net: str, batch: int, settings: Settings) -> Measured:
    """A row for each runtime. Each program has a process of its own, and all of them take
    turns.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        request = {"net": net, "batch": batch, "folder": folder}
        request |= {**ask("torch_to_onnx", request), "threads": settings.threads}
        running: dict[str, Running] = {}
        for name, worker, own in programs():
            try:
                running[name] = stack.enter_context(Running(worker, {**request, **own}))
            except FailedError as error:
                yield Skipped(PART, f"{net}, batch {batch}, {name}", str(error))
        seconds = in_turns(running, settings.runs, settings.seconds)
        peers = {name: seconds[name] for name in PEERS if name in seconds}
        for runtime in filter(running.__contains__, RUNTIMES):
            yield Row(
                PART,
                net,
                batch,
                f"{runtime} {version(runtime)}, torch {version('torch')}",
                {"backward": seconds[runtime], **peers},
                difference=difference(
                    running[runtime].results, running["torch"].results
                ),
            )


def programs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The name of each program that can run here, its worker, and what else that is told."""
    for runtime in RUNTIMES:
        if find_spec(runtime) is not None:
            yield runtime, "onnx_gradients", {"runtime": runtime}
    for peer, compiles in PEERS.items():
        yield peer, "torch_gradients", {"compiles": compiles}
