"""Backward graphs in tract, compared with the forward graphs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import nets
from bench.parts.models import each, write_pair
from bench.processes import ask
from bench.rows import Measured, Row
from bench.settings import Settings
from nnef_grad import Graph
from nnef_grad.interop import from_torch

PART = "tract"
TARGETS = {"forward": "tract", "backward": "tract"}
# Networks of torchvision, timm and transformers, with the gradients of all parameters.
EXPORTED = ("resnet18", "mobilenet_v2", "vit_tiny_patch16_224", "gpt2")


def measure(settings: Settings) -> Measured:
    yield from each(PART, nets.NETS, rows, settings)
    yield from each(PART, EXPORTED, exported_rows, settings)


def rows(net: str, batch: int, settings: Settings) -> Measured:
    graph = nets.NETS[net](batch)
    variables = [*graph.labels]
    yield timed(net, batch, settings, graph, variables)


def exported_rows(net: str, batch: int, settings: Settings) -> Measured:
    from bench.workers import torch_models

    x = torch_models.inputs(net, batch)
    model = from_torch(torch_models.module(net), (x,))
    yield timed(net, batch, settings, model.graph, model.trainable, model.data)


def timed(
    net: str,
    batch: int,
    settings: Settings,
    graph: Graph,
    variables: Sequence[str],
    data: Mapping[str, Any] | None = None,
) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        pair = write_pair(graph, variables, TARGETS, Path(folder), data)
        request = {
            "models": pair.folders,
            "shapes": pair.shapes,
            "runs": settings.runs,
            "seconds": settings.seconds,
        }
        answer = ask("tract_runtime", request)
    return Row(PART, net, batch, answer["version"], answer["seconds"])
