"""Reading an ONNX file, and completing a model: standard ONNX operations only, with all
shapes that can be inferred.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner

from nnef_grad.errors import UnsupportedError, UsageError
from nnef_grad.interop.onnx_files.evaluation import shape_of
from nnef_grad.interop.onnx_files.folding import DOMAINS, described, fold
from nnef_grad.interop.onnx_files.refusals import reason
from nnef_grad.model import Shapes
from nnef_grad.storage.files import PathLike, reading


def load(path: PathLike) -> Any:
    """The ONNX model in a file.

    Raises:
        UsageError: the file cannot be read.
    """
    name = os.fspath(path)
    with reading(path):
        Path(path).open("rb").close()
        try:
            return onnx.load_model(name)
        except OSError:
            raise
        except Exception as error:
            # Protocol buffers and external weights have errors of their own.
            message = f"'{name}' cannot be read as an ONNX file"
            raise UsageError(f"{message}: {reason(error)}") from None


def complete(model: Any, input_shapes: Shapes, name: str) -> Any:
    """An ONNX model with all shapes that can be inferred, and without functions. The
    model may be changed; its name is for messages.

    Raises:
        UsageError: it is empty, or shapes are missing or do not fit.
        UnsupportedError: it has operations that are not standard ONNX.
    """
    if not model.graph.node or not model.opset_import:
        raise UsageError(f"'{name}' is not an ONNX file: it has no graph")
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    _refuse_foreign(model.graph, name)
    _set_shapes(model.graph, input_shapes)
    return fold(model, name)


def _refuse_foreign(graph: Any, name: str) -> None:
    foreign = {n.domain: n.op_type for n in graph.node if n.domain not in DOMAINS}
    named = ", ".join(f"'{domain}.{kind}'" for domain, kind in foreign.items())
    if foreign:
        message = f"'{name}' has operations that are not standard ONNX: {named}"
        raise UnsupportedError(message)


def _set_shapes(graph: Any, shapes: Shapes) -> None:
    """Sets the given shapes of inputs."""
    variables = {initializer.name for initializer in graph.initializer}
    fed = {v.name: v.type.tensor_type for v in graph.input if v.name not in variables}
    for name, shape in shapes.items():
        if name not in fed:
            names = ", ".join(map(repr, fed))
            raise UsageError(f"there is no input '{name}'; the inputs are {names}")
        extents = fed[name].shape.dim
        if len(extents) != len(shape):
            ranks = f"has the rank {len(extents)}, and {list(shape)} is given"
            raise UsageError(f"the input '{name}' {ranks}")
        for extent, wanted in zip(extents, shape, strict=True):
            extent.dim_value = wanted
    for name, kind in fed.items():
        _refuse_open(name, kind.shape.dim)
    if shapes:
        # The shapes of other tensors may not fit the new ones.
        del graph.value_info[:]
        for result in graph.output:
            result.type.tensor_type.ClearField("shape")
    for result in graph.output:
        if result.name in fed:
            result.type.tensor_type.CopyFrom(fed[result.name])


def _refuse_open(name: str, extents: Any) -> None:
    if not all(extent.HasField("dim_value") for extent in extents):
        shown = [e.dim_value or e.dim_param or "?" for e in extents]
        message = f"the input '{name}' has the shape {shown}, which is left open"
        raise UsageError(f"{message}: give the extents in input_shapes")


def refuse_unknown_shapes(model: Any, name: str) -> None:
    """Raises `UnsupportedError` for shapes that depend on values."""
    graph = model.graph
    infos = (*graph.value_info, *graph.output)
    known = {v.name for v in infos if shape_of(v.type) is not None}
    used = {v.name for v in graph.output}.union(*(n.input for n in graph.node))
    unknown = [n for n in graph.node if used.intersection(n.output) - known]
    if unknown:
        message = f"'{name}' has shapes that are not known before it is run"
        named = (
            f"{message}, from these operations: {', '.join(map(described, unknown))}"
        )
        advice = "export the network with extents that are numbers, not computed"
        raise UnsupportedError(f"{named}; {advice}")
