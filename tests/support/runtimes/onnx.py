"""The ONNX file of a graph, in ONNX Runtime: with the options that it has by itself, and
without optimisations, as what is right without them may be made wrong by them, and what
they leave out is then never run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import nnef_grad
from nnef_grad.interop import to_onnx
from support.onnx_files import run
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


if __name__ == "__main__":
    serve(execute, without_optimisations=without_optimisations)
