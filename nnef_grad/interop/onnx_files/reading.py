"""An ONNX file to a model that nnef_tools can convert: complete, of known operations, with
the shapes that are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from nnef_grad.errors import UnsupportedError, UsageError
from nnef_grad.interop.onnx_files.folding import folded, shape_in
from nnef_grad.interop.onnx_files.refusals import onnx_package, reason
from nnef_grad.interop.onnx_files.transforms import TRANSFORMS
from nnef_grad.model import Shapes
from nnef_grad.storage.files import PathLike, reading

# The operations that ONNX itself has.
DOMAINS = ("", "ai.onnx")


def read(path: PathLike, input_shapes: Shapes) -> Any:
    """The ONNX model in a file, with the shapes of all tensors.

    Args:
        path: the file.
        input_shapes: shapes of inputs, by name, that the file leaves open.

    Raises:
        UsageError: the file cannot be read, or shapes are missing or do not fit.
        UnsupportedError: it has operations that nnef_tools does not have, or shapes that
            are not known before it is run.
    """
    model = _loaded(path)
    _set_shapes(model.graph, input_shapes)
    model = folded(model)
    _refuse_operations(model.graph, os.fspath(path))
    _refuse_unknown_shapes(model, os.fspath(path))
    return model


def numbers(graph: Any) -> list[str]:
    """The initializers without axes that are of scalars."""
    dtype_of = import_module("onnx.helper").tensor_dtype_to_np_dtype
    return [
        initializer.name
        for initializer in graph.initializer
        if not initializer.dims and dtype_of(initializer.data_type).kind == "f"
    ]


def _loaded(path: PathLike) -> Any:
    onnx = onnx_package()
    name = os.fspath(path)
    with reading(path):
        Path(path).open("rb").close()
        try:
            model = onnx.load_model(name)
        except OSError:
            raise
        except Exception as error:
            # Protocol buffers, and onnx for weights in other files, have their own.
            message = f"'{name}' is no ONNX file that can be read"
            raise UsageError(f"{message}: {reason(error)}") from None
    if not model.graph.node or not model.opset_import:
        raise UsageError(f"'{name}' is no ONNX file: it holds no graph")
    if model.functions:
        model = import_module("onnx.inliner").inline_local_functions(model)
    foreign = {n.domain: n.op_type for n in model.graph.node if n.domain not in DOMAINS}
    if foreign:
        named = ", ".join(f"'{domain}.{kind}'" for domain, kind in foreign.items())
        raise UnsupportedError(f"'{name}' has operations that are not of ONNX: {named}")
    return model


def _set_shapes(graph: Any, shapes: Shapes) -> None:
    """Gives inputs the shapes that are asked for."""
    variables = {initializer.name for initializer in graph.initializer}
    fed = {v.name: v.type.tensor_type for v in graph.input if v.name not in variables}
    for name, shape in shapes.items():
        if name not in fed:
            names = ", ".join(map(repr, fed))
            raise UsageError(f"there is no input '{name}'; the inputs are {names}")
        _set_shape(name, fed[name].shape.dim, shape)
    for name, kind in fed.items():
        _refuse_open(name, kind.shape.dim)
    if shapes:
        _forget_shapes(graph)
    for result in graph.output:
        if result.name in fed:
            result.type.tensor_type.CopyFrom(fed[result.name])


def _set_shape(name: str, extents: Any, shape: Sequence[int]) -> None:
    if len(extents) != len(shape):
        given = f"and {list(shape)} is given"
        raise UsageError(f"the input '{name}' has the rank {len(extents)}, {given}")
    for extent, wanted in zip(extents, shape, strict=True):
        extent.dim_value = wanted


def _refuse_open(name: str, extents: Any) -> None:
    if not all(extent.HasField("dim_value") for extent in extents):
        shown = [e.dim_value or e.dim_param or "?" for e in extents]
        message = f"the input '{name}' has the shape {shown}, which is left open"
        raise UsageError(f"{message}: give the extents in input_shapes")


def _forget_shapes(graph: Any) -> None:
    """What the file says of other tensors does not hold for inputs of other shapes."""
    del graph.value_info[:]
    for result in graph.output:
        result.type.tensor_type.ClearField("shape")


def _refuse_operations(graph: Any, name: str) -> None:
    """Refuses operations that nnef_tools does not have. Its converter would not name all
    of them; what it has stands nowhere else.
    """
    from nnef_tools.conversion.onnx_to_nnef import _Transforms

    kinds = dict.fromkeys(node.op_type for node in graph.node)
    missing = [kind for kind in kinds if kind not in {*_Transforms, *TRANSFORMS}]
    if missing:
        named = ", ".join(f"'{kind}'" for kind in missing)
        message = f"nnef_tools cannot convert '{name}' to NNEF"
        raise UnsupportedError(
            f"{message}: it does not have the ONNX operations {named}"
        )


def _refuse_unknown_shapes(model: Any, name: str) -> None:
    graph = model.graph
    told = (*graph.value_info, *graph.output)
    known = {v.name for v in told if shape_in(v) is not None}
    used = {v.name for v in graph.output}.union(*(n.input for n in graph.node))
    unknown = [n.op_type for n in graph.node if used.intersection(n.output) - known]
    if unknown:
        named = ", ".join(f"'{kind}'" for kind in dict.fromkeys(unknown))
        message = f"'{name}' has shapes that are not known before it is run"
        why = "".join(f"; {reason}" for reason in _shape_problems(model))
        raise UnsupportedError(
            f"{message}, of what these operations make: {named}{why}"
        )


def _shape_problems(model: Any) -> list[str]:
    """What onnx finds wrong with a model whose shapes it does not know."""
    try:
        import_module("onnx.shape_inference").infer_shapes(model, strict_mode=True)
    except Exception as error:
        return [reason(error)]
    return []
