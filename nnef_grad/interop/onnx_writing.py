"""Writing a graph to an ONNX file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import helper

from nnef_grad.base.errors import UsageError
from nnef_grad.frontends.onnx.model import InFile
from nnef_grad.graph.ir import Graph
from nnef_grad.interop import onnx_operators as _operators  # noqa: F401
from nnef_grad.interop.khronos import Data
from nnef_grad.interop.onnx_nodes import OPSET, TYPES, Nodes
from nnef_grad.interop.onnx_storage import store
from nnef_grad.model import declared_variables
from nnef_grad.storage.files import PathLike, refuse_existing, writing
from nnef_grad.targets import lower


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
    """Writes a graph, lowered for ONNX Runtime; see `onnx_files.to_onnx`.

    Args:
        graph: the graph.
        path: the file.
        data: the data of its variables, by label.
        overwrite: whether an existing file is replaced.
        defaults: the values of inputs that need not be fed, by name.
        in_file: how tensors appear in the file that they are from.
        metadata: what tensors are to each other, by their names.
    """
    place = Path(path)
    with writing(path):
        refuse_existing(place, overwrite=overwrite)
    lowered = lower(graph, "onnx")
    arrays = {label.lower(): array for label, array in data.items()} | lowered.data
    _refuse_missing(lowered.graph, arrays)
    appearance = _with_gradients(in_file or InFile(), metadata)
    nodes = Nodes(lowered.graph, arrays, appearance)
    for name, value in (defaults or {}).items():
        tensor = lowered.graph.tensors[name]
        nodes.put(tensor, value, f"the input '{name}'", TYPES[tensor.dtype])
    store(
        _model_of(lowered.graph, nodes, metadata),
        nodes.arrays,
        place,
        overwrite,
    )


def _with_gradients(known: InFile, metadata: Mapping[str, Mapping[str, str]]) -> InFile:
    """How tensors appear, and those that are called after them, such as gradients."""
    names, shapes = dict(known.names), dict(known.shapes)
    for related in metadata.values():
        for name, other in related.items():
            if name in known.names and other.endswith(name):
                names[other] = other.removesuffix(name) + known.names[name]
            if name in known.shapes:
                shapes[other] = known.shapes[name]
    return InFile(names, shapes)


def _refuse_missing(graph: Graph, data: Data) -> None:
    labels = (variable.label for variable in declared_variables(graph))
    missing = ", ".join(f"'{x}'" for x in labels if x.lower() not in data)
    if missing:
        message = f"there are no data for the variables with the labels {missing}"
        raise UsageError(message)


def _model_of(
    graph: Graph, nodes: Nodes, metadata: Mapping[str, Mapping[str, str]]
) -> Any:
    names = nodes.called
    body = helper.make_graph(
        nodes.made,
        graph.name,
        [nodes.declared(x) for x in graph.inputs],
        [nodes.declared(x) for x in graph.outputs],
        nodes.constants,
        doc_string="\n".join(graph.notes),
    )
    versions = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(
        body,
        producer_name="nnef-grad",
        opset_imports=versions,
        ir_version=helper.find_min_ir_version_for(versions),
    )
    texts = {
        f"nnef_grad.{kind}": json.dumps(
            {names.get(x, x): names.get(y, y) for x, y in related.items()}
        )
        for kind, related in metadata.items()
    }
    helper.set_model_props(model, texts)
    return model
