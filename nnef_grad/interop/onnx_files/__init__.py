"""ONNX files, by the readers and converters of nnef_tools.

reading.py      a file to a model that is complete
folding.py      what follows from shapes and constants, computed ahead
conversion.py   the model to a graph of NNEF
transforms.py   the table of what nnef_tools converts otherwise than it should
functions.py    what its expressions call
fragments.nnef  operations of ONNX, written in NNEF
refusals.py     how nnef_tools and onnx refuse
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nnef_grad.errors import Problem, UsageError
from nnef_grad.graph.ir import Graph
from nnef_grad.interop.khronos import (
    Array,
    Data,
    Model,
    from_nnef_tools,
    to_nnef_tools,
)
from nnef_grad.interop.onnx_files.conversion import converted, fragments
from nnef_grad.interop.onnx_files.reading import numbers, read
from nnef_grad.interop.onnx_files.refusals import onnx_package, refused
from nnef_grad.model import Shapes, declared
from nnef_grad.storage.files import PathLike, commit, unfinished_file, writing
from nnef_grad.targets import lower


def from_onnx(path: PathLike, *, input_shapes: Shapes | None = None) -> Model:
    """The graph of an ONNX file. Inputs and outputs have the names of the file, in
    characters that NNEF has; so have the variables, and their labels are those names.

    Needs the package `onnx`. What the file computes from shapes and constants alone is
    computed here. Initializers without axes become numbers of the graph, which have no
    gradients: a warning of the graph names them.

    Args:
        path: the file.
        input_shapes: shapes of inputs, by the names of the file, for those that it
            leaves open; others are as in the file.

    Raises:
        UsageError: the file cannot be read, or shapes are missing or do not fit.
        UnsupportedError: nnef_tools does not convert an operation.
    """
    model = read(path, input_shapes or {})
    with refused(f"nnef_tools cannot convert '{os.fspath(path)}' to NNEF"):
        made = converted(model)
        graph, data = from_nnef_tools(made, fragments=fragments(made))
    warnings = tuple(map(_about_number, numbers(model.graph)))
    return Model(replace(graph, warnings=(*graph.warnings, *warnings)), data)


def _about_number(name: str) -> Problem:
    """What is said of an initializer without axes."""
    return Problem(f"'{name}' is a number of the graph, and has no gradient")


def to_onnx(graph: Graph, path: PathLike, data: Data | None = None) -> None:
    """Writes a graph to an ONNX file, in the form that ONNX Runtime computes rightly.
    The file appears whole or not at all.

    Needs the package `onnx`.

    Raises:
        UnsupportedError: ONNX, or the converter, does not have an operation.
        UsageError: the data of a variable are missing, or do not fit.
    """
    onnx = onnx_package()
    from nnef_tools.conversion.nnef_to_onnx import Converter
    from nnef_tools.io.onnx import Writer

    lowered = lower(graph, "onnx")
    given = {**(data or {}), **lowered.data}
    _refuse_missing(lowered.graph, given)
    place = Path(path)
    with writing(path), unfinished_file(place) as draft:
        with refused(f"nnef_tools cannot convert '{graph.name}' to ONNX"):
            source = to_nnef_tools(lowered.graph, _in_single_precision(given))
            Writer()(Converter()(source), os.fspath(draft))
            model = onnx.load(draft)
            _declare_as_constants(model.graph)
            onnx.save(model, draft)
        commit(draft, place)


def _refuse_missing(graph: Graph, data: Data) -> None:
    there = {label.lower() for label in data}
    missing = [v.label for v in declared(graph) if v.label.lower() not in there]
    if missing:
        named = ", ".join(f"'{label}'" for label in missing)
        raise UsageError(f"there are no data for the variables with the labels {named}")


def _in_single_precision(data: Data) -> dict[str, Array]:
    """ONNX has no operations of mixed types, and inputs are in single precision."""
    arrays = {label: np.asarray(array) for label, array in data.items()}
    return {
        label: array.astype(np.float32, copy=False)
        if array.dtype.kind == "f"
        else array
        for label, array in arrays.items()
    }


def _declare_as_constants(graph: Any) -> None:
    """The writer lists variables among the inputs, which lets a caller replace them and
    keeps a runtime from computing with them ahead.
    """
    variables = {initializer.name for initializer in graph.initializer}
    inputs = [fed for fed in graph.input if fed.name not in variables]
    del graph.input[:]
    graph.input.extend(inputs)
