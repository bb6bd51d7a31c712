"""The conversion of nnef_tools to ONNX, in the way of its command line, run by ONNX
Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnxruntime
from nnef_tools.conversion.nnef_to_onnx import Converter
from nnef_tools.io.nnef import Reader
from nnef_tools.io.onnx import Writer
from nnef_tools.optimization.nnef_optimizer import Optimizer

from witnesses.cases import Array
from witnesses.worker import serve


def execute(folder: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs. Those that the converter has dropped are missing."""
    path = folder / "graph.onnx"
    convert(folder, path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    outputs = [output.name for output in session.get_outputs()]
    feeds = {fed.name: inputs[fed.name] for fed in session.get_inputs()}
    return dict(zip(outputs, session.run(outputs, feeds)))


def convert(folder: Path, path: Path) -> None:
    """Writes the graph of a folder as ONNX."""
    decomposed, shapes = Converter.decomposed_operations(), Converter.defined_shapes()
    reader = Reader(decomposed=decomposed, custom_shapes=shapes)
    graph = Optimizer()(reader(str(folder)), only_required=True)
    graph.sort()
    Writer()(Converter()(graph), str(path))


if __name__ == "__main__":
    serve(execute)
