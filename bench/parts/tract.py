"""Backward graphs in tract, compared with the forward graphs."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench import nets
from bench.parts.models import each, write_pair
from bench.processes import ask
from bench.rows import Measured, Row
from bench.settings import Settings

PART = "tract"
TARGETS = {"forward": "tract", "backward": "tract"}


def measure(settings: Settings) -> Measured:
    yield from each(PART, nets.NETS, row, settings)


def row(net: str, batch: int, settings: Settings) -> Row:
    graph = nets.NETS[net](batch)
    variables = [tensor.name for tensor in graph.variables]
    with tempfile.TemporaryDirectory() as folder:
        pair = write_pair(graph, variables, TARGETS, Path(folder))
        request = {
            "models": pair.folders,
            "shapes": pair.shapes,
            "runs": settings.runs,
            "seconds": settings.seconds,
        }
        answer = ask("tract_runtime", request)
    return Row(PART, net, batch, answer["version"], answer["seconds"])
