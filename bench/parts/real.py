"""Networks of torchvision and timm: gradients by the backward graph, in ONNX Runtime, in
place of torch in eager mode.

A network is exported by torch to ONNX, and read by nnef-grad.
"""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nnef_grad
from bench.parts.models import each
from bench.processes import ask
from bench.rows import Measured, Row
from bench.settings import Settings
from bench.workers.torch_models import NETS
from nnef_grad.interop import from_onnx, to_onnx

PART = "real"


def measure(settings: Settings) -> Measured:
    yield from each(PART, NETS, row, settings)


def row(net: str, batch: int, settings: Settings) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        request = {
            **write_backward(net, batch, Path(folder)),
            "runs": settings.runs,
            "seconds": settings.seconds,
            "threads": settings.threads,
        }
        answer = ask("torch_eager", request)
    runtime = f"onnxruntime {version('onnxruntime')}, torch {version('torch')}"
    seconds, difference = answer["seconds"], answer["difference"]
    return Row(PART, net, batch, runtime, seconds, difference=difference)


def write_backward(net: str, batch: int, folder: Path) -> dict[str, Any]:
    """Writes the ONNX file of the gradients of all parameters, and describes it."""
    exported, file = folder / "forward.onnx", str(folder / "backward.onnx")
    named = {"net": net, "batch": batch, "file": str(exported)}
    parameters = ask("torch_export", named)["parameters"]
    graph, data = from_onnx(exported)
    tensors = {label: name for name, label in graph.labels.items()}
    found = [name for name in parameters if name in tensors]
    backward = nnef_grad.differentiate(graph, wrt=[tensors[name] for name in found])
    to_onnx(backward.graph, file, data)
    (x,), (seed,) = graph.input_names, backward.seeds.values()
    fed = {"x": x, "seed": seed, "parameters": found}
    return {"net": net, "batch": batch, "file": file, **fed}
