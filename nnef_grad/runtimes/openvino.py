"""OpenVINO, which reads the memory of the caller."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array, Data
from nnef_grad.graph.ir import Graph
from nnef_grad.graph.symbols import numbers_of, symbols, with_numbers
from nnef_grad.runtimes import Run, refusals
from nnef_grad.targets import lower
from nnef_grad.targets.onnx.writing import write
from nnef_grad.targets.tensors import DTYPES


def compile_graph(graph: Graph, data: Data, threads: int | None) -> Run:
    """The function of a graph: a model for each size, as open extents have errors."""

    @lru_cache(_SIZES)
    def of_size(*numbers: tuple[str, int]) -> Run:
        return _of_size(with_numbers(graph, dict(numbers)), data, threads)

    if not symbols(graph):
        of_size()

    def run(inputs: Sequence[Array]) -> list[Array]:
        shapes = {n: x.shape for n, x in zip(graph.input_names, inputs, strict=True)}
        return of_size(*numbers_of(graph, shapes).items())(inputs)

    return run


# So many models are kept.
_SIZES = 8


def _of_size(graph: Graph, data: Data, threads: int | None) -> Run:
    with TemporaryDirectory() as folder, refusals("OpenVINO", "load", graph):
        path = Path(folder) / "graph.onnx"
        lowered = lower(graph, "openvino")
        whole = {**data, **lowered.data}
        write(lowered.graph, path, whole, overwrite=False, is_portable=True)
        model = compile_for_openvino(path, threads)
    read = {name: place for place, x in enumerate(model.inputs) for name in x.names}
    request = model.create_infer_request()

    def run(inputs: Sequence[Array]) -> list[Array]:
        fed = zip(graph.input_names, inputs, strict=True)
        values = {
            # It shares no memory that cannot be written to.
            read[name]: value if value.flags.writeable else value.copy()
            for name, value in fed
            if name in read
        }
        with refusals("OpenVINO", "run", graph):
            request.infer(values, share_inputs=True)
        return [
            np.array(request.get_output_tensor(place).data, DTYPES[tensor.dtype])
            for place, tensor in enumerate(graph.outputs)
        ]

    return run


def compile_for_openvino(path: Path, threads: int | None) -> Any:
    """The model of OpenVINO for an ONNX file."""
    import openvino

    settings: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = threads
    return openvino.Core().compile_model(path, "CPU", settings)
