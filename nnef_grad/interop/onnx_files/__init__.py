"""ONNX files: nnef_tools reads and writes them, except for operations that are
converted here.

reading.py      a file to a model, and a model to a complete one
folding.py      constant folding, of shapes too
evaluation.py   the shapes and values of a single node
control_flow.py branches, loops and sequences, which are expanded
idioms.py       chains of nodes that stand for one operation
conversion.py   a complete model to an NNEF graph
operations/     a function for each operation that is converted here
node.py         the view of an operation that these functions get
fragments.nnef  operations of ONNX, written in NNEF; others are in language/extras.nnef
converter.py    the converter of nnef_tools, for the other operations
casts.py        casts of integers, where NNEF computes with scalars only
parameters.py   warnings about initializers that are no single parameter
writing.py      an NNEF graph to a file
refusals.py     translation of the errors of nnef_tools and onnx
"""

from __future__ import annotations

import os

from nnef_grad.graph.ir import Graph
from nnef_grad.interop.khronos import Data, Model
from nnef_grad.interop.onnx_files.refusals import require_onnx
from nnef_grad.model import Shapes
from nnef_grad.storage.files import PathLike


def from_onnx(path: PathLike, *, input_shapes: Shapes | None = None) -> Model:
    """The graph of an ONNX file. Inputs, outputs and variables keep their names, in the
    characters of NNEF; the labels of variables are their names in the file.

    Needs the package `onnx`. Computations on shapes and constants are folded, branches
    are taken, and loops are unrolled. Initializers without axes become numbers of the
    graph, which have no gradients. Warnings of the graph name them, and variables that
    are no parameters, or several ones of equal values that an exporter has merged.

    Args:
        path: the file.
        input_shapes: shapes of inputs that it leaves open, by their names in the file.

    Raises:
        UsageError: the file cannot be read, or shapes are missing or do not fit.
        UnsupportedError: an operation, or a setting of one, cannot be converted.
    """
    require_onnx()
    from nnef_grad.interop.onnx_files import conversion, reading

    name = os.fspath(path)
    model = reading.load(path)
    return conversion.convert(reading.complete(model, input_shapes or {}, name), name)


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
    from nnef_grad.interop.onnx_files import writing

    writing.write(graph, path, data or {}, overwrite=overwrite)
