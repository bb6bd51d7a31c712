"""Graphs of the Khronos tools: nnef.Graph and nnef_tools.model.Graph.

Graphs are read through their text, so that they are checked like any document.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import nnef
import numpy as np
import numpy.typing as npt
from nnef_tools import model as tools

from nnef_grad.build.arguments import thaw
from nnef_grad.errors import UsageError
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor, tensors
from nnef_grad.language.library import Library, standard, with_fragments
from nnef_grad.language.parser import parse_fragments
from nnef_grad.model import loads
from nnef_grad.source import Source

Array = npt.NDArray[Any]
Data = Mapping[str, Array]

# The largest number of single precision.
_LARGEST = float(np.finfo(np.float32).max)

_EXTENSIONS = """\
extension KHR_enable_fragment_definitions;
extension KHR_enable_operator_expressions;
"""


class Model(NamedTuple):
    """A graph, and the data of its variables by label."""

    graph: Graph
    data: dict[str, Array]


# ---- nnef.Graph ----


def from_nnef(graph: Any, *, fragments: str = "") -> Model:
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
    quant = "".join(_quantization_lines(graph.tensors.values()))
    extensions = _EXTENSIONS if fragments else ""
    text = f"version 1.0;\n{extensions}{fragments}\n{body}"
    flat = loads(text, name=f"<{graph.name}>", quant=quant or None)
    data = {
        str(op.attribs["label"]): graph.tensors[op.outputs["output"]].data
        for op in graph.operations
        if op.name == "variable"
    }
    return Model(flat, {label: array for label, array in data.items() if _is(array)})


def to_nnef(graph: Graph, data: Data | None = None) -> Any:
    """A `nnef.Graph`, with the shapes of all tensors and the data of its variables."""
    found = {
        t.name: nnef.Tensor(
            t.name, t.dtype, list(t.shape), array, _quantization_of(graph, t)
        )
        for t, array in _with_data(graph, data or {})
    }
    return nnef.Graph(
        graph.name,
        found,
        list(map(_operation, graph.operations)),
        [t.name for t in graph.inputs],
        [t.name for t in graph.outputs],
    )


def _operation(operation: Operation) -> Any:
    definition = operation.definition
    attributes = {p.name: p.type for p in definition.attributes}
    return nnef.Operation(
        operation.name,
        OrderedDict(
            (name, thaw(attributes[name], value))
            for name, value in operation.settings.items()
        ),
        _named(definition.operands, operation.operands),
        _named(definition.results, operation.results),
        operation.dtype if definition.generic is not None else None,
    )


def _named(
    parameters: Iterable[Any], values: Iterable[Operand]
) -> OrderedDict[str, Any]:
    return OrderedDict(
        (p.name, _identifiers(v)) for p, v in zip(parameters, values, strict=True)
    )


def _identifiers(value: Operand) -> Any:
    if isinstance(value, tuple):
        return [_identifiers(item) for item in value]
    return nnef.Identifier(value.name) if isinstance(value, Tensor) else value


# ---- nnef_tools.model.Graph ----


def from_nnef_tools(graph: Any, *, fragments: str = "") -> Model:
    """A flat graph from a `nnef_tools.model.Graph` of NNEF operations, such as those of
    the readers and converters of nnef_tools.

    Args:
        graph: the graph.
        fragments: definitions of operations that are not standard, in NNEF.

    Raises:
        NnefGradError: it is not a valid graph, or has undefined operations.
    """
    source = Source("<fragments>", fragments)
    library = with_fragments(parse_fragments(source) if fragments else ())
    unnamed = [op.type for op in graph.operations if op.type not in library]
    if unnamed:
        raise UsageError(f"'{unnamed[0]}' is not a standard operation of NNEF")
    found = {
        t.name: nnef.Tensor(
            t.name, _NNEF_TYPES[np.dtype(t.dtype).kind], t.shape, t.data, t.quant
        )
        for t in graph.tensors
        if t.name is not None
    }
    operations = [_from_tools(op, library) for op in graph.operations]
    names = [[t.name for t in side] for side in (graph.inputs, graph.outputs)]
    made = nnef.Graph(graph.name or "net", found, operations, *names)
    return from_nnef(made, fragments=fragments)


def to_nnef_tools(graph: Graph, data: Data | None = None) -> Any:
    """A `nnef_tools.model.Graph`, for the writers and converters of nnef_tools."""
    result = tools.Graph(name=graph.name)
    made = {
        t.name: tools.Tensor(
            result,
            name=t.name,
            shape=t.shape,
            dtype=_numpy_type(t, array),
            data=array,
            quant=_quantization_of(graph, t),
        )
        for t, array in _with_data(graph, data or {})
    }
    for operation in graph.operations:
        tools.Operation(
            result,
            type=operation.name,
            attribs=_tools_attributes(operation, made),
            inputs=_tools_values(result, operation.operands, made),
            outputs=_tools_values(result, operation.results, made),
            custom=operation.name not in standard(),
        )
    result.inputs = [made[t.name] for t in graph.inputs]
    result.outputs = [made[t.name] for t in graph.outputs]
    return result


def _from_tools(operation: Any, library: Library) -> Any:
    """The operation with the names of its parameters."""
    definition = library[operation.type]
    attributes = dict(operation.attribs)
    dtype = attributes.pop("dtype", None)
    return nnef.Operation(
        operation.type,
        OrderedDict(attributes),
        _parameters(definition.operands, operation.inputs),
        _parameters(definition.results, operation.outputs),
        _NNEF_TYPES[np.dtype(dtype).kind] if dtype is not None else None,
    )


def _parameters(declared: Sequence[Any], values: Any) -> OrderedDict[str, Any]:
    """Tensors by the names of the parameters; anything but a tuple is a single one. The
    last ones may be left out.
    """
    items = values if isinstance(values, tuple) else [list(values)]
    pairs = zip(declared[: len(items)], items, strict=True)
    return OrderedDict((p.name, _reference(value)) for p, value in pairs)


def _reference(value: Any) -> Any:
    """The name of a tensor, or the number that it is."""
    if isinstance(value, (list, tuple)):
        return [_reference(item) for item in value]
    if value.producer is None:
        return finite(np.asarray(value.data).item())
    return nnef.Identifier(value.name)


def finite(number: Any) -> Any:
    """The number, or the largest finite one for an infinity, which NNEF cannot write."""
    if not isinstance(number, float) or number != number:
        return number
    return min(max(number, -_LARGEST), _LARGEST)


def _tools_attributes(operation: Operation, made: Mapping[str, Any]) -> dict[str, Any]:
    declared = {p.name: p.type for p in operation.definition.attributes}
    attributes = {
        name: thaw(declared[name], value) for name, value in operation.settings.items()
    }
    for name in ("stride", "dilation"):
        if attributes.get(name) == []:
            attributes[name] = [1] * _axes(operation)
    if operation.definition.generic is not None:
        attributes["dtype"] = made[operation.outputs[0].name].dtype
    return attributes


def _axes(operation: Operation) -> int:
    """The number of axes of an operation's windows: converters need an item for each."""
    if operation.name == "slice":
        axes = operation.attributes["axes"]
        return len(axes)
    rank = operation.inputs[0].rank
    return rank - 2 if operation.name.endswith("conv") else rank


