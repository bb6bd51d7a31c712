"""Graphs of the Khronos tools: nnef.Graph and nnef_tools.model.Graph.

Graphs are read through their text, so that they are checked like any document.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from nnef_grad.base.arrays import Array, Data
from nnef_grad.base.errors import UsageError, bounded_nesting
from nnef_grad.base.public import public
from nnef_grad.base.source import Source, Span
from nnef_grad.emit.arguments import thaw
from nnef_grad.emit.builder import build_graph
from nnef_grad.emit.quantization import read_quantization
from nnef_grad.frontends.values import DTYPES
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor
from nnef_grad.language.labels import label_key
from nnef_grad.language.library import with_fragments
from nnef_grad.language.parser import parse_document, parse_fragments
from nnef_grad.language.types import LARGEST

try:
    import nnef

    # An internal name, but it has been there since 2020.
    from nnef_tools.io.nnef.reader import _build_graph
    from nnef_tools.model import Graph as ToolsGraph
except ModuleNotFoundError as error:
    message = "graphs of the Khronos tools need nnef-tools: pip install nnef-tools"
    raise UsageError(message) from error

_EXTENSIONS = """\
extension KHR_enable_fragment_definitions;
extension KHR_enable_operator_expressions;
"""


class Model(NamedTuple):
    """A graph, and the data of its variables by label."""

    graph: Graph
    data: dict[str, Array]


# ---- nnef.Graph ----


@public
def from_nnef(graph: nnef.Graph, *, fragments: str = "") -> Model:
    """A flat graph from a `nnef.Graph`, such as those of `nnef.load_graph`.

    Args:
        graph: the graph.
        fragments: definitions of operations that are not standard, in NNEF.

    Raises:
        NnefGradError: it is not a valid graph.
    """
    body = nnef.format_graph(
        graph.name, graph.inputs, graph.outputs, graph.operations, graph.tensors
    )
    extensions = _EXTENSIONS if fragments else ""
    text = f"version 1.0;\n{extensions}{fragments}\n{body}"
    source = Source(f"<{graph.name}>", text)
    with bounded_nesting(Span(source, 0, 0)):
        document = parse_document(source)
        flat = build_graph(document)
    quant = "".join(_quantization_lines(graph.tensors.values()))
    library = with_fragments(document.fragments)
    entries = read_quantization(Source(f"{source.name}.quant", quant), flat, library)
    flat = replace(flat, quantization=entries)
    data = {
        str(op.attribs["label"]): array
        for op in graph.operations
        if op.name == "variable"
        for name in op.outputs.values()
        if (array := graph.tensors[name].data) is not None and np.size(array) > 0
    }
    return Model(flat, data)


@public
def to_nnef(graph: Graph, data: Data | None = None) -> Any:
    """A `nnef.Graph`, with the shapes of all tensors and the data of its variables."""
    tensors = {
        name: nnef.Tensor(
            name, t.dtype, list(t.shape), array, _quantization_of(graph, name)
        )
        for name, t, array in _with_data(graph, data or {})
    }
    operations = [_operation(op, graph.names) for op in graph.operations]
    names = [*graph.input_names], [*graph.output_names]
    return nnef.Graph(graph.name, tensors, operations, *names)


def _operation(operation: Operation, names: Mapping[Tensor, str]) -> Any:
    def identifier(value: Operand) -> Any:
        if isinstance(value, tuple):
            return [*map(identifier, value)]
        return nnef.Identifier(names[value]) if isinstance(value, Tensor) else value

    definition = operation.definition
    types = {p.name: p.type for p in definition.attributes}
    attributes = [(k, thaw(types[k], v)) for k, v in operation.settings.items()]
    sides = (
        zip(declared, map(identifier, values), strict=True)
        for declared, values in (
            (definition.operand_names, operation.operands),
            ([r.name for r in definition.results], operation.results),
        )
    )
    dtype = operation.dtype if definition.generic is not None else None
    parts = map(OrderedDict, (attributes, *sides))
    return nnef.Operation(operation.name, *parts, dtype)


# ---- nnef_tools.model.Graph ----


@public
def from_nnef_tools(graph: ToolsGraph, *, fragments: str = "") -> Model:
    """A flat graph from a `nnef_tools.model.Graph` of NNEF operations, such as those of
    the readers and converters of nnef_tools; `fragments` is as in `from_nnef`.

    Raises:
        NnefGradError: it is not a valid graph, or has undefined operations.
    """
    library = with_fragments(parse_fragments(Source("<fragments>", fragments)))
    unnamed = [op.type for op in graph.operations if op.type not in library]
    if unnamed:
        raise UsageError(f"'{unnamed[0]}' is not a standard operation of NNEF")
    tensors = {
        t.name: nnef.Tensor(
            t.name, DTYPES[np.dtype(t.dtype).kind], t.shape, t.data, t.quant
        )
        for t in graph.tensors
        if t.name is not None
    }
    operations = [_from_tools(op) for op in graph.operations]
    names = [[t.name for t in side] for side in (graph.inputs, graph.outputs)]
    parsed = nnef.Graph(graph.name or "net", tensors, operations, *names)
    return from_nnef(parsed, fragments=fragments)


@public
def to_nnef_tools(graph: Graph, data: Data | None = None) -> Any:
    """A `nnef_tools.model.Graph`, for the writers and converters of nnef_tools."""
    tools = _build_graph(to_nnef(graph, data))
    for tensor in tools.tensors:
        # Numbers: the integers of tensors have 64 bits.
        if tensor.producer is None and tensor.dtype is np.int32:
            tensor.data, tensor.dtype = np.asarray(tensor.data, np.int64), np.int64
    return tools


def _from_tools(operation: Any) -> Any:
    attributes = dict(operation.attribs)
    dtype = attributes.pop("dtype", None)
    return nnef.Operation(
        operation.type,
        OrderedDict(attributes),
        _in_order(operation.inputs),
        _in_order(operation.outputs),
        DTYPES[np.dtype(dtype).kind] if dtype is not None else None,
    )


def _in_order(values: Any) -> OrderedDict[str, Any]:
    """Tensors, of which only the order matters; anything but a tuple is one."""
    items = values if isinstance(values, tuple) else [list(values)]
    return OrderedDict((str(i), _reference(value)) for i, value in enumerate(items))


def _reference(value: Any) -> Any:
    """The name of a tensor, or the number that it is."""
    if isinstance(value, (list, tuple)):
        return [_reference(item) for item in value]
    if value.producer is not None:
        return nnef.Identifier(value.name)
    if np.size(value.data) != 1 or value.data is None:
        message = f"nothing makes '{value.name}', which is no number"
        raise UsageError(f"{message}: make it a variable, or a constant")
    number = np.asarray(value.data).item()
    # NNEF cannot write an infinity.
    is_float = isinstance(number, float) and number == number
    return min(max(number, -LARGEST), LARGEST) if is_float else number


# ---- Data, quantization ----


def _with_data(graph: Graph, data: Data) -> Iterator[tuple[str, Tensor, Array | None]]:
    """Each tensor and its name, with its data if it is a variable that has any."""
    labelled = {label_key(label): array for label, array in data.items()}
    for operation in graph.operations:
        label = label_key(str(operation.attributes.get("label", "")))
        for tensor in operation.outputs:
            array = labelled.get(label) if operation.name == "variable" else None
            if array is not None and array.shape != tensor.shape:
                given, own = list(array.shape), list(tensor.shape)
                message = f"the data of '{label}' have the shape {given}, but the variable has {own}"
                raise UsageError(message)
            yield graph.names[tensor], tensor, array


def _quantization_of(graph: Graph, name: str) -> dict[str, Any]:
    entry = graph.quantization.get(name)
    return {"op-name": entry.operation.name, **entry.attributes} if entry else {}


def _quantization_lines(tensors: Iterable[Any]) -> Iterator[str]:
    for tensor in tensors:
        info = {k: v for k, v in (tensor.quantization or {}).items() if v is not None}
        name = info.pop("op-name", None)
        plain = ((k, np.asarray(value).tolist()) for k, value in info.items())
        items = ", ".join(f"{k} = {nnef.format_argument(v)}" for k, v in plain)
        if name is not None:
            yield f'"{tensor.name}": {name}({items});\n'
