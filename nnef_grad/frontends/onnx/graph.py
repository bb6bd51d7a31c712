"""A model to a graph: its inputs, its initializers, its results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from onnx.checker import ValidationError
from onnx.defs import get_schema, has
from onnx.inliner import inline_local_functions, inline_selected_functions
from onnx.numpy_helper import to_array
from onnx.shape_inference import InferenceError, infer_shapes

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import Problem, UnsupportedError, UsageError, suggestion
from nnef_grad.emit.evaluation import NoValueError
from nnef_grad.frontends.constants import Constants, known_input
from nnef_grad.frontends.conversion import declare_as_read
from nnef_grad.frontends.onnx import operations as _operations  # noqa: F401
from nnef_grad.frontends.onnx.idioms import with_idioms
from nnef_grad.frontends.onnx.model import FIXED, InFile, Model
from nnef_grad.frontends.onnx.node import OPERATIONS, kind_of
from nnef_grad.frontends.onnx.operations.elementwise import DATA_TYPES
from nnef_grad.frontends.onnx.parameters import warnings
from nnef_grad.frontends.onnx.reading import ModelReading
from nnef_grad.frontends.onnx.texts import keep, without_texts
from nnef_grad.frontends.onnx.validity import (
    DOMAINS,
    NODE_WORK,
    TRAINING,
    most_work,
    nodes_of,
    refuse_endless,
    refuse_repeated,
    topological,
)
from nnef_grad.frontends.reading import Later
from nnef_grad.frontends.values import shape_of
from nnef_grad.graph.facts import Facts
from nnef_grad.graph.ir import Graph, Shape, Tensor
from nnef_grad.graph.learning import with_facts
from nnef_grad.graph.names import NameSupply
from nnef_grad.graph.passes import put_inputs_first
from nnef_grad.language.identifiers import plain_name
from nnef_grad.ops.traits import LAYERS

# What reads a vector of channels as a row.
_OF_ROWS = LAYERS | {"batch_normalization"}


class Given(NamedTuple):
    """The caller's choices for inputs: shapes and constants, by the names of inputs, the first
    extent of all of them, and numbers of symbols; and the most steps of a loop to unroll.
    """

    shapes: Mapping[str, Sequence[int]]
    batch: int | None
    symbols: Mapping[str, int]
    constants: Constants
    unroll: int


def read(model: Any, arrays: Mapping[str, Array], name: str, given: Given) -> Model:
    """The graph of a model, which may be changed, with the arrays of its initializers."""
    if not model.graph.node or not model.opset_import:
        raise UsageError(f"'{name}' is not an ONNX file: it has no graph")
    most = most_work(model, arrays)
    refuse_endless(model, name, most)
    model = _expanded(model, name)
    graph = model.graph
    refuse_repeated(graph, name)
    texts = without_texts(graph, name)
    _refuse_operations(graph, name)
    # What onnx has inferred is not so for other shapes.
    is_other = any((given.shapes, given.batch, given.symbols, given.constants))
    infos = () if is_other else (*graph.value_info, *graph.output)
    inferred = {v.name: s for v in infos if (s := _shape(v.type)) is not None}
    inputs = [v for v in graph.input if v.name not in arrays]
    notes = [*texts, *warnings(graph, arrays)]
    fixed = _fixed(model)
    most += NODE_WORK * sum(1 for _ in nodes_of(graph))
    nodes, ys = topological(graph.node), {*_differentiated(graph)}
    # What a gradient passes, or is of, is inside of chains.
    nodes = nodes if ys else with_idioms(nodes, _numbers(graph, arrays))
    keep(graph.node, nodes)
    keep(graph.initializer, [])
    names = ys.union(name for node in nodes_of(graph) for name in node.input)

    def read_with(facts: Facts) -> Model:
        reading = ModelReading(name, model.opset_import, inferred)
        reading.most_work, reading.read = most, {*names}
        reading.unroll = given.unroll
        extents = _input_shapes(inputs, given, facts)
        known = {
            name: array if name in fixed else _value(reading, name, array)
            for name, array in arrays.items()
        }
        fed = {
            v.name: _input(reading, v, extents[v.name])
            for v in inputs
            if v.name not in given.constants
        }
        for v in inputs:
            if v.name in given.constants:
                value, shape = given.constants[v.name], extents[v.name]
                known[v.name] = known_input(reading, v.name, value, _dtype(v), shape)
        return _model(reading, graph, known | fed, [*fed.values()], notes)

    return with_facts(read_with)


def _expanded(model: Any, name: str) -> Any:
    """The model with bodies in place of functions: its own, and operations that ONNX defines
    by others, such as Attention, where they are not read as they are.
    """
    if model.functions:
        try:
            model = inline_local_functions(model)
        except (RuntimeError, ValidationError) as error:
            reason, *_ = str(error).splitlines()
            raise UsageError(f"'{name}' is not valid: {reason}") from None
    kinds = {n.op_type for n in nodes_of(model.graph) if n.domain in DOMAINS}
    for kind in filter(_is_defined, sorted(kinds - _KNOWN)):
        # Without its definition, or types that this depends on, it is refused later.
        with suppress(
            RuntimeError, TypeError, ValueError, ValidationError, InferenceError
        ):
            typed = infer_shapes(model)
            model = inline_selected_functions(
                typed, [("", kind)], inline_schema_functions=True
            )
    return model


_KNOWN = OPERATIONS.keys() | {"Constant"}


def _is_defined(kind: str) -> bool:
    """Whether ONNX defines an operation by others."""
    schema = get_schema(kind) if has(kind) else None
    return schema is not None and (
        schema.has_function or schema.has_context_dependent_function
    )


# ---- What cannot be read ----


def _refuse_operations(graph: Any, name: str) -> None:
    nodes: dict[str, list[str]] = {}
    for node in nodes_of(graph):
        nodes.setdefault(kind_of(node), []).append(node.name)
    missing = {kind: names for kind, names in nodes.items() if kind not in _KNOWN}
    if missing:
        message = f"'{name}' has unsupported operations: "
        told = ", ".join(f"'{kind}'{_where(names)}" for kind, names in missing.items())
        is_laid_out = any(kind.startswith(_LAYOUTS) for kind in missing)
        advice = "; save it with the level 'extended' of optimizations"
        raise UnsupportedError(f"{message}{told}{advice if is_laid_out else ''}")


def _where(names: Sequence[str]) -> str:
    """How often an operation is there, and its first node."""
    first = f"the first is the node '{names[0]}'" if names[0] else ""
    often = f"{len(names)} times" if len(names) > 1 else ""
    told = ", ".join(filter(None, [often, first]))
    return f" ({told})" if told else ""


# Operations of ONNX Runtime whose tensors have its own layouts.
_LAYOUTS = ("com.microsoft.nchwc.", "com.microsoft.nhwc.", "com.ms.internal.")


# ---- The graph ----


def _model(
    reading: ModelReading,
    graph: Any,
    known: dict[str, Any],
    inputs: Sequence[Tensor],
    notes: list[Problem],
) -> Model:
    names = [value.name for value in graph.output]
    reading.read.update(names)
    try:
        values = reading.run(graph, known)
    except NoValueError:
        values = []
    if reading.problems:
        error = UnsupportedError.collect(reading.problems)
        error.constants = reading.constants
        raise error
    outputs = [_output(reading, *pair) for pair in zip(names, values, strict=True)]
    reading.warnings += notes
    whole = reading.graph_of(graph.name or "graph", inputs, outputs)
    whole = declare_as_read(put_inputs_first(whole), readers=_OF_ROWS)
    tensors, typed = whole.tensors, (*graph.value_info, *graph.input, *graph.output)
    stored = {n: reading.data[label].shape for n, label in whole.labels.items()}
    shapes = {n: shape for n, shape in stored.items() if shape != tensors[n].shape}
    called, found = _names_in_file(reading, whole)
    types = {v.name: v.type.tensor_type.elem_type for v in typed} | reading.types
    named = {found.get(name): kind for name, kind in types.items() if kind}
    own = {name: kind for name, kind in named.items() if name}
    return Model(whole, reading.data_of(whole), InFile(called, shapes, own, found))


def _names_in_file(
    reading: ModelReading, graph: Graph
) -> tuple[dict[str, str], dict[str, str]]:
    """The names of tensors in the file, by their names in the graph, where these differ;
    and the names in the graph, by those in the file, empty for what is not there.
    """
    here = {x: graph.names[x] for op in graph.operations for x in op.outputs}
    made = reading.made.items()
    found = {old: "" if x is None else here.get(x, "") for old, x in made}
    # Of several names of one tensor the first is its own.
    called = {name: old for old, name in reversed(found.items()) if name}
    for x in (*graph.inputs, *graph.variables, *graph.outputs):
        called[here[x]] = reading.called.get(here[x], here[x])
        found[called[here[x]]] = here[x]
    return {name: old for name, old in called.items() if name != old}, found


def _numbers(graph: Any, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The constants without axes, by name."""
    numbers = {name: array for name, array in arrays.items() if not array.ndim}
    for node in graph.node:
        # That of a definition may have no value.
        if node.op_type == "Constant" and [a.name for a in node.attribute] == ["value"]:
            tensor = node.attribute[0].t
            if not tensor.dims:
                numbers[node.output[0]] = to_array(tensor)
    return numbers


