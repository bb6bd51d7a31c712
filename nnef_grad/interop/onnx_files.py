"""Graphs to ONNX files."""

from __future__ import annotations

from typing import Any

from nnef_grad.autodiff.backward import Backward
from nnef_grad.base.public import public
from nnef_grad.frontends.onnx.entry import require_onnx
from nnef_grad.frontends.onnx.model import InFile
from nnef_grad.graph.ir import Graph
from nnef_grad.interop.khronos import Data
from nnef_grad.storage.files import PathLike


@public
def to_onnx(
    graph: Graph | Backward,
    path: PathLike,
    data: Data | None = None,
    *,
    overwrite: bool = False,
    in_file: InFile | None = None,
) -> None:
    """Writes a graph to an ONNX file, lowered for ONNX Runtime. Writing is atomic.

    Symbols become named dimensions, loops become Scan. Data beyond 2 GB are in a second
    file, whose name ends in `.onnx.data`. The metadata of a backward graph,
    `nnef_grad.gradients` and `nnef_grad.seeds`, name the gradient of each tensor and
    the seed of each output. The doc string of a node names the operation that it
    differentiates.

    Needs the package `onnx`.

    Args:
        graph: the graph, or a backward graph.
        path: the file.
        data: the data of its variables, by label.
        overwrite: whether to replace an existing file.
        in_file: the names and shapes in an original file, from `from_onnx`, to use for
            inputs, outputs, initializers and gradients.

    Raises:
        UnsupportedError: ONNX does not have an operation.
        UsageError: the data of a variable are missing or do not fit, or the file exists
            and must not be replaced.
    """
    require_onnx()
    from nnef_grad.interop import onnx_writing

    found: dict[str, Any] = {}
    if isinstance(graph, Backward):
        found = {"gradients": graph.gradients, "seeds": graph.seeds}
        graph = graph.graph
    onnx_writing.write(
        graph, path, data or {}, overwrite=overwrite, in_file=in_file, **found
    )
