"""Constant folding of an ONNX model, in one pass that also infers all shapes: exporters
compute with shapes, known here.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Container, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import numpy as np
import onnx
from onnx.helper import make_node

from nnef_grad.errors import UnsupportedError
from nnef_grad.graph.names import NameSupply
from nnef_grad.interop.khronos import Array
from nnef_grad.interop.onnx_files.control_flow import EXPANSIONS
from nnef_grad.interop.onnx_files.evaluation import (
    evaluate,
    infer_types,
    shape_of,
    type_of_array,
)
from nnef_grad.interop.onnx_files.idioms import with_idioms
from nnef_grad.interop.onnx_files.refusals import translate_errors

# The domains of standard ONNX operations.
DOMAINS = ("", "ai.onnx")

# The name of a constant that is not one of the file: it is no parameter.
FOLDED = "folded"

# Operations with a different result in each run.
_RANDOM = ("Random", "Bernoulli", "Multinomial", "Dropout")

# Operations that depend only on the shape of their operand.
_OF_SHAPES = ("Shape", "Size")


def fold(model: Any, name: str) -> Any:
    """The model with all shapes that can be inferred, with computations on shapes and
    constants folded, branches taken, loops of a known length unrolled, and idioms put
    together. Nodes that nothing reads are dropped. The model is changed; its name is for
    messages.

    Raises:
        UnsupportedError: onnx cannot evaluate a node, or infer its shapes; the length
            of a loop, or a condition, is not known before the model is run.
    """
    folding = Folding(model, name)
    for node in model.graph.node:
        folding.visit(node)
    outputs = [output.name for output in model.graph.output]
    for output in outputs:
        folding.copy_known(output)
    nodes = with_idioms(folding.nodes, ChainMap(folding.arrays, folding.scalars))
    needed = _needed(nodes, outputs, folding.arrays)
    kept = [*folding.with_constants(needed, outputs)]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    _declare_types(model.graph, folding.types)
    return model


def dtype_of(initializer: Any) -> Any:
    """The numpy type of the elements of an initializer."""
    return onnx.helper.tensor_dtype_to_np_dtype(initializer.data_type)


def _needed(
    nodes: list[Any], outputs: Iterable[str], known: Container[str]
) -> list[Any]:
    """The nodes that outputs depend on, and whose results are not known."""
    read, kept = set(outputs), []
    for node in reversed(nodes):
        wanted = read.intersection(node.output)
        if any(name not in known for name in wanted):
            kept.append(node)
            read.update(node.input)
    return kept[::-1]


def _declare_types(graph: Any, types: dict[str, Any]) -> None:
    outputs = {output.name for output in graph.output}
    made = {name for node in graph.node for name in node.output} - outputs
    del graph.value_info[:]
    found = {name: kind for name, kind in types.items() if name in made}
    for name, kind in found.items():
        graph.value_info.add(name=name, type=kind)
    for output in graph.output:
        if output.name in types:
            output.type.CopyFrom(types[output.name])


def described(node: Any) -> str:
    """What messages call a node."""
    return f"'{node.op_type}'" + (f" (node '{node.name}')" if node.name else "")


class Folding:
    """What is known after the nodes that were visited.

    Attributes:
        nodes: those that are kept.
        types: the types of tensors, by name.
        arrays: the values of those that are known before the model is run. Parameters
            are not: their dependents have gradients.
        scalars: the values of initializers that may be parameters.
        given: the names of constants of the file.
        stored: the names of tensors that the model stores.
        sequences: the tensors of sequences, by name.
        supply: unused names.
        version: the version of the operator set of standard ONNX.
    """

    def __init__(self, model: Any, name: str) -> None:
        graph, self.model = model.graph, name
        self.opsets = model.opset_import
        (self.version,) = (o.version for o in self.opsets if o.domain in DOMAINS)
        self.nodes: list[Any] = []
        self.types = {
            info.name: info.type
            for info in (*graph.value_info, *graph.output, *graph.input)
            if info.type.tensor_type.HasField("elem_type")
        }
        self.sequences: dict[str, list[str]] = {}
        self.arrays: dict[str, Array] = {}
        self.scalars: dict[str, Array] = {}
        self.given: set[str] = set()
        self.stored = {initializer.name for initializer in graph.initializer}
        for stored in graph.initializer:
            kind = onnx.helper.make_tensor_type_proto(stored.data_type, stored.dims)
            self.types[stored.name] = kind
            values = self.arrays if dtype_of(stored).kind in "iub" else self.scalars
            values[stored.name] = onnx.numpy_helper.to_array(stored)
        names = (name for node in graph.node for name in node.output)
        self.supply = NameSupply([*self.types, *names])

    def visit(self, node: Any) -> None:
        """Expands a node, folds it, or keeps it."""
        if node.op_type in EXPANSIONS and EXPANSIONS[node.op_type](self, node):
            return
        operands = self._operands(node)
        if operands is None:
            self._enter_types(node)
            self._enter_empty(node)
            self.nodes.append(node)
            return
        with self.about(node, "onnx cannot evaluate"):
            values = evaluate(node, operands, self.opsets)
        for name, array in values.items():
            self.enter(name, array)
        if node.op_type == "Constant":
            self.given.update(values)

    def enter(self, name: str, array: Array) -> None:
        """Enters the value of a tensor."""
        self.arrays[name], self.types[name] = array, type_of_array(array)

    def copy_known(self, output: str) -> None:
        """Makes an output that is known a copy: nnef_tools takes computed ones only."""
        if output in self.arrays:
            value = self.supply.fresh(f"{output}_value")
            self.enter(value, self.arrays.pop(output))
            self.nodes.append(make_node("Identity", [value], [output]))

    def about(self, node: Any, what: str) -> AbstractContextManager[None]:
        """Turns exceptions into an error that names the node and the model."""
        message = f"cannot convert '{self.model}' to NNEF: {what} {described(node)}"
        return translate_errors(message)

    def refuse(self, node: Any, why: str) -> NoReturn:
        """Raises `UnsupportedError` for a node."""
        message = (
            f"cannot convert '{self.model}' to NNEF: {described(node)} is not possible"
        )
        raise UnsupportedError(f"{message}: {why}")

    def _enter_types(self, node: Any) -> None:
        """Enters the types of the results of a node, as far as they are known."""
        if not self.types.keys() >= {name for name in node.input if name}:
            return
        known = ChainMap(self.arrays, self.scalars)
        with self.about(node, "onnx cannot infer the shapes of"):
            made = infer_types(node, self.types, known, self.opsets)
        for name, kind in made.items():
            if shape_of(kind) is not None or name not in self.types:
                self.types[name] = kind

    def _enter_empty(self, node: Any) -> None:
        """Enters the values of results without elements."""
        for name in set(node.output) & self.types.keys():
            kind, shape = (
                self.types[name].tensor_type.elem_type,
                shape_of(self.types[name]),
            )
            if shape is not None and 0 in shape:
                dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
                self.arrays[name] = np.zeros(shape, dtype)

    def _operands(self, node: Any) -> dict[str, Array] | None:
        """The operands of a node, if its results are known before the model is run."""
        given = {name for name in node.input if name}
        is_source = not given and node.op_type != "Constant"
        if is_source or node.op_type.startswith(_RANDOM):
            return None
        if node.op_type in _OF_SHAPES:
            return self._of_shape(node.input[0])
        is_open = not given <= self.arrays.keys()
        return None if is_open else {name: self.arrays[name] for name in given}

    def _of_shape(self, name: str) -> dict[str, Array] | None:
        """An operand of which only the shape matters. It takes no memory."""
        shape = shape_of(self.types[name]) if name in self.types else None
        return None if shape is None else {name: np.broadcast_to(np.float32(0), shape)}

    def with_constants(
        self, nodes: Iterable[Any], outputs: Iterable[str]
    ) -> Iterator[Any]:
        """The nodes, each after those of the constants that it is the first to read."""
        there = set(self.stored)
        for node in (*nodes, None):
            read = outputs if node is None else node.input
            for name in dict.fromkeys(read):
                if name in self.arrays and name not in there:
                    there.add(name)
                    tensor = onnx.numpy_helper.from_array(self.arrays[name], name)
                    label = "" if name in self.given else FOLDED
                    yield make_node("Constant", [], [name], name=label, value=tensor)
            if node is not None:
                yield node
