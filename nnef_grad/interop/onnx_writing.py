"""Writing an NNEF graph to an ONNX file, with the converter of nnef_tools."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from nnef_tools.conversion.nnef_to_onnx import Converter
from nnef_tools.io.onnx import Writer
from onnx.helper import make_tensor_value_info

from nnef_grad.errors import NnefGradError, Problem, UnsupportedError, UsageError
from nnef_grad.frontends.onnx.model import reason
from nnef_grad.graph.ir import Graph
from nnef_grad.interop.khronos import Array, Data, to_nnef_tools
from nnef_grad.model import declared_variables
from nnef_grad.storage.files import (
    PathLike,
    commit,
    refuse_existing,
    unfinished_file,
    writing,
)
from nnef_grad.targets import lower


def write(graph: Graph, path: PathLike, data: Data, *, overwrite: bool) -> None:
    """Writes a graph, lowered for ONNX Runtime; see `onnx_files.to_onnx`."""
    place = Path(path)
    with writing(path):
        refuse_existing(place, overwrite=overwrite)
    lowered = lower(graph, "onnx")
    arrays = {**data, **lowered.data}
    _refuse_missing(lowered.graph, arrays)
    given = {label: _in_single_precision(array) for label, array in arrays.items()}
    with writing(path), unfinished_file(place) as draft:
        with _translated_errors(f"nnef_tools cannot convert '{graph.name}' to ONNX"):
            source = to_nnef_tools(lowered.graph, given)
            Writer()(Converter()(source), os.fspath(draft))
            model = onnx.load(draft)
            _declare_inputs(model.graph, lowered.graph)
            onnx.save(model, draft)
        commit(draft, place, overwrite=overwrite)


@contextmanager
def _translated_errors(what: str) -> Iterator[None]:
    """Turns the various exceptions of nnef_tools and onnx into an `UnsupportedError`.
    Errors of the system are kept.
    """
    try:
        yield
    except (UsageError, UnsupportedError, OSError):
        raise
    except NnefGradError as error:
        first = Problem(f"{what}: its result is not a valid graph")
        raise UnsupportedError.collect([first, *error.problems]) from None
    except Exception as error:
        raise UnsupportedError(f"{what}: {reason(error)}") from error


def _refuse_missing(graph: Graph, data: Data) -> None:
    there = {label.lower() for label in data}
    labels = (variable.label for variable in declared_variables(graph))
    missing = ", ".join(f"'{x}'" for x in labels if x.lower() not in there)
    if missing:
        message = f"there are no data for the variables with the labels {missing}"
        raise UsageError(message)


def _in_single_precision(data: Array) -> Array:
    """Data in single precision, like the inputs: ONNX does not mix types."""
    array = np.asarray(data)
    return array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array


# The types of the elements of inputs: those that the converter gives to tensors.
_ELEMENTS = {
    "integer": onnx.TensorProto.INT64,
    "logical": onnx.TensorProto.BOOL,
    "scalar": onnx.TensorProto.FLOAT,
}


def _declare_inputs(written: Any, graph: Graph) -> None:
    """Declares all inputs of the signature, and nothing else. The writer leaves out those
    that no operation reads, which callers feed nevertheless; and it lists variables,
    which a runtime could not fold if a caller might replace them.
    """
    declared = {fed.name: fed for fed in written.input}
    made = [
        declared.get(name) or make_tensor_value_info(name, _ELEMENTS[x.dtype], x.shape)
        for name, x in zip(graph.input_names, graph.inputs, strict=True)
    ]
    del written.input[:]
    written.input.extend(made)
