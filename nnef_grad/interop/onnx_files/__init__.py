"""ONNX files: read by functions for the operations that need one, and by nnef_tools for
the others; written by nnef_tools.

reading.py      a file to a model, and a model to one that is complete
folding.py      what follows from shapes and constants, computed ahead
conversion.py   a complete model to a graph of NNEF
operations/     a function for each operation that is converted here
node.py         what these functions see of an operation
fragments.nnef  operations of ONNX, written in NNEF
converter.py    the converter of nnef_tools, for the other operations
writing.py      a graph of NNEF to a file
refusals.py     how nnef_tools and onnx refuse
"""

from __future__ import annotations

import os

from nnef_grad.graph.ir import Graph
from nnef_grad.interop.khronos import Data, Model
from nnef_grad.interop.onnx_files.refusals import require_onnx
from nnef_grad.model import Shapes
from nnef_grad.storage.files import PathLike


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
        UnsupportedError: an operation, or a setting of one, is not converted.
    """
    require_onnx()
    from nnef_grad.interop.onnx_files import conversion, reading

    name = os.fspath(path)
    model = reading.load(path)
    return conversion.convert(reading.complete(model, input_shapes or {}, name), name)


def to_onnx(graph: Graph, path: PathLike, data: Data | None = None) -> None:
    """Writes a graph to an ONNX file, in the form that ONNX Runtime computes rightly.
    The file appears whole or not at all.

    Needs the package `onnx`.

    Raises:
        UnsupportedError: ONNX, or the converter, does not have an operation.
        UsageError: the data of a variable are missing, or do not fit.
    """
    require_onnx()
    from nnef_grad.interop.onnx_files import writing

    writing.write(graph, path, data or {})
