"""Backward graphs in ONNX Runtime, of all variables: compared with the forward graph, and
with the gradient graph that onnxruntime-training makes of it.

All three run in the edition of ONNX Runtime for training, the only one that has the
operators of its gradient graph; ours run in the newest ordinary edition as well.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nnef_grad
from bench import nets
from bench.processes import FailedError, ask
from bench.rows import Measured, Row, Skipped
from bench.settings import Settings
from nnef_grad import Graph
from nnef_grad.interop import to_onnx
from nnef_grad.ops.windows import windows_of
from nnef_grad.targets.conditions import automatic

PART = "onnx"
PEER = "onnxruntime-training"
PORTABLE = "portable"


def measure(settings: Settings) -> Measured:
    if not settings.training:
        yield Skipped(PART, PEER, "its environment is not here: see bench/README.md")
    for net in filter(settings.wants, nets.NETS):
        for batch in settings.batches:
            try:
                yield from rows(net, batch, settings)
            except FailedError as error:
                yield Skipped(PART, f"{net}, batch {batch}", str(error))


def rows(net: str, batch: int, settings: Settings) -> Measured:
    graph = nets.NETS[net](batch)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files, refusal = write_files(graph, folder, settings.training)
        if refusal:
            yield Skipped(PART, f"{net}, batch {batch}, by {PEER}", refusal)
        if settings.training:
            # What other engines want costs something in the newest edition.
            older = {n: file for n, file in files.items() if n != PORTABLE}
            answer = timed(older, settings, folder, settings.training)
            yield row(net, batch, f"{PEER} {answer['version']}", answer)
        files.pop(PEER, None)
        answer = timed(files, settings, folder, sys.executable)
        yield row(net, batch, f"onnxruntime {answer['version']}", answer)


def write_files(
    graph: Graph, folder: Path, training: str | None
) -> tuple[dict[str, str], str]:
    """Writes the ONNX file of each program; and why the peer has none, if it should.

    All of them compute the same gradients: those of the variables that the peer has.
    """
    data = nets.random_data(graph)
    names = ("forward", "explicit", "backward", PORTABLE, PEER)
    files = {name: str(folder / f"{name}.onnx") for name in names}
    to_onnx(graph, files["forward"], data)
    to_onnx(explicit(graph), files["explicit"], data)
    wrt, refusal = [*graph.labels], ""
    if training:
        (seed,) = nnef_grad.differentiate(graph).seeds.values()
        request = {"forward": files["explicit"], "output": files[PEER], "seed": seed}
        try:
            answer = ask("gradient_graph", {**request, "variables": wrt}, training)
            wrt = answer["variables"]
        except FailedError as error:
            refusal = str(error)
    backward = nnef_grad.differentiate(graph, wrt=wrt).graph
    to_onnx(backward, files["backward"], data)
    to_onnx(backward, files[PORTABLE], data, target="onnx-portable")
    left_out = {"explicit"} if training and not refusal else {"explicit", PEER}
    return {name: f for name, f in files.items() if name not in left_out}, refusal


def explicit(graph: Graph) -> Graph:
    """The graph in a form that the peer differentiates right: its gradient of Conv takes
    automatic padding for none, and it has no gradient of BatchNormalization.
    """
    graph = nnef_grad.loads(nnef_grad.dumps(graph), expand=["batch_normalization"])
    operations = tuple(
        replace(op, attributes={**op.attributes, "padding": windows_of(op).padding})
        if op.name in ("conv", "deconv", "max_pool") and automatic(op)
        else op
        for op in graph.operations
    )
    return replace(graph, operations=operations)


def timed(files: dict[str, str], settings: Settings, folder: Path, python: str) -> Any:
    request = {
        "files": files,
        "alike": ["backward", PEER],
        "runs": settings.runs,
        "seconds": settings.seconds,
        "threads": settings.threads,
        "profile": str(folder) if settings.profile else None,
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
