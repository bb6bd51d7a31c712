"""A model to a graph: its inputs, its initializers, its results."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from onnx.helper import tensor_dtype_to_np_dtype
from onnx.inliner import inline_local_functions, inline_selected_functions
from onnx.numpy_helper import to_array
from onnx.shape_inference import infer_shapes

from nnef_grad.base.errors import UnsupportedError, UsageError, suggestion
from nnef_grad.emit.evaluation import NoValueError
from nnef_grad.frontends.conversion import declare_as_read
from nnef_grad.frontends.onnx.idioms import with_idioms
from nnef_grad.frontends.onnx.model import Array, InFile, Model, Wanted
from nnef_grad.frontends.onnx.node import OPERATIONS, WITH_GRAPHS
from nnef_grad.frontends.onnx.operations.elementwise import DATA_TYPES
from nnef_grad.frontends.onnx.parameters import warnings
from nnef_grad.frontends.onnx.reading import NodeReading
from nnef_grad.frontends.reading import Later, valid_name
from nnef_grad.graph.extents import symbol
from nnef_grad.graph.ir import Graph, Shape, Tensor
from nnef_grad.graph.names import NameSupply
from nnef_grad.graph.passes import put_inputs_first
from nnef_grad.ops.traits import LAYERS

# The domains of standard ONNX operations.
DOMAINS = ("", "ai.onnx")

# What reads a vector of channels as a row.
_OF_ROWS = LAYERS | {"batch_normalization"}


def read(model: Any, value: Callable[[Any], Array], wanted: Wanted, name: str) -> Model:
    """The graph of a model, which may be changed.

    Args:
        model: the model.
        value: gives the value of an initializer.
        wanted: what the extents are that it leaves open.
        name: what messages call it.

    Raises:
        UsageError: it is empty, or extents do not fit.
        UnsupportedError: it has operations that cannot be read.
    """
    if not model.graph.node or not model.opset_import:
        raise UsageError(f"'{name}' is not an ONNX file: it has no graph")
    model = _expanded(model)
    _refuse_operations(model.graph, name)
    return _ModelGraph(model, value, wanted, name).model()


def _expanded(model: Any) -> Any:
    """The model with bodies in place of functions: its own, and operations that ONNX defines
    by others, such as Attention, where they are not read as they are.
    """
    if model.functions:
        model = inline_local_functions(model)
    kinds = {n.op_type for n in _nodes(model.graph) if n.domain in DOMAINS}
    for kind in sorted(kinds - _KNOWN):
        # Without its definition, or types that this depends on, it is refused later.
        with suppress(RuntimeError, TypeError):
            typed = infer_shapes(model)
            model = inline_selected_functions(
                typed, [("", kind)], inline_schema_functions=True
            )
    return model


_KNOWN = OPERATIONS.keys() | WITH_GRAPHS.keys() | {"Constant"}


# ---- What cannot be read ----


def _refuse_operations(graph: Any, name: str) -> None:
    found = list(_nodes(graph))
    foreign = {n.domain: n.op_type for n in found if n.domain not in DOMAINS}
    if foreign:
        named = ", ".join(f"'{domain}.{kind}'" for domain, kind in foreign.items())
        message = f"'{name}' has operations that are not standard ONNX: {named}"
        raise UnsupportedError(message)
    kinds = dict.fromkeys(node.op_type for node in found)
    missing = ", ".join(f"'{kind}'" for kind in kinds if kind not in _KNOWN)
    if missing:
        message = f"'{name}' has unsupported operations: {missing}"
        raise UnsupportedError(message)


def _nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a graph, and of the graphs in it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


# ---- The graph ----


class _ModelGraph:
    """A model, and what is made of it."""

    def __init__(
        self,
        model: Any,
        value: Callable[[Any], Array],
        wanted: Wanted,
        name: str,
    ) -> None:
        self.value = value
        graph = self.graph = model.graph
        (version,) = (o.version for o in model.opset_import if o.domain in DOMAINS)
        infos = () if any(wanted) else (*graph.value_info, *graph.output)
        shapes = {v.name: s for v in infos if (s := _shape(v.type)) is not None}
        self.reading = NodeReading(name, model.opset_import, version, shapes)
        self.stored = {i.name: i for i in graph.initializer}
        self.inputs = [v for v in graph.input if v.name not in self.stored]
        self.shapes = _input_shapes(self.inputs, wanted)

    def model(self) -> Model:
        """The graph, and its data."""
        graph, reading = self.graph, self.reading
        found = warnings(graph, self.value)
        known: dict[str, Any] = {n: self._value(i) for n, i in self.stored.items()}
        inputs = [self._input(value) for value in self.inputs]
        known |= {v.name: x for v, x in zip(self.inputs, inputs, strict=True)}
        nodes = with_idioms(list(graph.node), self._numbers())
        del graph.node[:]
        graph.node.extend(nodes)
        del graph.initializer[:]
        reading.read = {name for node in _nodes(graph) for name in node.input}
        reading.read |= {value.name for value in graph.output}
        self._refuse_lost(known)
        try:
            values = reading.run(graph, known)
        except NoValueError:
            values = []
        if reading.problems:
            raise UnsupportedError.collect(reading.problems)
        names = [value.name for value in graph.output]
        outputs = [self._output(*pair) for pair in zip(names, values, strict=True)]
        reading.warnings += found
        made = reading.graph_of(graph.name or "graph", inputs, outputs)
        made = declare_as_read(put_inputs_first(made), readers=_OF_ROWS)
        return Model(made, reading.data_of(made), self._in_file(made))

    def _in_file(self, graph: Graph) -> InFile:
        """How the inputs, outputs and variables of the graph appear in the file."""
        names = {n: old for n, old in self.reading.called.items() if n in graph.tensors}
        shapes = {
            name: shape
            for name, label in graph.labels.items()
            if (shape := self.reading.data[label].shape) != graph.tensors[name].shape
        }
        return InFile(names, shapes)

    def _refuse_lost(self, known: Container[str]) -> None:
        made = {name for node in self.graph.node for name in node.output}
        read = [name for node in self.graph.node for name in node.input]
        read += [value.name for value in self.graph.output]
        for name in filter(None, read):
            if name not in made and name not in known:
                message = f"'{self.reading.name}' reads '{name}', which nothing makes"
                raise UnsupportedError(message)

    def _numbers(self) -> dict[str, Array]:
        """The constants without axes, by name."""
        found = {n: self.value(i) for n, i in self.stored.items() if not i.dims}
        for node in self.graph.node:
            if node.op_type == "Constant" and _is_tensor(node):
                tensor = node.attribute[0].t
                if not tensor.dims:
                    found[node.output[0]] = to_array(tensor)
        return found

    def _value(self, initializer: Any) -> Any:
        """The value of an initializer: what may be a parameter is a variable."""

        kind = tensor_dtype_to_np_dtype(initializer.data_type)
        if kind.kind in "iub" or not initializer.dims:
            return self.value(initializer)
        stored = self.reading.stored
        return Later(lambda: stored(initializer.name, self.value(initializer)))

    def _input(self, value: Any) -> Tensor:
        reading, kind = self.reading, value.type.tensor_type
        name = reading.fresh(value.name)
        dtype = DATA_TYPES.get(kind.elem_type)
        if dtype is None:
            raise UnsupportedError(f"the input '{value.name}' has no data type of NNEF")
        shape = list(self.shapes[value.name])
        return reading.emitter.emit_named(name, "external", dtype, shape=shape)

    def _output(self, name: str, value: Any) -> Tensor:
        """A result under its name: an output is no input, and is returned once."""
        reading = self.reading
        if isinstance(value, list):
            message = f"the output '{name}' is a sequence: return its tensors"
            raise UnsupportedError(
                f"cannot convert '{reading.name}' to NNEF: {message}"
            )
        return reading.returned(value, reading.fresh(name))


def _shape(kind: Any) -> tuple[int, ...] | None:
    """The shape of an ONNX type, if it is completely known."""
    tensor = kind.tensor_type
    is_known = all(extent.HasField("dim_value") for extent in tensor.shape.dim)
    if not tensor.HasField("shape") or not is_known:
        return None
    return tuple(extent.dim_value for extent in tensor.shape.dim)


def _is_tensor(constant: Any) -> bool:
    """Whether a constant is given as a tensor; that of a definition may have no value."""
    return [attribute.name for attribute in constant.attribute] == ["value"]


# ---- The extents of inputs, of which a file may leave some open ----


def _input_shapes(inputs: Sequence[Any], wanted: Wanted) -> dict[str, Shape]:
    """The shape of each input, by name. What the file leaves open, and nobody gives, is a
    symbol, called as in the file.

    Raises:
        UsageError: there is no such input or symbol, or a rank is another one.
    """
    _refuse_unknown("input", wanted.shapes, [value.name for value in inputs])
    supply, named = NameSupply(), dict[str, str]()

    def extent(value: Any, axis: int, dimension: Any) -> Any:
        if dimension.HasField("dim_value") and dimension.dim_value >= 0:
            return int(dimension.dim_value)
        word = dimension.dim_param or f"{value.name}_{axis}"
        if word not in named:
            named[word] = supply.fresh(valid_name(word))
        return wanted.symbols.get(named[word], symbol(named[word]))

    found = {}
    for value in inputs:
        own = enumerate(value.type.tensor_type.shape.dim)
        shape: Shape = tuple(extent(value, *dimension) for dimension in own)
        if wanted.batch is not None and shape:
            shape = (wanted.batch, *shape[1:])
        found[value.name] = _given(value.name, shape, wanted.shapes)
    _refuse_unknown("symbol", wanted.symbols, [*named.values()])
    return found


def _refuse_unknown(
    kind: str, given: Mapping[str, object], known: Sequence[str]
) -> None:
    for name in given:
        if name not in known:
            names = ", ".join(map(repr, known))
            there = f"the {kind}s are {names}" if known else f"there are no {kind}s"
            message = f"there is no {kind} '{name}'{suggestion(name, list(known))}"
            raise UsageError(f"{message}; {there}")


def _given(name: str, shape: Shape, given: Mapping[str, Sequence[int]]) -> Shape:
    """The shape that is given for an input, or its own."""
    if name not in given:
        return shape
    wanted = tuple(given[name])
    if len(shape) != len(wanted):
        ranks = f"has the rank {len(shape)}, and {list(wanted)} is given"
        raise UsageError(f"the input '{name}' {ranks}")
    return wanted
