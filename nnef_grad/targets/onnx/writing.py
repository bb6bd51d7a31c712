"""Graphs to ONNX files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnef_grad.autodiff.backward import Backward
from nnef_grad.base.arrays import Data
from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.frontends.onnx.entry import require_onnx
from nnef_grad.frontends.onnx.model import InFile
from nnef_grad.graph.ir import Graph
from nnef_grad.storage.files import PathLike, refuse_existing, writing
from nnef_grad.targets import lower
from nnef_grad.targets.tensors import DTYPES


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
    metadata: dict[str, Any] = {}
    if isinstance(graph, Backward):
        metadata = {"gradients": graph.gradients, "seeds": graph.seeds}
        graph = graph.graph
    write(graph, path, data or {}, overwrite=overwrite, in_file=in_file, **metadata)


def write(
    graph: Graph,
    path: PathLike,
    data: Data,
    *,
    overwrite: bool,
    defaults: Data | None = None,
    in_file: InFile | None = None,
    **metadata: Mapping[str, str],
) -> None:
    """Writes a graph, lowered for ONNX Runtime; see `to_onnx`. `defaults` are the values of
    inputs that need not be fed, `metadata` what tensors are to each other, by name.
    """
    require_onnx()
    from nnef_grad.targets.onnx import operators as _operators  # noqa: F401
    from nnef_grad.targets.onnx.nodes import Nodes
    from nnef_grad.targets.onnx.storage import store

    place = Path(path)
    with writing(path):
        refuse_existing(place, overwrite=overwrite)
    lowered = lower(graph, "onnx")
    arrays = {label.lower(): array for label, array in data.items()} | lowered.data
    labels = lowered.graph.labels.values()
    missing = ", ".join(f"'{label}'" for label in labels if label.lower() not in arrays)
    if missing:
        message = f"there are no data for the variables with the labels {missing}"
        raise UsageError(message)
    appearance = _with_gradients(in_file or InFile(), metadata)
    nodes = Nodes(lowered.graph, arrays, appearance)
    tensors = lowered.graph.tensors
    for name, value in (defaults or {}).items():
        tensor = tensors[name]
        nodes.put(tensor, value, f"the input '{name}'", DTYPES[tensor.dtype])
    store(nodes.model(lowered.graph, metadata), nodes.arrays, place, overwrite)


def _with_gradients(own: InFile, metadata: Mapping[str, Mapping[str, str]]) -> InFile:
    """How tensors appear, and those that are called after them, such as gradients."""
    names, shapes = dict(own.names), dict(own.shapes)
    for related in metadata.values():
        for name, other in related.items():
            if name in own.names and other.endswith(name):
                names[other] = other.removesuffix(name) + own.names[name]
            if name in own.shapes:
                shapes[other] = own.shapes[name]
    return InFile(names, shapes)