def _value(reading: ModelReading, name: str, array: Array) -> Any:
    """The value of an initializer: what may be a parameter is a variable."""
    # Integers of four bits are no integers for numpy; nothing is a left out operand.
    is_integer = array.dtype.kind == "b" or "int" in array.dtype.name
    if is_integer or not array.ndim or not array.size:
        return array
    return Later(lambda: reading.stored(name, array))


def _fixed(model: Any) -> set[str]:
    """The names of initializers that are no parameters, as a file says that is written here."""
    (text,) = [p.value for p in model.metadata_props if p.key == FIXED][:1] or ["[]"]
    with suppress(RecursionError, TypeError, ValueError):
        return {*json.loads(text)}
    return set()


def _input(reading: ModelReading, value: Any, shape: Shape) -> Tensor:
    name, dtype = reading.fresh(value.name), _dtype(value)
    reading.narrow[value.name] = value.type.tensor_type.elem_type
    return reading.emitter.emit_named(name, "external", dtype, shape=list(shape))


def _dtype(value: Any) -> str:
    """The data type of an input in NNEF."""
    dtype = DATA_TYPES.get(value.type.tensor_type.elem_type)
    if dtype is None:
        raise UnsupportedError(f"the input '{value.name}' has no data type of NNEF")
    return dtype


