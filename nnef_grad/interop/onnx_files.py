"""Graphs to ONNX files."""

from __future__ import annotations

from nnef_grad.frontends.onnx.model import require_onnx
from nnef_grad.graph.ir import Graph
from nnef_grad.interop.khronos import Data
from nnef_grad.public import public
from nnef_grad.storage.files import PathLike


@public
def to_onnx(
    graph: Graph, path: PathLike, data: Data | None = None, *, overwrite: bool = False
) -> None:
    """Writes a graph to an ONNX file, lowered for ONNX Runtime. Writing is atomic.

    Needs the package `onnx`.

    Raises:
        UnsupportedError: ONNX, or the converter, does not have an operation.
        UsageError: the data of a variable are missing, or do not fit; the file exists
            and must not be replaced.
    """
    require_onnx()
    from nnef_grad.interop import onnx_writing

    onnx_writing.write(graph, path, data or {}, overwrite=overwrite)
