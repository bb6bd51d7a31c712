"""Backward graphs in ONNX Runtime, of all variables: compared with the forward graph, and
with the gradient graph that onnxruntime-training makes of it.

All three run in the edition of ONNX Runtime for training, the only one that has the
operators of its gradient graph; ours run in the newest ordinary edition as well.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nnef_grad
from bench import nets
from bench.processes import FailedError, ask
from bench.rows import Measured, Row, Skipped
from bench.settings import Settings
from nnef_grad import Graph
from nnef_grad.interop import to_onnx

PART = "onnx"
PEER = "onnxruntime-training"


def measure(settings: Settings) -> Measured:
    if not settings.training:
        yield Skipped(PART, PEER, "its environment is not here: see bench/README.md")
    for net in filter(settings.wants, nets.NETS):
        for batch in settings.batches:
            try:
                yield from rows(net, batch, settings)
            except (nets.MissingError, FailedError) as error:
                yield Skipped(PART, f"{net}, batch {batch}", str(error))


def rows(net: str, batch: int, settings: Settings) -> Measured:
    graph = nets.NETS[net](batch)
    with tempfile.TemporaryDirectory() as folder:
        files = Files(graph, Path(folder), settings.training)
        if settings.training:
            answer = timed(files.all(), settings, folder, settings.training)
            yield row(net, batch, f"{PEER} {answer['version']}", answer)
        answer = timed(files.ours(), settings, folder, sys.executable)
        yield row(net, batch, f"onnxruntime {answer['version']}", answer)


class Files:
    """The ONNX files of a network, of its forward graph and of its gradients."""

    def __init__(self, graph: Graph, folder: Path, training: str | None) -> None:
        self.folder = folder
        data = nets.random_data(graph)
        to_onnx(graph, self.path("forward"), data)
        wrt = [tensor.name for tensor in graph.variables]
        if training:
            # Both graphs compute the gradients that the peer has.
            wrt = ask("gradient_graph", self._request(wrt), training)["variables"]
        backward = nnef_grad.differentiate(graph, wrt=wrt)
        to_onnx(backward.graph, self.path("backward"), data)

    def _request(self, wrt: list[str]) -> dict[str, Any]:
        output = self.path(PEER)
        return {"forward": self.path("forward"), "output": output, "variables": wrt}

    def path(self, program: str) -> str:
        return str(self.folder / f"{program}.onnx")

    def ours(self) -> dict[str, str]:
        return {name: self.path(name) for name in ("forward", "backward")}

    def all(self) -> dict[str, str]:
        return {**self.ours(), PEER: self.path(PEER)}


def timed(files: dict[str, str], settings: Settings, folder: str, python: str) -> Any:
    request = {
        "files": files,
        "alike": ["backward", PEER],
        "runs": settings.runs,
        "seconds": settings.seconds,
        "threads": settings.threads,
        "profile": folder if settings.profile else None,
    }
    answer = ask("onnx_runtime", request, python)
    for line in profile_lines(answer.get("profiles", {})):
        print(line)
    return answer


def row(net: str, batch: int, runtime: str, answer: Any) -> Row:
    seconds, difference = answer["seconds"], answer["difference"]
    return Row(PART, net, batch, runtime, seconds, difference=difference)


def profile_lines(profiles: dict[str, Any]) -> Iterator[str]:
    """The operators that take most of the time, a table for each program."""
    for program, operators in profiles.items():
        yield f"    {program}:"
        for operator, share, nodes in operators:
            yield f"      {share:6.1%} {operator} ({nodes} nodes)"