def _tools_values(graph: Any, values: Any, made: Mapping[str, Any]) -> Any:
    """A tuple of tensors, or a list if the only parameter is an array."""
    if len(values) == 1 and isinstance(values[0], tuple):
        return [made[t.name] for t in tensors(values)]
    return tuple(
        made[v.name] if isinstance(v, Tensor) else _constant(graph, v) for v in values
    )


def _constant(graph: Any, value: Any) -> Any:
    """A constant tensor without a producer, for a number."""
    dtype = np.float32 if isinstance(value, float) else None
    array = np.array(value, dtype)
    return tools.Tensor(graph, shape=(), dtype=array.dtype.type, data=array)


# ---- Types, data, quantization ----

_NNEF_TYPES = {"f": "scalar", "i": "integer", "u": "integer", "b": "logical"}
_NUMPY_TYPES = {"scalar": np.float32, "integer": np.int64, "logical": np.bool_}


def _numpy_type(tensor: Tensor, array: Array | None) -> Any:
    return _NUMPY_TYPES[tensor.dtype] if array is None else array.dtype.type


def _with_data(graph: Graph, data: Data) -> Iterator[tuple[Tensor, Array | None]]:
    """Each tensor, with its data if it is a variable that has any."""
    labelled = {label.lower(): array for label, array in data.items()}
    for operation in graph.operations:
        label = str(operation.attributes.get("label", "")).lower()
        for tensor in operation.outputs:
            array = labelled.get(label) if operation.name == "variable" else None
            if array is not None and array.shape != tensor.shape:
                shapes = (
                    f"{list(array.shape)}, but the variable has {list(tensor.shape)}"
                )
                raise UsageError(f"the data of '{label}' have the shape {shapes}")
            yield tensor, array


def _is(array: Any) -> bool:
    return array is not None and np.size(array) > 0


def _quantization_of(graph: Graph, tensor: Tensor) -> dict[str, Any]:
    """The quantization info of a tensor in the form of the Khronos tools."""
    entry = graph.quantization.get(tensor.name)
    return {"op-name": entry.operation.name, **entry.attributes} if entry else {}


def _quantization_lines(found: Iterable[Any]) -> Iterator[str]:
    for tensor in found:
        info = {k: v for k, v in (tensor.quantization or {}).items() if v is not None}
        name = info.pop("op-name", None)
        if name is not None:
            items = ", ".join(
                f"{k} = {nnef.format_argument(_plain(v))}" for k, v in info.items()
            )
            yield f'"{tensor.name}": {name}({items});\n'


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
