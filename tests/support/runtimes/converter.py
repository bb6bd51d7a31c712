"""The conversion of nnef_tools to ONNX, in the way of its command line, run by ONNX
Runtime: with the options that it has by itself, and without optimisations.

What is right without them may be made wrong by them, and what they leave out is then
never run. They look at constants only, and the converter lists its constants among the
inputs: with its default options the runtime gets them as constants, which is how
exporters write them, and without optimisations as the converter does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
from nnef_tools.conversion.nnef_to_onnx import Converter
from nnef_tools.io.nnef import Reader
from nnef_tools.io.onnx import Writer
from nnef_tools.optimization.nnef_optimizer import Optimizer

from support.onnx_files import run
from support.runtimes.cases import Array
from support.runtimes.worker import serve


def execute(folder: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs. Those that the converter has dropped are missing."""
    path = folder / "graph.onnx"
    convert(folder, path)
    with_constants = folder / "constants.onnx"
    onnx.save(_with_constants(onnx.load(path)), with_constants)
    return run(with_constants, inputs)


def unoptimised(folder: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of the file that was written before, without optimisations."""
    return run(folder / "graph.onnx", inputs, is_optimised=False)


def convert(folder: Path, path: Path) -> None:
    """Writes the graph of a folder as ONNX."""
    decomposed, shapes = Converter.decomposed_operations(), Converter.defined_shapes()
    reader = Reader(decomposed=decomposed, custom_shapes=shapes)
    graph = Optimizer()(reader(str(folder)), only_required=True)
    graph.sort()
    Writer()(Converter()(graph), str(path))


def _with_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    constants = {initializer.name for initializer in model.graph.initializer}
    inputs = [fed for fed in model.graph.input if fed.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return model


if __name__ == "__main__":
    serve(execute, without_optimisations=unoptimised)
