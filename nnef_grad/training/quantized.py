"""Quantization-aware training: what will be quantized is quantized while it is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from nnef_grad.base.errors import UsageError
from nnef_grad.emit.arguments import bind
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Graph, Quantization, Tensor
from nnef_grad.graph.names import substitute
from nnef_grad.language.types import TensorType
from nnef_grad.ops.opset import OpSet


class Quantized(NamedTuple):
    """A graph that computes what a quantized one does.

    Attributes:
        graph: the graph.
        results: the quantized tensor in place of each.
    """

    graph: Graph
    results: Mapping[Tensor, Tensor]


def with_quantization(graph: Graph, opset: OpSet) -> Quantized:
    """The graph with the quantization of each tensor as an operation, whose derivative is
    that of the calculus: straight through, within the range.

    Raises:
        UsageError: the graph has no quantization info, or an operation of it is not the
            standard's.
    """
    if not graph.quantization:
        message = f"there is no quantization info for graph '{graph.name}'"
        raise UsageError(f"{message}: write it to graph.quant beside the graph")
    emitter = Emitter(opset.extended(graph.fragments), graph.names)
    found: dict[Tensor, Tensor] = {}
    for operation in graph.operations:
        emitter.append(substitute(operation, found))
        for tensor in operation.outputs:
            entry = graph.quantization.get(graph.names[tensor])
            if entry is not None:
                found[tensor] = _quantized(emitter, tensor, entry)
    made = replace(
        graph,
        operations=tuple(emitter.operations),
        outputs=tuple(found.get(tensor, tensor) for tensor in graph.outputs),
        names=emitter.assigned_names(emitter.operations, reserved=graph.tensors),
        quantization={},
    )
    return Quantized(made, found)


def _quantized(emitter: Emitter, tensor: Tensor, entry: Quantization) -> Tensor:
    """A tensor as its quantization rounds it."""
    definition, subject = entry.operation, emitter.names[tensor]
    if definition.name not in emitter.opset.declarations:
        message = f"'{definition.name}' is not a standard operation"
        raise UsageError(message, entry.span)
    first, *others = definition.parameters
    values: dict[str, Any] = {first.name: tensor}
    for parameter in others:
        value: Any = entry.attributes[parameter.name]
        if isinstance(parameter.type, TensorType) and isinstance(value, tuple):
            name = f"{subject}_{parameter.name}"
            value = _constant(emitter, parameter.type, value, name)
        values[parameter.name] = value
    call = bind(definition, values, None)
    hints = (f"{subject}_quantized",)
    (result,) = emitter.emit_op(call, hints=hints, span=entry.span)
    assert isinstance(result, Tensor)
    return result


def _constant(
    emitter: Emitter, type_: TensorType, value: tuple[Any, ...], name: str
) -> Tensor:
    """The constant that nested tuples of numbers are."""
    shape: list[int] = []
    items: list[Any] = [value]
    while isinstance(items[0], tuple):
        shape.append(len(items[0]))
        items = [part for item in items for part in item]
    return emitter(
        "constant", shape=tuple(shape), value=tuple(items), dtype=type_.dtype, hint=name
    )
