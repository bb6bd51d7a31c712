"""Writing a graph to an ONNX file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from nnef_grad.errors import UnsupportedError, UsageError
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor
from nnef_grad.graph.names import NameSupply
from nnef_grad.interop.khronos import Array, Data
from nnef_grad.interop.onnx_operators import OPSET, TYPES, WRITERS
from nnef_grad.model import declared_variables
from nnef_grad.storage.files import (
    PathLike,
    commit,
    refuse_existing,
    unfinished_file,
    writing,
)
from nnef_grad.targets import lower

# What a file can hold.
MOST_BYTES = 2**31 - 1


def write(graph: Graph, path: PathLike, data: Data, *, overwrite: bool) -> None:
    """Writes a graph, lowered for ONNX Runtime; see `onnx_files.to_onnx`."""
    place = Path(path)
    with writing(path):
        refuse_existing(place, overwrite=overwrite)
    lowered = lower(graph, "onnx")
    arrays = {**data, **lowered.data}
    _refuse_missing(lowered.graph, arrays)
    model = model_of(lowered.graph, arrays)
    with writing(path), unfinished_file(place) as draft:
        onnx.save(model, os.fspath(draft))
        commit(draft, place, overwrite=overwrite)


def _refuse_missing(graph: Graph, data: Data) -> None:
    there = {label.lower() for label in data}
    labels = (variable.label for variable in declared_variables(graph))
    missing = ", ".join(f"'{x}'" for x in labels if x.lower() not in there)
    if missing:
        message = f"there are no data for the variables with the labels {missing}"
        raise UsageError(message)


def model_of(graph: Graph, data: Data) -> Any:
    """The model of ONNX that is a graph.

    Args:
        graph: a graph that is lowered for ONNX Runtime.
        data: the values of its variables, by label.

    Raises:
        UsageError: data do not have the shape of their variable.
        UnsupportedError: they are more than a file can hold.
    """
    written = _Written(graph, {label.lower(): array for label, array in data.items()})
    for operation in graph.operations:
        written.add(operation)
    size = sum(len(tensor.raw_data) for tensor in written.constants)
    if size > MOST_BYTES:
        raise UnsupportedError(
            f"an ONNX file holds 2 GB, and the data are {size} bytes"
        )
    body = helper.make_graph(
        written.made,
        graph.name,
        [_declared(graph, tensor) for tensor in graph.inputs],
        [_declared(graph, tensor) for tensor in graph.outputs],
        written.constants,
        doc_string="\n".join(graph.notes),
    )
    versions = [helper.make_opsetid("", OPSET)]
    version = helper.find_min_ir_version_for(versions)
    return helper.make_model(
        body, producer_name="nnef-grad", opset_imports=versions, ir_version=version
    )


def _declared(graph: Graph, tensor: Tensor) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[tensor.dtype]))
    return helper.make_tensor_value_info(graph.names[tensor], kind, tensor.shape)


class _Written:
    """What is written so far: the `Nodes` of `onnx_operators`.

    Attributes:
        made: the nodes.
        constants: the constants.
    """

    def __init__(self, graph: Graph, data: Data) -> None:
        self.made: list[Any] = []
        self.constants: list[Any] = []
        self._names = graph.names
        self._data = data
        self._supply = NameSupply(graph.tensors)
        self._known: dict[object, str] = {}
        self._operation: Operation | None = None

    def add(self, operation: Operation) -> None:
        """Adds an operation."""
        self._operation = operation
        if operation.name == "variable":
            self._variable(operation)
        elif operation.name == "constant":
            (tensor,) = operation.outputs
            value = np.array(operation.attributes["value"])
            self._keep(self._names[tensor], self._filled(value, tensor))
        elif operation.name != "external":
            WRITERS[operation.name](self, operation)

    def _variable(self, operation: Operation) -> None:
        (tensor,) = operation.outputs
        label = str(operation.attributes["label"])
        value = np.asarray(self._data[label.lower()])
        if value.shape != tensor.shape:
            given, own = list(value.shape), list(tensor.shape)
            message = f"the data of '{label}' have the shape {given}"
            raise UsageError(f"{message}, but the variable has {own}")
        self._keep(self._names[tensor], value.astype(TYPES[tensor.dtype], copy=False))

    def _filled(self, value: Array, tensor: Tensor) -> Array:
        """The values of a constant, of which one may stand for all."""
        value = value.astype(TYPES[tensor.dtype])
        if value.size == 1:
            return np.full(tensor.shape, value.item(), value.dtype)
        return value.reshape(tensor.shape)

    def _keep(self, name: str, value: Array) -> str:
        self.constants.append(
            numpy_helper.from_array(np.asarray(value, order="C"), name)
        )
        return name

    # ---- Operands ----

    def operand(self, value: Operand, dtype: str, rank: int | None = None) -> str:
        if not isinstance(value, Tensor):
            return self.constant(value, TYPES[dtype], "number")
        name = self._names[value]
        if rank is None or value.rank in (0, rank):
            return name
        key = value, rank
        if key not in self._known:
            axes = list(range(value.rank, rank))
            operands = [name, self.constant(axes, np.int64, "axes")]
            self._known[key] = self.node("Unsqueeze", operands, f"{name}_aligned")
        return self._known[key]

    def constant(self, value: Any, dtype: type, hint: str) -> str:
        array: Array = np.array(value, dtype)
        key = dtype, array.shape, array.tobytes()
        if key not in self._known:
            self._known[key] = self._keep(self._supply.fresh(hint), array)
        return self._known[key]

    # ---- Nodes ----

    def node(
        self, kind: str, inputs: Sequence[str], hint: str = "", **attributes: Any
    ) -> str:
        assert self._operation is not None
        name = (
            self._supply.fresh(hint)
            if hint
            else self._names[self._operation.outputs[0]]
        )
        self._add(kind, inputs, [name], attributes)
        return name

    def nodes(self, kind: str, inputs: Sequence[str], **attributes: Any) -> None:
        assert self._operation is not None
        names = [self._names[tensor] for tensor in self._operation.outputs]
        self._add(kind, inputs, names, attributes)

    def _add(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: dict[str, Any],
    ) -> None:
        self.made.append(
            helper.make_node(kind, inputs, outputs, name=outputs[0], **attributes)
        )
