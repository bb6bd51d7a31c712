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
from nnef_grad import Graph, Operation

PART = "khronos"
MEASURED = ("backward", "autograd")
# Autograd goes through the forward graph as it is, with the operations of torch that are
# made for its compound operations.
TARGETS = {"forward": "nnef", "backward": "khronos"}


def measure(settings: Settings) -> Measured:
    yield from each(PART, nets.NETS, rows, settings)


def rows(net: str, batch: int, settings: Settings) -> Measured:
    graph = nets.NETS[net](batch)
    wrt = parameters(graph)
    with tempfile.TemporaryDirectory() as folder:
        pair = write_pair(graph, wrt, TARGETS, Path(folder))
        asked = {**request(graph, pair, settings), "variables": wrt}
        answer = ask("khronos_interpreter", {**asked, "memory": None})
        peaks = {
            program: ask("khronos_interpreter", {**asked, "memory": program})
            for program in MEASURED
        }
    yield Row(
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
        "literal_norms": any(map(has_literals, graph.operations)),
        "runs": settings.runs,
        "seconds": settings.seconds,
        "threads": settings.threads,
    }


def parameters(graph: Graph) -> list[str]:
    """The variables but for the statistics of batch normalizations: torch takes these
    for constants.
    """
    norms = [op for op in graph.operations if op.name == "batch_normalization"]
    statistics = {tensor for op in norms for tensor in op.operands[1:3]}
    return [graph.names[x] for x in graph.variables if x not in statistics]


def has_literals(op: Operation) -> bool:
    """Whether it is a batch normalization with numbers for operands."""
    return op.name == "batch_normalization" and len(op.inputs) < len(op.operands)
