"""The feeds of a graph: the data of its inputs by name, and of its variables by label."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import NnefGradError, Problem, UsageError, suggestion
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.interpreter.registry import KINDS
from nnef_grad.ops.traits import FED

Feeds = Mapping[str, npt.ArrayLike]


def collect_feeds(graph: Graph, inputs: Feeds, variables: Feeds) -> dict[Tensor, Array]:
    """The data of the inputs of a flat graph, by name, and of its variables, by label, in
    any case; further labels are ignored. The error about what does not fit lists it all.
    """
    names = graph.input_names
    problems = [
        Problem(f"the graph has no input '{name}'{suggestion(name, names)}")
        for name in inputs
        if name not in names
    ]
    labelled: dict[str, npt.ArrayLike] = {}
    for label, data in variables.items():
        if label.lower() in labelled:
            message = f"there are two variables with the label '{label.lower()}'"
            raise UsageError(message)
        labelled[label.lower()] = data
    fed: dict[Tensor, Array] = {}
    for operation in graph.operations:
        if operation.name in FED:
            (tensor,) = operation.outputs
            try:
                fed[tensor] = _data(operation, graph.names[tensor], inputs, labelled)
            except NnefGradError as error:
                problems += error.problems
    if problems:
        raise UsageError.collect(problems)
    return fed


def _data(operation: Operation, name: str, inputs: Feeds, labelled: Feeds) -> Array:
    """The data of a tensor as an array, checked against the tensor."""
    (tensor,) = operation.outputs
    what, source = f"input '{name}'", inputs
    if operation.name == "variable":
        label = str(operation.attributes["label"])
        what, name, source = f"variable '{label}'", label.lower(), labelled
    what += f" of type {tensor.dtype} and shape {list(tensor.shape)}"
    if name not in source:
        raise UsageError(f"{what} has no data", operation.span)
    try:
        array = np.asarray(source[name])
    except ValueError as error:
        message = f"the data of {what} are not an array: {error}"
        raise UsageError(message, operation.span) from None
    is_whole = tensor.dtype != "integer" or np.can_cast(array.dtype, np.int64)
    if array.shape != tensor.shape:
        misfit = f"shape {list(array.shape)}"
    elif array.dtype.kind not in KINDS[tensor.dtype] or not is_whole:
        misfit = f"type {array.dtype}"
    else:
        return array
    raise UsageError(f"{what} is given data of {misfit}", operation.span)
