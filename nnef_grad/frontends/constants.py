"""Inputs that are constants: what follows from them alone is computed while a model is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import UsageError
from nnef_grad.base.source import NOWHERE
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.simplify import simplify
from nnef_grad.frontends.reading import Reading
from nnef_grad.frontends.values import DTYPES, is_known, is_uniform
from nnef_grad.graph.extents import as_numbers, has_symbols
from nnef_grad.graph.ir import Graph, Operation, Shape, Tensor, map_tensors
from nnef_grad.graph.passes import carry_quantization, prune
from nnef_grad.graph.symbols import numbers_of, with_numbers
from nnef_grad.language.library import STDLIB
from nnef_grad.ops.registry import OpSet
from nnef_grad.ops.traits import BROADCASTING

Constants = Mapping[str, Any]


def known_input(
    reading: Reading, name: str, value: Any, dtype: str, shape: Shape
) -> Any:
    """The value of an input that is a constant: an array, or a number for all of its elements.

    Raises:
        UsageError: it has another shape than the input, or is of another type.
    """
    array = _converted(name, np.asarray(value), dtype)
    if array.ndim and array.shape != tuple(shape):
        wanted = f"the input has {list(shape)}"
        raise UsageError(
            f"the constant '{name}' has the shape {list(array.shape)}: {wanted}"
        )
    if not has_symbols(shape):
        return np.broadcast_to(array, as_numbers(shape)).copy()
    settings = {"shape": list(shape), "value": [array.item()]}
    return reading.standard("constant", [], settings, dtype, name, NOWHERE)


def _converted(name: str, array: Array, dtype: str) -> Array:
    """A given array in the type of the input, which holds all of its numbers."""
    kinds: dict[str, Any] = {
        "scalar": np.float64,
        "integer": np.int64,
        "logical": np.bool_,
    }
    is_number = array.dtype.kind in DTYPES and array.dtype.kind != "O"
    with np.errstate(invalid="ignore"):
        converted = array.astype(kinds[dtype]) if is_number and dtype in kinds else None
    if converted is None or not (converted == array).all():
        shown = array.item() if array.size == 1 else f"an array of {array.dtype}"
        message = f"the constant '{name}' is of type {dtype}, and {shown} is not"
        raise UsageError(message)
    return converted


def with_constants(graph: Graph, constants: Constants, opset: OpSet) -> Graph:
    """A graph with numbers in the place of some inputs, by name; the opset has the shape
    functions of operations that the document declares.

    Raises:
        UsageError: as `known_input`.
    """
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    shapes = {name: array.shape for name, array in arrays.items() if array.ndim}
    graph = with_numbers(graph, numbers_of(graph, shapes))
    again = _Again(graph, opset)
    for operation in graph.operations:
        name = graph.names[operation.outputs[0]] if operation.outputs else ""
        if operation.name == "external" and name in arrays:
            (x,) = operation.outputs
            again.values[x] = known_input(again, name, arrays[name], x.dtype, x.shape)
        else:
            again.take(operation)
    return again.graph(constants)


class _Again(Reading):
    """A graph that is read again, with some known values.

    Attributes:
        values: what is in the place of its tensors, where it is not these.
    """

    def __init__(self, graph: Graph, opset: OpSet) -> None:
        known = opset.extended(graph.fragments)
        super().__init__(Emitter(known, graph.names, simplify=simplify), STDLIB)
        self._before = graph
        self.values: dict[Tensor, Any] = {}

    def take(self, operation: Operation) -> None:
        """Emits an operation, or computes it."""
        values, names = self.values, self._before.names
        if values.keys().isdisjoint(operation.inputs):
            self.emitter.append(operation, is_shared=False)
            return
        known = [values.get(x) for x in operation.inputs]
        if operation.name in STDLIB and is_known(known):
            results = self._computed(operation)
        else:
            place = partial(self._in_place, operation)
            operands = map_tensors(place, operation.operands)
            hints = tuple(names[t] for t in operation.outputs)
            is_listed = len(operation.results) != len(hints)
            again = self.emitter.emit_again
            results = again(operation, operands, hints=() if is_listed else hints)
        for tensor, value in zip(operation.outputs, _flat(results), strict=True):
            values[tensor] = self._called(value, names[tensor])

    def _computed(self, operation: Operation) -> Any:
        dtype = None if operation.definition.deduces_dtype else operation.dtype
        operands = map_tensors(self.values.__getitem__, operation.operands)
        place, hint = (
            operation.span or NOWHERE,
            self._before.names[operation.outputs[0]],
        )
        return self.standard(
            operation.name, operands, operation.settings, dtype, hint, place
        )

    def _in_place(self, operation: Operation, tensor: Tensor) -> Any:
        """The operand in the place of a tensor: a number, if all elements are equal and the
        result has the shape of another operand.
        """
        value, (result, *_) = self.values.get(tensor), operation.outputs
        is_spread = operation.name in BROADCASTING and any(
            x.shape == result.shape and not is_known(self.values.get(x))
            for x in operation.inputs
        )
        if is_spread and isinstance(value, np.ndarray) and is_uniform(value):
            return value.flat[0].item()
        return self._tensor(tensor)

    def _tensor(self, tensor: Tensor) -> Any:
        value, name = self.values.get(tensor, tensor), self._before.names[tensor]
        return self._called(self.materialize(value, tensor.dtype, name, NOWHERE), name)

    def _called(self, value: Any, name: str) -> Any:
        """The value, which has the name of the tensor that it is in the place of."""
        if isinstance(value, Tensor) and self.emitter.is_new(value):
            self.emitter.names.setdefault(value, name)
        return value

    def graph(self, constants: Constants) -> Graph:
        """The graph that was emitted, without those inputs and what nothing needs."""
        graph, emitter = self._before, self.emitter
        inputs = [x for x in graph.inputs if graph.names[x] not in constants]
        outputs = [self._output(x) for x in graph.outputs]
        operations = tuple(emitter.operations)
        reserved = [*emitter.names.values(), *graph.custom_operations]
        made = replace(
            graph,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            operations=operations,
            names=emitter.assigned_names(operations, reserved),
            warnings=(*graph.warnings, *self.warnings),
            quantization={},
        )
        made = prune(made)
        return replace(made, quantization=carry_quantization(graph.quantization, made))

    def _output(self, tensor: Tensor) -> Tensor:
        return self.emitter.pin_name(self._tensor(tensor), self._before.names[tensor])


def _flat(value: Any) -> list[Any]:
    """The results of an operation, of which some may be in arrays."""
    if not isinstance(value, (list, tuple)):
        return [value]
    return [part for item in value for part in _flat(item)]
