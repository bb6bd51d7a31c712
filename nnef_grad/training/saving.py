"""Writes steps: as documents, and as ONNX files."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.frontends.onnx.model import InFile
from nnef_grad.graph.ir import Graph
from nnef_grad.model import as_stored, save, save_several
from nnef_grad.runtimes import in_single
from nnef_grad.storage.data import VariableData
from nnef_grad.storage.files import PathLike
from nnef_grad.storage.output import ModelFormat, format_of, is_onnx, onnx_target
from nnef_grad.storage.tensor_file import header_of, read_header
from nnef_grad.training.bindings import save_for_bindings
from nnef_grad.training.forms import Step


@public
def save_step(
    step: Step,
    path: PathLike,
    *,
    overwrite: bool = False,
    in_file: InFile | None = None,
    start: PathLike | None = None,
) -> None:
    """Writes a step with its initial values. If it accumulates gradients, the step that
    uses them is in the subfolder `apply`. Writing is atomic.

    Args:
        step: the step.
        path: a folder, an archive, or a text, as in `nnef_grad.save`; a text has no
            values. Values of inputs are in files named after them. In an ONNX file,
            x.onnx, these inputs are optional, and the metadata `nnef_grad.state` name
            the new value of each.
        overwrite: whether to replace what is there.
        in_file: for an ONNX file, the names and shapes in the original file: see
            `interop.to_onnx`.
        start: for an ONNX file, another one for the initial values, a graph without inputs
            that returns them; the inputs of the step must then be fed, which bindings of
            ONNX Runtime other than Python's want. A file of JSON beside the step says what
            the inputs and outputs are for.

    Raises:
        NnefGradError: values are missing, the path is a text and the step two documents,
            or it cannot be written.
    """
    if is_onnx(path):
        _save_onnx(step, path, start, overwrite=overwrite, in_file=in_file)
        return
    if start is not None:
        raise UsageError(f"'{start}' goes with an ONNX file, which '{path}' is not")
    is_text = format_of(path) is ModelFormat.TEXT
    if is_text and step.apply is None:
        save(step.graph, path, overwrite=overwrite)
        return
    for part in () if is_text else step.parts.values():
        _refuse_missing(part)
    models = {folder: _to_write(part) for folder, part in step.parts.items()}
    save_several(models, path, overwrite=overwrite)


def _to_write(step: Step) -> tuple[Graph, Mapping[str, Array]]:
    """The graph of a step and its data. What it leaves as it is shares the files of the
    model, which have it in single precision, or as the graph for tract reads it.
    """
    graph, data = step.graph, in_single(step.data, [np.float64])
    if step.stored is None:
        return graph, data
    stored: Any = step.stored
    labels = {*graph.labels.values()} & {*step.model.labels.values()}
    kept = labels - {*step.labels.values()}
    if step.target == "tract":
        graph, stored = as_stored(graph, stored)
    changed = {
        place: value
        for place, value in data.items()
        if place not in kept or not _is_stored(place, value, stored)
    }
    return graph, ChainMap(changed, stored)


def _is_stored(label: str, value: Array, stored: VariableData) -> bool:
    """Whether a value, which came from a file, is read from it as it is."""
    part = stored.find(label)
    if part is None:
        return False
    header = read_header(part)
    is_read = stored.keeps_blocks and header.items.dtype == "scalar"
    return header.shape == value.shape if is_read else header == header_of(value)


def _save_onnx(
    step: Step,
    path: PathLike,
    start: PathLike | None,
    *,
    overwrite: bool,
    in_file: InFile | None,
) -> None:
    if step.apply is not None:
        message = "a step that accumulates gradients is two documents, and no ONNX file"
        raise UsageError(f"{message}: write a folder or an archive")
    if not {*step.state} <= {*step.inputs}:
        raise UsageError("an ONNX file updates no variables: its state is in inputs")
    _refuse_missing(step)
    settings: dict[str, Any] = {
        "overwrite": overwrite,
        "in_file": in_file,
        "target": onnx_target(step.target),
    }
    if start is not None:
        save_for_bindings(step, path, start, **settings)
        return
    from nnef_grad.targets.onnx.writing import write

    defaults = {name: x for name, x in step.data.items() if name in step.inputs}
    write(step.graph, path, step.data, defaults=defaults, state=step.state, **settings)


def _refuse_missing(step: Step) -> None:
    """Raises `UsageError` where a step has no value to begin with."""
    fed = {name for name in step.labels if name in step.inputs}
    missing = {*step.graph.labels.values(), *fed}.difference(step.data)
    if missing:
        names = ", ".join(f"'{name}'" for name in sorted(missing))
        message = f"the model has no data for {names}, which the step starts from"
        raise UsageError(f"{message}: a file x.nnef is written without data")