def _output(reading: ModelReading, name: str, value: Any) -> Tensor:
    """A result under its name: an output is no input, and is returned once."""
    message = ""
    if isinstance(value, list):
        message = f"the output '{name}' is a sequence: return its tensors"
    elif 0 in shape_of(value):
        message = f"the output '{name}' has no elements: NNEF has no such tensors"
    if message:
        raise UnsupportedError(reading.refusal(message))
    return reading.returned(value, reading.fresh(name))


def _shape(kind: Any) -> tuple[int, ...] | None:
    """The shape of an ONNX type, if it is completely known."""
    tensor = kind.tensor_type
    is_known = all(extent.HasField("dim_value") for extent in tensor.shape.dim)
    if not tensor.HasField("shape") or not is_known:
        return None
    return tuple(extent.dim_value for extent in tensor.shape.dim)


def _differentiated(graph: Any) -> Iterator[str]:
    """The names of tensors that Gradient differentiates."""
    for node in nodes_of(graph):
        if kind_of(node) == f"{TRAINING}.Gradient":
            yield from (a.s.decode() for a in node.attribute if a.name == "y")


# ---- The extents of inputs, of which a file may leave some open ----


def _is_name(word: str) -> bool:
    """Whether a word names an extent. Exporters write "?", "None" or "-1" for any that they do
    not know: two of these need not be equal.
    """
    return word != "None" and any(letter.isalpha() for letter in word)


def _input_shapes(
    inputs: Sequence[Any], given: Given, facts: Facts
) -> dict[str, Shape]:
    """The shapes of inputs, by name. What the file leaves open, and nobody gives, is a
    symbol, called as in the file.
    """
    names = (*given.shapes, *given.constants)
    _refuse_unknown("input", names, [value.name for value in inputs])
    supply, named = NameSupply(), dict[str, str]()
    numbers, batch = {**given.symbols}, given.batch

    def symbol(value: Any, axis: int, dimension: Any) -> str:
        """The name of an open extent; none of a number."""
        if dimension.HasField("dim_value") and dimension.dim_value >= 0:
            return ""
        word = dimension.dim_param
        if not _is_name(word):
            word = f"{value.name}_{axis}"
        if word not in named:
            named[word] = supply.fresh(plain_name(word))
        return named[word]

    def extent(value: Any, axis: int, dimension: Any) -> Any:
        if name := symbol(value, axis, dimension):
            return numbers.get(name, facts.symbol(name))
        return int(dimension.dim_value)

    for value in inputs:
        own = enumerate(value.type.tensor_type.shape.dim)
        named_axes = [symbol(value, *dimension) for dimension in own]
        array = np.asarray(given.constants.get(value.name, 0))
        for name, number in zip(named_axes, array.shape, strict=False):
            numbers.setdefault(name, number)
    known = {name: np.shape(x) for name, x in given.constants.items()}
    shapes: dict[str, Shape] = {}
    for value in inputs:
        kind = value.type.tensor_type
        own = enumerate(kind.shape.dim)
        shape: Shape = tuple(extent(value, *dimension) for dimension in own)
        if batch is not None and shape:
            shape = (batch, *shape[1:])
        is_open = bool(kind.elem_type) and not kind.HasField("shape")
        told: Mapping[str, Any] = {**(known if is_open else {}), **given.shapes}
        whole = shapes[value.name] = tuple(told.get(value.name, shape))
        if is_open and value.name not in told:
            message = f"the file has no shape for the input '{value.name}': give it one"
            raise UsageError(message)
        if len(whole) != len(shape) and not is_open:
            ranks = f"has the rank {len(shape)}, and {list(whole)} is given"
            raise UsageError(f"the input '{value.name}' {ranks}")
    _refuse_unknown("symbol", given.symbols, [*named.values()])
    return shapes


def _refuse_unknown(kind: str, given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            names = ", ".join(map(repr, known))
            there = f"the {kind}s are {names}" if known else f"there are no {kind}s"
            message = f"there is no {kind} '{name}'{suggestion(name, list(known))}"
            raise UsageError(f"{message}; {there}")
