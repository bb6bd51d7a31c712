"""The converter of nnef_tools, for the operations that operations/ leaves to it.

Only this module relies on internals for ONNX: `_Transforms`, the operations that it
converts; that it keeps unknown operations; and its treatment of constants. This holds
for nnef-tools 1.0.9 to 1.0.11, but not for 1.0.8; pyproject.toml has the range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from nnef_tools.conversion.onnx_to_nnef import Converter, _Transforms
from nnef_tools.io.onnx.reader import onnx_model_to_graph
from nnef_tools.model import Operation, Tensor
from nnef_tools.optimization.nnef_optimizer import Optimizer

KNOWN = frozenset(_Transforms)


def read_graph(model: Any) -> Any:
    """The `nnef_tools.model.Graph` of ONNX operations of a model."""
    graph = onnx_model_to_graph(model)
    for operation in graph.operations:
        # Otherwise all omitted results would be one tensor.
        operation.outputs = tuple(
            t if t.name else Tensor(graph, name="", shape=(), dtype=t.dtype)
            for t in operation.outputs
        )
    graph.sort()
    return graph


def convert_rest(graph: Any) -> Any:
    """The graph with the remaining ONNX operations converted to NNEF.

    Raises:
        Exception: of various types, if nnef_tools cannot convert an operation.
    """
    converter = Converter(keep_io_names=True, mirror_unsupported=True)
    made = converter(graph)
    _inline_numbers(made)
    made = Optimizer()(made, only_required=True)
    _restore_inputs(made, graph.inputs)
    if len(made.outputs) < len(graph.outputs):
        raise ValueError("an output is stored in the file, not computed")
    return made


def _restore_inputs(graph: Any, given: Any) -> None:
    """Adds the inputs that no operation reads, which the converter drops: a caller feeds
    what the file lists.
    """
    there = {x.name: x for x in graph.inputs}
    for x in given:
        if x.name not in there:
            made = Tensor(graph, name=x.name, shape=x.shape, dtype=x.dtype)
            attributes = {"shape": list(x.shape), "dtype": x.dtype}
            Operation(graph, "external", outputs=(made,), attribs=attributes)
            graph.move_operation(len(graph.operations) - 1, 0)
            there[x.name] = made
    graph.inputs = tuple(there[x.name] for x in given)


def _inline_numbers(graph: Any) -> None:
    """Inlines constants that are numbers. The converter does so too, but skips every
    second one of several in a row.
    """
    for operation in graph.operations[:]:
        value = operation.attribs.get("value")
        if operation.type in ("constant", "variable") and operation.output.shape == ():
            tensor = operation.output
            tensor.data = np.reshape(tensor.data if value is None else value, ())
            tensor.name = None
            graph.remove_operation(operation, unlink=True)


def fragments() -> dict[str, str]:
    """The correct ones of the fragments that the converter may leave in a graph."""
    found = Converter.defined_operations()
    return {name: found[name] for name in ("lp_pool", "lp_reduce", "depth_to_space")}
