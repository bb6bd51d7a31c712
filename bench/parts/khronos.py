"""Gradients in the PyTorch interpreter of nnef_tools: by the backward graph, in place of
torch's autograd.

Memory is measured in processes of their own, one for each program.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench import nets
from bench.parts.models import Pair, each, write_pair
from bench.processes import ask
from bench.rows import Measured, Row
from bench.settings import Settings
from nnef_grad import Graph

PART = "khronos"
MEASURED = ("backward", "autograd")


def measure(settings: Settings) -> Measured:
    yield from each(PART, nets.NETS, row, settings)


def row(net: str, batch: int, settings: Settings) -> Row:
    graph = nets.NETS[net](batch)
    with tempfile.TemporaryDirectory() as folder:
        asked = request(graph, write_pair(graph, "khronos", Path(folder)), settings)
        answer = ask("khronos_interpreter", {**asked, "memory": None})
        peaks = {
            program: ask("khronos_interpreter", {**asked, "memory": program})
            for program in MEASURED
        }
    return Row(
        part=PART,
        net=net,
        batch=batch,
        runtime=answer["version"],
        seconds=answer["seconds"],
        mebibytes={name: found["mebibytes"] for name, found in peaks.items()},
        difference=answer["difference"],
    )


def request(graph: Graph, pair: Pair, settings: Settings) -> dict[str, Any]:
    return {
        "models": pair.folders,
        "inputs": [tensor.shape for tensor in graph.inputs],
        "seeds": [tensor.shape for tensor in graph.outputs],
        "variables": [tensor.name for tensor in graph.variables],
        "runs": settings.runs,
        "seconds": settings.seconds,
        "threads": settings.threads,
    }
