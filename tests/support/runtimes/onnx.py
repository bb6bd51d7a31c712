"""The ONNX file of a graph, in ONNX Runtime: with the options that it has by itself, and
without optimisations, as what is right without them may be made wrong by them, and what
they leave out is then never run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnxruntime

import nnef_grad
from nnef_grad.interop import to_onnx
from support.runtimes.cases import Array
from support.runtimes.worker import serve


def execute(folder: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs."""
    data = nnef_grad.load_data(folder)
    to_onnx(nnef_grad.load(folder), folder / "graph.onnx", data, overwrite=True)
    return run(folder / "graph.onnx", inputs)


def without_optimisations(
    folder: Path, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """The outputs of the file that was written before."""
    return run(folder / "graph.onnx", inputs, is_optimised=False)


def run(
    path: Path, inputs: Mapping[str, Array], *, is_optimised: bool = True
) -> dict[str, Array]:
    """The outputs of an ONNX file."""
    options = onnxruntime.SessionOptions()
    if not is_optimised:
        disabled = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = disabled
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    outputs = [output.name for output in session.get_outputs()]
    feeds = {fed.name: inputs[fed.name] for fed in session.get_inputs()}
    return dict(zip(outputs, session.run(outputs, feeds), strict=True))


if __name__ == "__main__":
    serve(execute, without_optimisations=without_optimisations)
