"""ONNX Runtime, which reads and writes the memory of the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from nnef_grad.autodiff.recompute import is_delay
from nnef_grad.base.arrays import Array, Data
from nnef_grad.graph.ir import Graph
from nnef_grad.graph.symbols import numbers_of, with_numbers
from nnef_grad.runtimes import Run, refusals
from nnef_grad.targets.onnx.writing import to_onnx
from nnef_grad.targets.tensors import DTYPES


def compile_graph(graph: Graph, data: Data, threads: int | None) -> Run:
    """The function of a graph, in a session on the processor."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 3
    if any(map(is_delay, graph.operations)):
        # Its own order takes no less memory where tensors are computed again. In that of the
        # document, what it has fused comes last.
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
        level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.graph_optimization_level = level
    with TemporaryDirectory() as folder, refusals("ONNX Runtime", "load", graph):
        path = Path(folder) / "graph.onnx"
        to_onnx(graph, path, data=data)
        session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
    read = {node.name for node in session.get_inputs()}

    def run(inputs: Sequence[Array]) -> list[Array]:
        shapes = {n: x.shape for n, x in zip(graph.input_names, inputs, strict=True)}
        whole = with_numbers(graph, numbers_of(graph, shapes))
        results: list[Array] = [
            np.empty(t.shape, DTYPES[t.dtype]) for t in whole.outputs
        ]
        binding = session.io_binding()
        for name, value in zip(graph.input_names, inputs, strict=True):
            if name in read:
                _bind(binding.bind_input, name, value)
        for name, value in zip(graph.output_names, results, strict=True):
            _bind(binding.bind_output, name, value)
        with refusals("ONNX Runtime", "run", graph):
            session.run_with_iobinding(binding)
        return results

    return run


def _bind(bind: Callable[..., None], name: str, value: Array) -> None:
    """Gives a runtime the memory of an array, for an input or an output."""
    bind(name, "cpu", 0, value.dtype.type, value.shape, value.ctypes.data)
