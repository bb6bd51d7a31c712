"""The ONNX file of a graph, in OpenVINO."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

import nnef_grad
from nnef_grad.runtimes import find_runtime
from support.runtimes.cases import Array
from support.runtimes.worker import serve


def execute(folder: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs."""
    graph = nnef_grad.load(folder)
    run = find_runtime("openvino").compile(graph, nnef_grad.load_data(folder), 1)
    fed = [np.asarray(inputs[name], order="C") for name in graph.input_names]
    return dict(zip(graph.output_names, run(fed), strict=True))


if __name__ == "__main__":
    serve(execute)
