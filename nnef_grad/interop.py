"""Graphs of the Khronos tools, for converters: nnef.Graph and nnef_tools.model.Graph;
and ONNX files, by the converters of nnef_tools. What these have wrong, or do not have,
stands in tables here.

    graph, data = interop.from_nnef_tools(converted)
    backward = nnef_grad.differentiate(graph)
    result = interop.to_nnef_tools(backward.graph, data)

Data are the values of variables, by label: arrays are handed on, and not copied. What
comes from outside goes through its text, so that it is checked as any document is.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import nnef
import numpy as np
import numpy.typing as npt
from nnef_tools import model as tools

from nnef_grad.binding import thaw
from nnef_grad.errors import NnefGradError, Problem, UnsupportedError, UsageError
from nnef_grad.files import PathLike, reading, settle, unfinished_file, writing
from nnef_grad.ir import Graph, Operand, Operation, Tensor, tensors
from nnef_grad.library import Library, standard, with_fragments
from nnef_grad.model import Shapes, loads
from nnef_grad.names import NameSupply
from nnef_grad.parser import parse_fragments
from nnef_grad.source import Source
from nnef_grad.targets import lower

Array = npt.NDArray[Any]
Data = Mapping[str, Array]

# Of single precision.
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


def from_nnef(graph: Any) -> Model:
    """A flat graph from a `nnef.Graph`, as `nnef.load_graph` and `parse_string` make it.

    Raises:
        NnefGradError: it is no valid graph.
    """
    return _from_nnef(graph, "")


def _from_nnef(graph: Any, fragments: str) -> Model:
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
        t.name: nnef.Tensor(t.name, t.dtype, list(t.shape), array, _quantized(graph, t))
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
            for name, value in operation.attributes.items()
        ),
        _named(definition.operands, operation.operands),
        _named(definition.results, operation.results),
        operation.dtype if definition.generic is not None else None,
    )


def _named(
    parameters: Iterable[Any], values: Iterable[Operand]
) -> OrderedDict[str, Any]:
    return OrderedDict((p.name, _identifiers(v)) for p, v in zip(parameters, values))


def _identifiers(value: Operand) -> Any:
    if isinstance(value, tuple):
        return [_identifiers(item) for item in value]
    return nnef.Identifier(value.name) if isinstance(value, Tensor) else value


# ---- nnef_tools.model.Graph ----


def from_nnef_tools(graph: Any) -> Model:
    """A flat graph from a `nnef_tools.model.Graph` of NNEF operations, as the readers and
    converters of nnef_tools make it.

    Raises:
        NnefGradError: it is no valid graph, or has operations that are not of NNEF.
    """
    return _from_nnef_tools(graph, "")


def _from_nnef_tools(graph: Any, fragments: str) -> Model:
    source = Source("<fragments>", fragments)
    library = with_fragments(parse_fragments(source) if fragments else ())
    unnamed = [op.type for op in graph.operations if op.type not in library]
    if unnamed:
        raise UsageError(f"'{unnamed[0]}' is no standard operation of NNEF")
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
    return _from_nnef(made, fragments)


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
            quant=_quantized(graph, t),
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


def _parameters(declared: Iterable[Any], values: Any) -> OrderedDict[str, Any]:
    """Tensors by the names of the parameters; what is no tuple is one parameter."""
    items = values if isinstance(values, tuple) else [list(values)]
    return OrderedDict((p.name, _reference(value)) for p, value in zip(declared, items))


def _reference(value: Any) -> Any:
    """The name of a tensor, or the number that it is."""
    if isinstance(value, (list, tuple)):
        return [_reference(item) for item in value]
    if value.producer is None:
        return _finite(np.asarray(value.data).item())
    return nnef.Identifier(value.name)


def _finite(number: Any) -> Any:
    """NNEF writes no infinite numbers; masks are made of them, and of the largest."""
    if not isinstance(number, float) or number != number:
        return number
    return min(max(number, -_LARGEST), _LARGEST)


def _tools_attributes(operation: Operation, made: Mapping[str, Any]) -> dict[str, Any]:
    declared = {p.name: p.type for p in operation.definition.attributes}
    attributes = {
        name: thaw(declared[name], value)
        for name, value in operation.attributes.items()
    }
    for name in ("stride", "dilation"):
        if attributes.get(name) == []:
            attributes[name] = [1] * _axes(operation)
    if operation.definition.generic is not None:
        attributes["dtype"] = made[next(operation.outputs).name].dtype
    return attributes


def _axes(operation: Operation) -> int:
    """How many axes the windows of an operation have; the converters want an item for
    each.
    """
    if operation.name == "slice":
        axes: Any = operation.attributes["axes"]
        return len(axes)
    rank = next(operation.inputs).rank
    return rank - 2 if operation.name.endswith("conv") else rank


def _tools_values(graph: Any, values: Any, made: Mapping[str, Any]) -> Any:
    """A tuple of tensors; a list, where the one parameter is an array."""
    if len(values) == 1 and isinstance(values[0], tuple):
        return [made[t.name] for t in tensors(values)]
    return tuple(
        made[v.name] if isinstance(v, Tensor) else _constant(graph, v) for v in values
    )


def _constant(graph: Any, value: Any) -> Any:
    """A number is a tensor that nothing produces."""
    dtype = np.float32 if isinstance(value, float) else None
    array = np.array(value, dtype)
    return tools.Tensor(graph, shape=(), dtype=array.dtype.type, data=array)


# ---- ONNX files ----


def from_onnx(path: PathLike, *, input_shapes: Shapes | None = None) -> Model:
    """The graph of an ONNX file. Inputs and outputs have the names of the file, in
    characters that NNEF has; so have the variables, and their labels are those names.

    Needs the package `onnx`. What the file computes from shapes and constants alone is
    computed here. Initializers without axes become numbers of the graph, which have no
    gradients.

    Args:
        path: the file.
        input_shapes: shapes of inputs, by the names of the file, for those that it
            leaves open; others are as in the file.

    Raises:
        UsageError: the file cannot be read, or shapes are missing or do not fit.
        UnsupportedError: nnef_tools does not convert an operation.
    """
    model = _read_onnx(path)
    _set_shapes(model.graph, input_shapes or {})
    model = _folded(model)
    _refuse_unknown(model, os.fspath(path))
    with _refused(f"nnef_tools cannot convert '{os.fspath(path)}' to NNEF"):
        converted = _converted(model)
        return _from_nnef_tools(converted, _fragments(converted))


def to_onnx(graph: Graph, path: PathLike, data: Data | None = None) -> None:
    """Writes a graph to an ONNX file, in the form that ONNX Runtime computes rightly.
    The file appears whole or not at all.

    Needs the package `onnx`.

    Raises:
        UnsupportedError: ONNX, or the converter, does not have an operation.
        UsageError: the data of a variable are missing, or do not fit.
    """
    onnx = _onnx()
    from nnef_tools.conversion.nnef_to_onnx import Converter
    from nnef_tools.io.onnx import Writer

    lowered = lower(graph, "onnx")
    given = {**(data or {}), **lowered.data}
    _refuse_missing(lowered.graph, given)
    place = Path(path)
    with writing(path), unfinished_file(place) as draft:
        with _refused(f"nnef_tools cannot convert '{graph.name}' to ONNX"):
            source = to_nnef_tools(lowered.graph, _in_single_precision(given))
            Writer()(Converter()(source), os.fspath(draft))
        model = onnx.load(draft)
        _declare_as_constants(model.graph)
        onnx.save(model, draft)
        settle(draft, place)


def _onnx() -> Any:
    """The package, which nnef_tools does not bring along."""
    try:
        return import_module("onnx")
    except ImportError:
        message = "ONNX files want the package onnx: pip install nnef-grad[onnx]"
        raise UsageError(message) from None


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """What nnef_tools does not do it says by many kinds of exceptions. What is wrong
    with the graph that it makes is its doing, and told as found there.
    """
    try:
        yield
    except (UsageError, UnsupportedError):
        raise
    except NnefGradError as error:
        first = Problem(f"{what}: what it makes is no valid graph")
        raise UnsupportedError.collect([first, *error.problems]) from None
    except Exception as error:
        raise UnsupportedError(f"{what}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """What nnef_tools says, in one line."""
    lines = [
        line.strip() for line in str(error).splitlines() if not _HEADING.match(line)
    ]
    return "; ".join(filter(None, lines)) or type(error).__name__


def _refuse_missing(graph: Graph, data: Data) -> None:
    there = {label.lower() for label in data}
    missing = [
        str(op.attributes["label"])
        for op in graph.operations
        if op.name == "variable" and str(op.attributes["label"]).lower() not in there
    ]
    if missing:
        named = ", ".join(f"'{label}'" for label in missing)
        raise UsageError(f"there are no data for the variables with the labels {named}")


def _in_single_precision(data: Data) -> dict[str, Array]:
    """ONNX has no operations of mixed types, and inputs are in single precision."""
    arrays = {label: np.asarray(array) for label, array in data.items()}
    return {
        label: array.astype(np.float32, copy=False)
        if array.dtype.kind == "f"
        else array
        for label, array in arrays.items()
    }


def _declare_as_constants(graph: Any) -> None:
    """The writer lists variables among the inputs, which lets a caller replace them and
    keeps a runtime from computing with them ahead.
    """
    variables = {initializer.name for initializer in graph.initializer}
    inputs = [fed for fed in graph.input if fed.name not in variables]
    del graph.input[:]
    graph.input.extend(inputs)


# What stands before what it says, and tells no more.
_HEADING = re.compile(r"Found \d+ operator")


# ---- ONNX: what is done before nnef_tools reads a model ----

# What has more elements is no text that anybody reads.
_MAX_CONSTANT = 10_000

# The operations that ONNX itself has.
_DOMAINS = ("", "ai.onnx")

# What makes something else at every run.
_RANDOM = ("Random", "Bernoulli", "Multinomial", "Dropout")

# What counts only the elements of its operand.
_OF_SHAPES = ("Shape", "Size")

# What onnx does not infer the shapes of in all versions: they are those of operands.
_SHAPED_AS_INPUT = ("GroupNormalization", "MeanVarianceNormalization")

# What takes any number of operands in ONNX, and two here.
_PAIRWISE = {"Max": "Max", "Min": "Min", "Sum": "Add", "Mean": "Add"}


def _read_onnx(path: PathLike) -> Any:
    onnx = _onnx()
    name = os.fspath(path)
    with reading(path):
        Path(path).open("rb").close()
        try:
            model = onnx.load_model(name)
        except OSError:
            raise
        except Exception as error:
            # Protocol buffers, and onnx for weights in other files, have their own.
            message = f"'{name}' is no ONNX file that can be read"
            raise UsageError(f"{message}: {_reason(error)}") from None
    if not model.graph.node or not model.opset_import:
        raise UsageError(f"'{name}' is no ONNX file: it holds no graph")
    if model.functions:
        model = import_module("onnx.inliner").inline_local_functions(model)
    foreign = {
        n.domain: n.op_type for n in model.graph.node if n.domain not in _DOMAINS
    }
    if foreign:
        named = ", ".join(f"'{domain}.{kind}'" for domain, kind in foreign.items())
        raise UnsupportedError(f"'{name}' has operations that are not of ONNX: {named}")
    return model


def _set_shapes(graph: Any, shapes: Shapes) -> None:
    """Gives inputs the shapes that are asked for. What the file says of other tensors
    may not hold then, and is inferred anew.
    """
    variables = {initializer.name for initializer in graph.initializer}
    fed = {v.name: v.type.tensor_type for v in graph.input if v.name not in variables}
    for name, shape in shapes.items():
        if name not in fed:
            names = ", ".join(map(repr, fed))
            raise UsageError(f"there is no input '{name}'; the inputs are {names}")
        declared = fed[name].shape.dim
        if len(declared) != len(shape):
            given = f"and {list(shape)} is given"
            message = f"the input '{name}' has the rank {len(declared)}, {given}"
            raise UsageError(message)
        for extent, wanted in zip(declared, shape):
            extent.dim_value = wanted
    for name, kind in fed.items():
        if not all(extent.HasField("dim_value") for extent in kind.shape.dim):
            shown = [e.dim_value or e.dim_param or "?" for e in kind.shape.dim]
            message = f"the input '{name}' has the shape {shown}, which is left open"
            raise UsageError(f"{message}: give the extents in input_shapes")
    if shapes:
        del graph.value_info[:]
        for result in graph.output:
            result.type.tensor_type.ClearField("shape")
    for result in graph.output:
        if result.name in fed:
            result.type.tensor_type.CopyFrom(fed[result.name])


def _refuse_unknown(model: Any, name: str) -> None:
    """Refuses operations that nnef_tools does not have, and unknown shapes."""
    from nnef_tools.conversion.onnx_to_nnef import _Transforms

    kinds = dict.fromkeys(node.op_type for node in model.graph.node)
    missing = [kind for kind in kinds if kind not in {*_Transforms, *_TRANSFORMS}]
    if missing:
        named = ", ".join(f"'{kind}'" for kind in missing)
        message = f"nnef_tools cannot convert '{name}' to NNEF"
        raise UnsupportedError(
            f"{message}: it does not have the ONNX operations {named}"
        )
    graph = model.graph
    told = (*graph.value_info, *graph.output)
    known = {v.name for v in told if _shape_in(v) is not None}
    used = {v.name for v in graph.output}.union(*(n.input for n in graph.node))
    unknown = [n.op_type for n in graph.node if used.intersection(n.output) - known]
    if unknown:
        named = ", ".join(f"'{kind}'" for kind in dict.fromkeys(unknown))
        message = f"'{name}' has shapes that are not known before it is run"
        why = "".join(f"; {reason}" for reason in _shape_problems(model))
        raise UnsupportedError(
            f"{message}, of what these operations make: {named}{why}"
        )


def _shape_problems(model: Any) -> list[str]:
    """What onnx finds wrong with a model whose shapes it does not know."""
    try:
        import_module("onnx.shape_inference").infer_shapes(model, strict_mode=True)
    except Exception as error:
        return [_reason(error)]
    return []


def _folded(model: Any) -> Any:
    """The model with shapes everywhere, and constants in place of what follows from
    shapes and constants: exporters compute with shapes, which are numbers here.
    """
    inference = import_module("onnx.shape_inference")
    _make_pairwise(model.graph)
    is_changed = True
    while is_changed:
        model = inference.infer_shapes(model, data_prop=True)
        is_changed = _fold(model) or _fill_in_shapes(model.graph)
    return model


def _fill_in_shapes(graph: Any) -> bool:
    """Tells shapes that onnx does not infer, and says whether there was one."""
    told = {v.name: v for v in (*graph.input, *graph.value_info, *graph.output)}
    for node in graph.node:
        given = told.get(node.input[0]) if node.op_type in _SHAPED_AS_INPUT else None
        result = node.output[0]
        if given is None or _shape_in(given) is None:
            continue
        if result not in told:
            told[result] = graph.value_info.add(name=result)
        if _shape_in(told[result]) is None:
            told[result].type.CopyFrom(given.type)
            return True
    return False


def _make_pairwise(graph: Any) -> None:
    nodes = (
        _in_pairs(node) if node.op_type in _PAIRWISE else [node] for node in graph.node
    )
    _replace(graph.node, chain.from_iterable(nodes))


def _in_pairs(node: Any) -> Iterator[Any]:
    helper = import_module("onnx.helper")
    result, count = node.output[0], len(node.input)
    value, *rest = node.input
    for number, operand in enumerate(rest, 2):
        pair, value = [value, operand], f"{result}_of_{number}"
        yield helper.make_node(_PAIRWISE[node.op_type], pair, [value])
    if node.op_type == "Mean":
        yield _constant_node(f"{result}_count", np.array(count, np.float32))
        yield helper.make_node("Div", [value, f"{result}_count"], [result])
    else:
        yield helper.make_node("Identity", [value], [result])


def _fold(model: Any) -> bool:
    """Folds once, and says whether there was something. The values of parameters are
    not folded: what depends on them has a gradient.
    """
    arrays = import_module("onnx.numpy_helper")
    graph = model.graph
    dtype_of = import_module("onnx.helper").tensor_dtype_to_np_dtype
    known = {
        i.name: arrays.to_array(i)
        for i in graph.initializer
        if dtype_of(i.data_type).kind in "iub"
    }
    shapes = {v.name: _shape_in(v) for v in (*graph.input, *graph.value_info)}
    nodes: list[Any] = []
    is_changed = False
    for node in graph.node:
        values = _values_of(node, known, shapes, model.opset_import)
        if node.op_type == "If" and node.input[0] in known:
            nodes += _branch(node, bool(known[node.input[0]]))
        elif values is None:
            nodes.append(node)
        else:
            known.update(zip(node.output, values))
            nodes += [_constant_node(*pair) for pair in zip(node.output, values)]
        is_changed |= nodes[-1] is not node and node.op_type != "Constant"
    _replace(graph.node, nodes)
    return is_changed


def _values_of(
    node: Any,
    known: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...] | None],
    opsets: Any,
) -> list[Array] | None:
    """What a node makes, where that is known before the model is run."""
    feeds = {name: known.get(name) for name in node.input if name}
    shape = shapes.get(node.input[0]) if node.op_type in _OF_SHAPES else None
    if shape is not None:
        # No memory is taken for the elements.
        feeds = {node.input[0]: np.broadcast_to(np.float32(0), shape)}
    is_known = all(array is not None for array in feeds.values())
    is_known = is_known and not node.op_type.startswith(_RANDOM)
    if not is_known or not (feeds or node.op_type == "Constant"):
        return None
    helper = import_module("onnx.helper")
    evaluator = import_module("onnx.reference").ReferenceEvaluator
    fed = [helper.make_tensor_value_info(name, 0, None) for name in feeds]
    made = [helper.make_tensor_value_info(name, 0, None) for name in node.output]
    model = helper.make_model(
        helper.make_graph([node], "node", fed, made), opset_imports=opsets
    )
    try:
        return list(map(np.asarray, evaluator(model).run(None, feeds)))
    except Exception:
        # Then it stays as it is, and the converter says whether it has the operation.
        return None


def _branch(node: Any, is_true: bool) -> list[Any]:
    """The nodes of the branch of an `If` that is taken."""
    helper = import_module("onnx.helper")
    wanted = "then_branch" if is_true else "else_branch"
    (branch,) = (a.g for a in node.attribute if a.name == wanted)
    data = [
        helper.make_node("Constant", [], [i.name], value=i) for i in branch.initializer
    ]
    results = [
        helper.make_node("Identity", [inner.name], [outer])
        for inner, outer in zip(branch.output, node.output)
    ]
    return [*data, *branch.node, *results]


def _constant_node(name: str, value: Array) -> Any:
    helper = import_module("onnx.helper")
    tensor = import_module("onnx.numpy_helper").from_array(value, name)
    return helper.make_node("Constant", [], [name], value=tensor)


def _shape_in(info: Any) -> tuple[int, ...] | None:
    """The shape that a file gives a tensor, if it is known in full."""
    kind = info.type.tensor_type
    extents = kind.shape.dim
    if not kind.HasField("shape") or not all(e.HasField("dim_value") for e in extents):
        return None
    return tuple(extent.dim_value for extent in extents)


def _replace(field: Any, items: Iterable[Any]) -> None:
    """Other items in a repeated field."""
    kept = list(items)
    del field[:]
    field.extend(kept)


# ---- ONNX: what nnef_tools converts otherwise than it should ----


def _converted(model: Any) -> Any:
    """The `nnef_tools.model.Graph` of an ONNX model whose shapes are all known."""
    from nnef_tools.conversion.converter import Transform
    from nnef_tools.conversion.onnx_to_nnef import Converter
    from nnef_tools.io.onnx.reader import onnx_model_to_graph
    from nnef_tools.optimization.nnef_optimizer import Optimizer as NnefOptimizer
    from nnef_tools.optimization.onnx_optimizer import Optimizer as OnnxOptimizer

    source = OnnxOptimizer()(onnx_model_to_graph(model), only_required=True)
    source.sort()
    (version,) = (o.version for o in model.opset_import if o.domain in _DOMAINS)
    for operation in source.operations:
        operation.attribs["_opset"] = version
    named = {t.name: t.data for t in source.tensors if isinstance(t.data, np.ndarray)}
    transforms = Converter.unpack_transforms(
        {name: Transform(**fields) for name, fields in _TRANSFORMS.items()}
    )
    converter = Converter(
        keep_io_names=True, custom_transforms=transforms, custom_functions=_FUNCTIONS
    )
    converted = NnefOptimizer()(converter(source), only_required=True)
    if len(converted.outputs) < len(source.outputs):
        raise ValueError("an output is what the file holds, and not computed")
    _make_constants(converted, named)
    _name_variables(converted, named)
    _make_names_valid(converted)
    return converted


def _make_constants(graph: Any, named: Mapping[str, Array]) -> None:
    """What is of integers or truth values is constant, and so is what is of one value
    throughout and no initializer of the file: nnef_tools makes variables of them.
    Nobody trains them, and not all runtimes have variables of integers.
    """
    for operation in graph.operations:
        array = operation.output.data if operation.type == "variable" else None
        if array is None or array.size == 0:
            continue
        is_named = any(np.shares_memory(array, data) for data in named.values())
        is_uniform = not is_named and bool((array == array.flat[0]).all())
        if is_uniform or (array.dtype.kind != "f" and array.size <= _MAX_CONSTANT):
            operation.type = "constant"
            del operation.attribs["label"]
            values = array.reshape(-1)[: 1 if is_uniform else None].tolist()
            operation.attribs["value"] = list(map(_finite, values))


def _name_variables(graph: Any, named: Mapping[str, Array]) -> None:
    """Gives variables the names that their data have, where these are the same data.
    Their labels are those names, as far as they can be names of files.
    """
    labels = NameSupply()
    for operation in graph.operations:
        if operation.type == "variable":
            tensor = operation.output
            same = (n for n, a in named.items() if np.shares_memory(a, tensor.data))
            for name in islice(same, 1):
                tensor.name = name
                operation.attribs["label"] = _label(name)
            # Upper and lower case are one file.
            label = operation.attribs["label"]
            suffix = labels.fresh(label.lower())[len(label) :]
            operation.attribs["label"] = f"{label}{suffix}"


def _label(name: str) -> str:
    """A path that stays in the folder of a model."""
    steps = re.sub(r"[^\w./-]+", "_", name, flags=re.ASCII).split("/")
    return "/".join(step for step in steps if step.strip(".")) or "variable"


def _make_names_valid(graph: Any) -> None:
    """Names of NNEF are made of letters, digits and underscores."""
    supply = NameSupply()
    for tensor in graph.tensors:
        if tensor.name is not None:
            name = re.sub(r"\W+", "_", tensor.name, flags=re.ASCII)
            tensor.name = supply.fresh(f"_{name}" if name[:1].isdigit() else name)


def _fragments(graph: Any) -> str:
    """The fragments that a graph uses, if it uses any."""
    from nnef_tools.conversion.onnx_to_nnef import Converter

    used = {op.type for op in graph.operations}.difference(standard())
    theirs = Converter.defined_operations()
    found = [theirs[name] for name in theirs if name in used & _THEIRS]
    return "".join([_FRAGMENTS, *found]) if used else ""


def _reduced(converter: Any, axes: Any, inputs: Any, keeps_all: bool) -> list[int]:
    """The axes of a reduction: an attribute, in later versions an operand, or all."""
    rank = inputs[0].rank
    if axes is None and len(inputs) > 1 and inputs[1].name:
        axes = converter.as_const(inputs[1])
    if not axes and not keeps_all:
        axes = range(rank)
    return [axis % rank for axis in axes or ()]


def _items(converter: Any, inputs: Any, place: int, otherwise: Any) -> Any:
    """An operand that is a list of numbers, or what stands for it if it is missing."""
    if len(inputs) <= place or not inputs[place].name:
        return otherwise
    return converter.as_const(inputs[place])


def _bound(converter: Any, inputs: Any, place: int, otherwise: Any) -> Any:
    """An operand that is a number, or what stands for it if it is missing."""
    if len(inputs) > place and inputs[place].name:
        return inputs[place]
    if otherwise is None:
        return None
    return converter.as_tensor(float(otherwise), np.float32, inline=True)


def _counted_from_zero(converter: Any, indices: Any, extent: int) -> Any:
    """Indices from zero on. In ONNX, negative ones count from the end."""
    if not converter._is_constant(converter._tensor_map[indices]):
        return indices
    array = np.asarray(converter.as_const(indices), np.int64).reshape(indices.shape)
    if not (array < 0).any():
        return indices
    return converter.as_tensor(
        np.where(array < 0, array + extent, array), np.int64, inline=array.ndim == 0
    )


def _of_rank(converter: Any, tensor: Any, rank: int) -> Any:
    """A tensor with axes of extent 1 in front."""
    return converter.unsqueeze_input(tensor, axes=list(range(rank - tensor.rank)))


def _paddings(
    converter: Any, pads: Sequence[int], axes: Any, rank: int
) -> list[tuple[int, int]]:
    """Pads by axis: in ONNX, first the ones before all axes, then the ones behind."""
    places = [axis % rank for axis in axes] if axes else range(rank)
    given = dict(zip(places, zip(pads, pads[len(pads) // 2 :])))
    return [given.get(axis, (0, 0)) for axis in range(rank)]


def _given(converter: Any, tensors: Any, place: int) -> bool:
    """Whether an optional operand, or result, is there."""
    return len(tensors) > place and bool(tensors[place].name)


def _or_zeros(converter: Any, inputs: Any, place: int, *shape: int) -> Any:
    if _given(converter, inputs, place):
        return inputs[place]
    return converter.as_tensor(np.zeros(shape, np.float32), np.float32)


def _or_unused(converter: Any, outputs: Any, place: int, *shape: int) -> Any:
    if _given(converter, outputs, place):
        return outputs[place]
    return converter.new_tensor(shape, np.float32)


def _slices(
    converter: Any,
    shape: Sequence[int],
    axes: Sequence[int],
    *bounds: Sequence[int],
) -> list[tuple[int, int]]:
    """Where slices begin and end: ONNX lets both lie outside."""
    found = [slice(*each).indices(shape[axis]) for axis, *each in zip(axes, *bounds)]
    # What goes down to the first element ends before it, where no position is.
    return [(begin, end if end >= 0 else -_FAR) for begin, end, _ in found]


def _in_scalars(converter: Any, tensor: Any) -> Any:
    """A constant of integers as one of scalars: ONNX has powers of mixed types."""
    is_known = converter._is_constant(converter._tensor_map[tensor])
    if not is_known or np.dtype(tensor.dtype).kind not in "iu":
        return tensor
    array = np.asarray(converter.as_const(tensor), np.float32).reshape(tensor.shape)
    return converter.as_tensor(array, np.float32, inline=array.ndim == 0)


def _window_paddings(
    converter: Any,
    inputs: Any,
    outputs: Any,
    window: tuple[Sequence[int], Sequence[int], Sequence[int]],
    pads: Sequence[int],
    is_apart: bool,
) -> list[tuple[int, int]]:
    """The padding of a pool whose size is rounded up, which takes more of it at the
    end; only that, where the pads themselves stand apart.
    """
    extents = zip(inputs[0].shape[2:], outputs[0].shape[2:], *window)
    found = [(0, 0), (0, 0)]
    given = zip(pads, pads[len(pads) // 2 :])
    for (before, behind), (n, made, size, stride, step) in zip(given, extents):
        # A last window that begins behind the end is none.
        made -= (made - 1) * stride >= n + before
        reach = (made - 1) * stride + (size - 1) * step + 1
        more = max(0, reach - n - before - behind)
        found.append((0, more) if is_apart else (before, behind + more))
    return found


def _same_paddings(
    converter: Any,
    inputs: Any,
    outputs: Any,
    window: tuple[Sequence[int], Sequence[int], Sequence[int]],
    is_lower: bool,
) -> list[tuple[int, int]]:
    """The padding that makes a size that only the strides divide; what is odd of it
    goes to the end, or to the beginning.
    """
    extents = zip(inputs[0].shape[2:], outputs[0].shape[2:], *window)
    return [
        _halves(max(0, (made - 1) * stride + (size - 1) * step + 1 - n), is_lower)
        for n, made, size, stride, step in extents
    ]


def _transposed_paddings(
    converter: Any,
    inputs: Any,
    outputs: Any,
    window: tuple[Sequence[int], Sequence[int], Sequence[int]],
    pads: Sequence[int],
    auto_pad: str,
    is_given: bool,
) -> list[tuple[int, int]]:
    """The padding of a transposed convolution that leaves what it is to make: that says
    what there is of output padding too.
    """
    extents = zip(inputs[0].shape[2:], outputs[0].shape[2:], *window)
    totals = [
        (n - 1) * stride + (size - 1) * step + 1 - made
        for n, made, size, stride, step in extents
    ]
    if is_given or auto_pad.startswith("SAME"):
        return [_halves(total, auto_pad != "SAME_UPPER") for total in totals]
    return [(before, total - before) for before, total in zip(pads, totals)]


def _halves(total: int, is_lower: bool) -> tuple[int, int]:
    less, more = total // 2, total - total // 2
    return (more, less) if is_lower else (less, more)


def _zeros_around(converter: Any, tensor: Any, pads: Sequence[int]) -> Any:
    """A tensor between the zeros that its padding stands for."""
    half = len(pads) // 2
    padding = [(0, 0), (0, 0), *zip(pads[:half], pads[half:])]
    shape = tuple(n + sum(pair) for n, pair in zip(tensor.shape, padding))
    padded = tools.Tensor(tensor.graph, dtype=tensor.dtype, shape=shape)
    attributes = {"padding": padding, "border": "constant", "value": 0.0}
    tools.Operation(
        tensor.graph, type="pad", inputs=tensor, outputs=padded, attribs=attributes
    )
    return padded


def _repeats_nearest(
    converter: Any, inputs: Any, outputs: Any, mode: str, nearest: str
) -> bool:
    """Whether a resize takes the elements that NNEF takes: each so many times, or the
    first of each block.
    """
    return all(
        _nearest(n, made, mode, nearest)
        == [i // (made // n) if made >= n else i * (n // made) for i in range(made)]
        for n, made in zip(inputs[0].shape, outputs[0].shape)
    )


def _nearest(n: int, made: int, mode: str, nearest: str) -> list[int]:
    places = np.arange(made) * (n / made)
    if mode.endswith("half_pixel"):
        places += 0.5 * n / made - 0.5
    if mode == "align_corners":
        places = np.arange(made) * ((n - 1) / max(made - 1, 1))
    rounded = {
        "floor": np.floor(places),
        "ceil": np.ceil(places),
        "round_prefer_floor": np.ceil(places - 0.5),
        "round_prefer_ceil": np.floor(places + 0.5),
    }
    found: list[int] = np.clip(rounded[nearest], 0, n - 1).astype(int).tolist()
    return found


# Farther than any position.
_FAR = 2**31 - 1

_FUNCTIONS = {
    "reduced": _reduced,
    "items": _items,
    "bound": _bound,
    "counted_from_zero": _counted_from_zero,
    "of_rank": _of_rank,
    "paddings": _paddings,
    "window_paddings": _window_paddings,
    "zeros_around": _zeros_around,
    "repeats_nearest": _repeats_nearest,
    "same_paddings": _same_paddings,
    "transposed_paddings": _transposed_paddings,
    "slices": _slices,
    "given": _given,
    "or_zeros": _or_zeros,
    "or_unused": _or_unused,
    "in_scalars": _in_scalars,
}


def _unary(name: str, **attributes: Any) -> dict[str, Any]:
    """An operation of one operand; each attribute with its default in ONNX. One that
    NNEF calls otherwise is a pair: its name there, and its default.
    """
    pairs = {k: v if isinstance(v, tuple) else (k, v) for k, v in attributes.items()}
    return {
        "type": name,
        "inputs": "!I[0]",
        "outputs": "!O[0]",
        "defaults": {theirs: default for theirs, (_, default) in pairs.items()},
        "attribs": {ours: f"!float({theirs})" for theirs, (ours, _) in pairs.items()},
    }


def _recurrent(
    name: str, gates: int, states: int, activations: list[str], linear: int = 0
) -> dict[str, Any]:
    """A loop over the first axis, which is unrolled. Behind the operands come the first
    states.
    """
    last = "I[0].shape[1], hidden_size"
    return {
        "type": name,
        "defaults": {
            "direction": "forward",
            "layout": 0,
            "clip": None,
            "activations": None,
            "input_forget": 0,
            "linear_before_reset": 0,
        },
        "cond": {
            '!direction == "forward"': "direction must be forward",
            "!layout == 0": "layout must be 0",
            "!clip is None": "clip must be left out",
            "!input_forget == 0": "input_forget must be 0",
            f"!linear_before_reset == {linear}": f"linear_before_reset is not {linear}",
            f"!activations in (None, {activations})": "activations must be the usual",
            "!not given(I, 4)": "sequences must be of one length",
            "!not given(I, 7)": "peepholes must be left out",
        },
        "inputs": (
            "!I[0]",
            "!I[1]",
            "!I[2]",
            f"!or_zeros(I, 3, 1, {2 * gates} * hidden_size)",
            *(f"!or_zeros(I, {5 + i}, 1, {last})" for i in range(states)),
        ),
        "outputs": (
            f"!or_unused(O, 0, I[0].shape[0], 1, {last})",
            *(f"!or_unused(O, {1 + i}, 1, {last})" for i in range(states)),
        ),
        "attribs": {"steps": "!I[0].shape[0]"},
    }


def _reduction(name: str) -> dict[str, Any]:
    return {
        "type": name,
        "defaults": {"axes": None, "keepdims": 1, "noop_with_empty_axes": 0},
        "using": {"_axes": "!reduced(axes, I, noop_with_empty_axes)"},
        "inputs": "!I[0]",
        "outputs": "!squeeze_output(O[0], _axes, keepdims)",
        "attribs": {"axes": "!_axes"},
    }


_WINDOW_DEFAULTS = {
    "strides": "![1] * (I[0].rank - 2)",
    "dilations": "![1] * (I[0].rank - 2)",
    "pads": "![0, 0] * (I[0].rank - 2)",
    "auto_pad": "NOTSET",
}


def _convolution(name: str, padding: str) -> dict[str, Any]:
    return {
        "type": name,
        "defaults": {**_WINDOW_DEFAULTS, "group": 1, "output_shape": None},
        "using": {"_window": "!(I[1].shape[2:], strides, dilations)"},
        "inputs": (
            "!I[0]",
            "!I[1]",
            "!unsqueeze_vector(I[2]) if len(I) > 2 and I[2].name else None",
        ),
        "outputs": "!O[0]",
        "attribs": {
            "stride": "!strides",
            "dilation": "!dilations",
            "padding": padding,
            "groups": "!group",
        },
    }


def _pool(name: str) -> dict[str, Any]:
    """Zeros that are counted are put around first: those that a size rounded up takes
    besides are not counted.
    """
    return {
        "type": name,
        "defaults": {
            **_WINDOW_DEFAULTS,
            "ceil_mode": 0,
            "storage_order": 0,
            "count_include_pad": 0,
            "p": 2,
        },
        "cond": {
            "!storage_order == 0": "storage_order must be 0",
            "!len(O) == 1 or is_unused(O[1])": "the indices must not be used",
        },
        "using": {
            "_counts": "!ceil_mode == 1 and count_include_pad == 1 and any(pads)",
            "_window": "!(kernel_shape, strides, dilations)",
        },
        "inputs": "!zeros_around(I[0], pads) if _counts else I[0]",
        "outputs": "!O[0]",
        "attribs": {
            "size": "![1, 1] + kernel_shape",
            "stride": "![1, 1] + strides",
            "dilation": "![1, 1] + dilations",
            "padding": "![(0, 0)] * 2 + same_paddings(I, O, _window,"
            ' auto_pad == "SAME_LOWER") if auto_pad.startswith("SAME") else'
            " window_paddings(I, O, _window, pads, _counts) if ceil_mode == 1 else"
            " paddings(pads, range(2, I[0].rank), I[0].rank)",
            "border": '!"constant" if count_include_pad and not ceil_mode else "ignore"',
            "p": '!float(p) if _type_ == "LpPool" else None',
        },
    }


_NORMALIZATION = {
    "type": "layer_normalization",
    "outputs": "!O[0]",
    "cond": {"!len(O) == 1 or all(map(is_unused, O[1:]))": "only Y must be used"},
}
_ZERO, _ONE = (
    f"as_tensor({number}, np.float32, inline=True)" for number in ("0.0", "1.0")
)

# What NNEF calls the points that coincide in interpolation.
_METHODS = {
    "half_pixel": "symmetric",
    "pytorch_half_pixel": "symmetric",
    "asymmetric": "asymmetric",
    "align_corners": "aligned",
}

# By operations of ONNX: in place of what nnef_tools has, where that is wrong or lacks
# settings or versions, and besides. The fields are those of `nnef_tools` transforms.
_TRANSFORMS: dict[str, dict[str, Any]] = {
    "ReduceMin": _reduction("min_reduce"),
    "ReduceMax": _reduction("max_reduce"),
    "ReduceMean": _reduction("mean_reduce"),
    "ReduceSum": _reduction("sum_reduce"),
    "ReduceL1": _reduction("l1_reduce"),
    "ReduceL2": _reduction("l2_reduce"),
    "ReduceSumSquare": _reduction("square_reduce"),
    "ReduceLogSum": _reduction("log_reduce"),
    "ReduceLogSumExp": _reduction("log_sum_exp"),
    "Conv": _convolution(
        "conv",
        '!same_paddings(I, O, _window, auto_pad == "SAME_LOWER")'
        ' if auto_pad.startswith("SAME") else list(zip(pads, pads[len(pads) // 2:]))',
    ),
    "ConvTranspose": _convolution(
        "deconv",
        "!transposed_paddings(I, O, _window, pads, auto_pad, output_shape is not None)",
    ),
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("avg_pool"),
    "LpPool": _pool("lp_pool"),
    "Reciprocal": _unary("rcp"),
    "Erf": _unary("erf"),
    "Softsign": _unary("softsign"),
    "Mish": _unary("mish"),
    "Swish": _unary("swish", alpha=1.0),
    "HardSwish": _unary("hard_swish"),
    "HardSigmoid": _unary("hard_sigmoid", alpha=0.2, beta=0.5),
    "Elu": _unary("elu", alpha=1.0),
    "Celu": _unary("celu", alpha=1.0),
    "Selu": _unary("selu", alpha=1.67326319, gamma=("lambda", 1.05070102)),
    "ThresholdedRelu": _unary("thresholded_relu", alpha=1.0),
    "Gelu": {
        "type": '!"gelu" if approximate == "none" else "gelu_by_tanh"',
        "defaults": {"approximate": "none"},
        "inputs": "!I[0]",
        "outputs": "!O[0]",
    },
    # Before version 13 the axis is the first of all that are summed over.
    **{
        name: {
            "type": kind,
            "defaults": {"axis": None},
            "using": {
                "_given": "!axis if axis is not None else -1 if _opset >= 13 else 1",
                "_axis": "!ensure_positive(_given, I[0].rank)",
            },
            "inputs": "!I[0]",
            "outputs": "!O[0]",
            "attribs": {
                "axes": "![_axis] if _opset >= 13 else list(range(_axis, I[0].rank))"
            },
        }
        for name, kind in {"Softmax": "softmax", "LogSoftmax": "log_softmax"}.items()
    },
    "BatchNormalization": {
        "type": "batch_normalization",
        "defaults": {"epsilon": 1e-5, "training_mode": 0},
        "cond": {"!training_mode == 0": "training_mode must be 0"},
        "inputs": tuple(
            f"!unsqueeze_vector(I[{i}])" if i else "!I[0]" for i in (0, 3, 4, 2, 1)
        ),
        "outputs": "!O[0]",
        "attribs": {"epsilon": "!epsilon"},
    },
    "LayerNormalization": {
        **_NORMALIZATION,
        "defaults": {"axis": -1, "epsilon": 1e-5},
        "inputs": (
            "!I[0]",
            "!broadcast(I[1], I[0].rank)",
            f"!broadcast(I[2], I[0].rank) if len(I) > 2 and I[2].name else {_ZERO}",
        ),
        "attribs": {
            "axes": "!list(range(ensure_positive(axis, I[0].rank), I[0].rank))",
            "epsilon": "!epsilon",
        },
    },
    "RMSNormalization": {
        "type": "rms_normalization",
        "defaults": {"axis": -1, "epsilon": 1e-5},
        "inputs": ("!I[0]", "!broadcast(I[1], I[0].rank)"),
        "outputs": "!O[0]",
        "attribs": {
            "axes": "!list(range(ensure_positive(axis, I[0].rank), I[0].rank))",
            "epsilon": "!epsilon",
        },
    },
    "InstanceNormalization": {
        **_NORMALIZATION,
        "defaults": {"epsilon": 1e-5},
        "inputs": ("!I[0]", "!unsqueeze_vector(I[1])", "!unsqueeze_vector(I[2])"),
        "attribs": {"axes": "!list(range(2, I[0].rank))", "epsilon": "!epsilon"},
    },
    "MeanVarianceNormalization": {
        **_NORMALIZATION,
        "defaults": {"axes": [0, 2, 3]},
        "inputs": ("!I[0]", f"!{_ONE}", f"!{_ZERO}"),
        "attribs": {"axes": "!ensure_positive(axes, I[0].rank)", "epsilon": 0.0},
    },
    "GroupNormalization": {
        "type": "group_normalization",
        "defaults": {"epsilon": 1e-5},
        "cond": {"!_opset >= 21": "the version must be 21 at least"},
        "inputs": ("!I[0]", "!unsqueeze_vector(I[1])", "!unsqueeze_vector(I[2])"),
        "outputs": "!O[0]",
        "attribs": {
            "groups": "!num_groups",
            "shape": "![0] + list(I[0].shape[1:])",
            "epsilon": "!epsilon",
        },
    },
    "LSTM": _recurrent("lstm", 4, 2, ["Sigmoid", "Tanh", "Tanh"]),
    "GRU": _recurrent("gru", 3, 1, ["Sigmoid", "Tanh"], linear=1),
    "RNN": _recurrent("rnn", 1, 1, ["Tanh"]),
    "Dropout": {
        "type": "copy",
        "cond": {
            "!len(I) < 3 or not I[2].name or not as_const(I[2])": "it must not train",
            "!len(O) == 1 or is_unused(O[1])": "the mask must not be used",
        },
        "inputs": "!I[0]",
        "outputs": "!O[0]",
    },
    "Clip": {
        "type": '!"clamp" if _low and _high else "max" if _low else'
        ' "min" if _high else "copy"',
        "defaults": {"min": None, "max": None},
        "using": {
            "_low": "!bound(I, 1, min) is not None",
            "_high": "!bound(I, 2, max) is not None",
        },
        "inputs": ("!I[0]", "!bound(I, 1, min)", "!bound(I, 2, max)"),
        "outputs": "!O[0]",
    },
    # A vector is a row in front, and a column behind.
    "MatMul": {
        "type": "matmul",
        "using": {
            "_rank": "!max(2, I[0].rank, I[1].rank)",
            "_row": "!I[0].rank == 1",
            "_column": "!I[1].rank == 1",
        },
        "inputs": (
            "!broadcast(unsqueeze_input(I[0], [0]) if _row else I[0], _rank)",
            "!broadcast(unsqueeze_input(I[1], [1]) if _column else I[1], _rank)",
        ),
        "outputs": "!squeeze_output(O[0],"
        " [_rank - 2] * int(_row) + [_rank - 1] * int(_column))",
    },
    "Gemm": {
        "type": '!"linear" if _linear else "gemm" if _scaled else'
        ' "matmul_add" if _bias else "matmul"',
        "defaults": {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0},
        "using": {
            "_bias": '!len(I) > 2 and I[2].name != ""',
            "_scaled": "!alpha != 1.0 or (_bias and beta != 1.0)",
            "_linear": "!_bias and not _scaled and I[2].rank == 1 and transB"
            " and not transA",
        },
        "inputs": (
            "!I[0]",
            "!I[1]",
            "!unsqueeze_vector(I[2]) if _linear else broadcast(I[2], 2) if _bias else"
            f" {_ZERO} if _scaled else None",
        ),
        "outputs": "!O[0]",
        "attribs": {
            "transposeA": "!bool(transA) if not _linear else None",
            "transposeB": "!bool(transB) if not _linear else None",
            "alpha": "!float(alpha) if _scaled else None",
            "beta": "!float(beta) if _scaled else None",
        },
    },
    "Pow": {
        "type": "pow",
        "inputs": (
            "!broadcast(I[0], O[0].rank)",
            "!broadcast(in_scalars(I[1]), O[0].rank)",
        ),
        "outputs": "!O[0]",
    },
    # Scalars become integers by leaving out what is behind the point.
    "Cast": {
        "type": '!"copy" if _made == _given else'
        ' "truncate" if (_given, _made) == ("scalar", "integer") else "cast"',
        "using": {
            "_given": "!nnef_dtype(I[0].dtype)",
            "_made": "!nnef_dtype(O[0].dtype)",
        },
        "inputs": "!I[0]",
        "outputs": "!O[0]",
        "attribs": {
            "dtype": '!O[0].dtype if _made != _given and _made != "integer" or'
            ' _given == "logical" and _made == "integer" else None',
        },
    },
    # Before version 11 there were no modes, and elements counted from their edges.
    "Resize": {
        "type": '!"multilinear_upsample" if mode == "linear" else'
        ' "nearest_upsample" if _up else "nearest_downsample"',
        "defaults": {
            "mode": "nearest",
            "coordinate_transformation_mode": None,
            "nearest_mode": "round_prefer_floor",
            "antialias": 0,
        },
        "using": {
            "_METHODS": _METHODS,
            "_places": '!"asymmetric" if _opset < 11 else'
            ' coordinate_transformation_mode or "half_pixel"',
            "_nearest": '!"floor" if _opset < 11 else nearest_mode',
            "_up": "!is_integer_upsample(I[0].shape, O[0].shape)",
            "_down": "!is_integer_downsample(I[0].shape, O[0].shape)",
        },
        "cond": {
            '!mode in ("nearest", "linear")': "mode must be nearest or linear",
            '!_up or (_down and mode == "nearest")': "the factor must be an integer",
            "!I[0].shape[:2] == O[0].shape[:2]": "batch and channels must stay",
            "!_places in _METHODS": "the coordinates must not be cropped",
            "!antialias == 0": "antialias must be 0",
            '!mode != "nearest" or not (_up or _down) or not _places in _METHODS or'
            " repeats_nearest(I, O, _places, _nearest)": "other elements are nearest",
        },
        "inputs": "!I[0]",
        "outputs": "!O[0]",
        "attribs": {
            "factor": "!upsample_factor(I[0].shape[2:], O[0].shape[2:]) if _up else"
            " downsample_factor(I[0].shape[2:], O[0].shape[2:])",
            "method": '!_METHODS[_places] if mode == "linear" else None',
        },
    },
    "SpaceToDepth": {
        "type": "space_to_depth",
        "inputs": "!I[0]",
        "outputs": "!O[0]",
        "attribs": {"block": "!blocksize"},
    },
    "Flatten": {
        "type": "reshape",
        "defaults": {"axis": 1},
        "inputs": "!I[0]",
        "outputs": "!O[0]",
        "attribs": {"shape": "![0, -1] if axis == 1 else list(O[0].shape)"},
    },
    "Reshape": {
        "type": "reshape",
        "defaults": {"shape": "!as_const(I[1])", "allowzero": 0},
        "cond": {"!allowzero == 0 or 0 not in shape": "no extent must be 0"},
        "inputs": "!I[0]",
        "outputs": "!O[0]",
        "attribs": {
            "shape": "!flexible_batch(shape, I[0].shape[0])"
            " if shape and I[0].shape else list(O[0].shape)"
        },
    },
    "Squeeze": {
        "type": "squeeze",
        "defaults": {"axes": None},
        "using": {
            "_ones": "![i for i, n in enumerate(I[0].shape) if n == 1]",
            "_axes": "!axes if axes is not None else items(I, 1, _ones)",
        },
        "inputs": "!I[0]",
        "outputs": "!O[0]",
        "attribs": {"axes": "!sorted(ensure_positive(_axes, I[0].rank))"},
    },
    "Unsqueeze": {
        "type": "unsqueeze",
        "defaults": {"axes": "!as_const(I[1])"},
        "inputs": "!I[0]",
        "outputs": "!O[0]",
        "attribs": {"axes": "!sorted(ensure_positive(axes, O[0].rank))"},
    },
    "Split": {
        "type": "split",
        "defaults": {"axis": 0},
        "inputs": "!I[0]",
        "outputs": ["!O[:]"],
        "attribs": {
            "axis": "!ensure_positive(axis, I[0].rank)",
            "ratios": "![made.shape[axis] for made in O]",
        },
    },
    "Expand": {
        "type": "tile",
        "using": {"_shape": "![1] * (O[0].rank - I[0].rank) + list(I[0].shape)"},
        "inputs": "!of_rank(I[0], O[0].rank)",
        "outputs": "!O[0]",
        "attribs": {"repeats": "![m // n for m, n in zip(O[0].shape, _shape)]"},
    },
    "Gather": {
        "type": "gather",
        "defaults": {"axis": 0},
        "inputs": ("!I[0]", "!counted_from_zero(I[1], I[0].shape[axis])"),
        "outputs": "!O[0]",
        "attribs": {"axis": "!ensure_positive(axis, I[0].rank)"},
    },
    "Slice": {
        "type": "slice",
        "defaults": {"starts": None, "ends": None, "axes": None},
        "using": {
            "_starts": "!starts if starts is not None else as_const(I[1])",
            "_ends": "!ends if ends is not None else as_const(I[2])",
            "_given": "!axes or items(I, 3, list(range(len(_starts))))",
            "_axes": "!ensure_positive(_given, I[0].rank)",
            "_steps": "!items(I, 4, [1] * len(_starts))",
            "_slices": "!slices(I[0].shape, _axes, _starts, _ends, _steps)",
        },
        "inputs": "!I[0]",
        "outputs": "!O[0]",
        "attribs": {
            "axes": "!_axes",
            "begin": "![begin for begin, end in _slices]",
            "end": "![end for begin, end in _slices]",
            "stride": "!_steps",
        },
    },
    "Pad": {
        "type": "pad",
        "defaults": {"mode": "constant", "value": 0.0, "pads": None},
        "cond": {'!mode != "wrap"': "mode must not be wrap"},
        "using": {
            "_pads": "!pads or as_const(I[1])",
            "_value": "!ensure_scalar(items(I, 2, value))",
        },
        "inputs": "!I[0]",
        "outputs": "!O[0]",
        "attribs": {
            "padding": "!paddings(_pads, items(I, 3, None), I[0].rank)",
            "value": "!float(_value)",
            "border": '!"replicate" if mode == "edge" else mode',
        },
    },
}

# The fragments of nnef_tools that are right as they are.
_THEIRS = {"lp_pool", "lp_reduce", "depth_to_space"}

# What is no operation of NNEF. It stands in the document, and is expanded as any
# fragment is.
_FRAGMENTS = """
fragment l1_reduce( x: tensor<scalar>, axes: integer[] ) -> ( y: tensor<scalar> )
{
    y = sum_reduce(abs(x), axes = axes);
}

fragment l2_reduce( x: tensor<scalar>, axes: integer[] ) -> ( y: tensor<scalar> )
{
    y = sqrt(sum_reduce(sqr(x), axes = axes));
}

fragment square_reduce( x: tensor<scalar>, axes: integer[] ) -> ( y: tensor<scalar> )
{
    y = sum_reduce(sqr(x), axes = axes);
}

fragment log_reduce( x: tensor<scalar>, axes: integer[] ) -> ( y: tensor<scalar> )
{
    y = log(sum_reduce(x, axes = axes));
}

# Subtracting the maximum keeps exp from overflowing.
fragment log_sum_exp( x: tensor<scalar>, axes: integer[] ) -> ( y: tensor<scalar> )
{
    peak = max_reduce(x, axes = axes);
    y = peak + log(sum_reduce(exp(x - peak), axes = axes));
}

fragment log_softmax( x: tensor<scalar>, axes: integer[] ) -> ( y: tensor<scalar> )
{
    shifted = x - max_reduce(x, axes = axes);
    y = shifted - log(sum_reduce(exp(shifted), axes = axes));
}

# 1 - exp(-x^2) * P(s) / (1 + 2 * x) for positive x, where P fits to 6e-9, and the slope
# of all to 6e-7.
fragment erf( x: tensor<scalar> ) -> ( y: tensor<scalar> )
{
    negative = x < 0.0;
    size = select(negative, -x, x);
    s = (size - 3.75) / (size + 3.75);
    p11 = s * (0.0000236348 * s - 0.000224052) + 0.0003253885;
    p9 = s * (s * p11 + 0.0016757343) - 0.0097646905;
    p7 = s * (s * p9 + 0.0284094304) - 0.0586882521;
    p5 = s * (s * p7 + 0.0922906917) - 0.1088045645;
    p3 = s * (s * p5 + 0.0822784339) + 0.003585438;
    p = s * (s * p3 - 0.140240659) + 1.2375126308;
    rest = 1.0 - exp(-sqr(x)) * p / (1.0 + 2.0 * size);
    y = select(negative, -rest, rest);
}

fragment truncate( x: tensor<scalar> ) -> ( y: tensor<integer> )
{
    y = cast<integer>(sign(x) * floor(abs(x)));
}

# A block of a channel becomes a pixel of as many channels, those of one place together.
fragment space_to_depth( x: tensor<scalar>, block: integer ) -> ( y: tensor<scalar> )
{
    columns = reshape(x, axis_start = 3, axis_count = 1, shape = [-1, block]);
    blocks = reshape(columns, axis_start = 2, axis_count = 1, shape = [-1, block]);
    moved = transpose(blocks, axes = [0, 3, 5, 1, 2, 4]);
    y = reshape(moved, axis_start = 1, axis_count = 3, shape = [-1]);
}

fragment gelu_by_tanh( x: tensor<scalar> ) -> ( y: tensor<scalar> )
{
    y = 0.5 * x * (1.0 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
}

fragment softsign( x: tensor<scalar> ) -> ( y: tensor<scalar> )
{
    y = x / (1.0 + abs(x));
}

fragment mish( x: tensor<scalar> ) -> ( y: tensor<scalar> )
{
    y = x * tanh(softplus(x));
}

fragment swish( x: tensor<scalar>, alpha: scalar ) -> ( y: tensor<scalar> )
{
    y = x * sigmoid(alpha * x);
}

fragment hard_sigmoid( x: tensor<scalar>, alpha: scalar, beta: scalar )
-> ( y: tensor<scalar> )
{
    y = clamp(alpha * x + beta, 0.0, 1.0);
}

fragment hard_swish( x: tensor<scalar> ) -> ( y: tensor<scalar> )
{
    y = x * clamp(x / 6.0 + 0.5, 0.0, 1.0);
}

fragment celu( x: tensor<scalar>, alpha: scalar ) -> ( y: tensor<scalar> )
{
    y = alpha * elu(x / alpha);
}

fragment thresholded_relu( x: tensor<scalar>, alpha: scalar ) -> ( y: tensor<scalar> )
{
    y = select(x > alpha, x, 0.0);
}

fragment layer_normalization(
    x: tensor<scalar>,
    scale: tensor<scalar>,
    offset: tensor<scalar>,
    axes: integer[],
    epsilon: scalar )
-> ( y: tensor<scalar> )
{
    mean, variance = moments(x, axes = axes);
    y = scale * ((x - mean) / sqrt(variance + epsilon)) + offset;
}

fragment group_normalization(
    x: tensor<scalar>,
    scale: tensor<scalar>,
    offset: tensor<scalar>,
    groups: integer,
    shape: integer[],
    epsilon: scalar )
-> ( y: tensor<scalar> )
{
    parts = reshape(x, shape = [0, groups, -1]);
    normal = layer_normalization(parts, 1.0, 0.0, axes = [2], epsilon = epsilon);
    y = scale * reshape(normal, shape = shape) + offset;
}

fragment rms_normalization(
    x: tensor<scalar>, scale: tensor<scalar>, axes: integer[], epsilon: scalar )
-> ( y: tensor<scalar> )
{
    y = scale * (x / sqrt(mean_reduce(sqr(x), axes = axes) + epsilon));
}

fragment affine(
    x: tensor<scalar>, weight: tensor<scalar>, bias: tensor<scalar> )
-> ( y: tensor<scalar> )
{
    y = matmul(x, squeeze(weight, axes = [0]), transposeB = true) + bias;
}

# A state of an LSTM is both of its states, one behind the other.
fragment lstm_steps(
    X: tensor<scalar>,
    states: tensor<scalar>[],
    W: tensor<scalar>,
    R: tensor<scalar>,
    b: tensor<scalar>,
    d: tensor<scalar>,
    index: integer,
    steps: integer )
-> ( all: tensor<scalar>[] )
{
    x = squeeze(slice(X, axes = [0], begin = [index], end = [index + 1]), axes = [0]);
    [h, c] = split(states[index], axis = 1, ratios = [1, 1]);
    sums = affine(x, W, b) + affine(h, R, d);
    [i, o, f, g] = split(sums, axis = 1, ratios = [1, 1, 1, 1]);
    cell = sigmoid(f) * c + sigmoid(i) * tanh(g);
    hidden = sigmoid(o) * tanh(cell);
    next = states + [concat([hidden, cell], axis = 1)];
    all = lstm_steps(X, next, W, R, b, d, index = index + 1, steps = steps)
        if index + 1 < steps else next;
}

fragment lstm(
    X: tensor<scalar>,
    W: tensor<scalar>,
    R: tensor<scalar>,
    B: tensor<scalar>,
    h: tensor<scalar>,
    c: tensor<scalar>,
    steps: integer )
-> ( Y: tensor<scalar>, Y_h: tensor<scalar>, Y_c: tensor<scalar> )
{
    [b, d] = split(B, axis = 1, ratios = [1, 1]);
    first = squeeze(concat([h, c], axis = 2), axes = [0]);
    states = lstm_steps(X, [first], W, R, b, d, index = 0, steps = steps);
    [hs, cs] = split(stack(states[1:], axis = 0), axis = 2, ratios = [1, 1]);
    Y = unsqueeze(hs, axes = [1]);
    [hn, cn] = split(states[steps], axis = 1, ratios = [1, 1]);
    Y_h = unsqueeze(hn, axes = [0]);
    Y_c = unsqueeze(cn, axes = [0]);
}

fragment gru_steps(
    X: tensor<scalar>,
    states: tensor<scalar>[],
    W: tensor<scalar>,
    R: tensor<scalar>,
    b: tensor<scalar>,
    d: tensor<scalar>,
    index: integer,
    steps: integer )
-> ( all: tensor<scalar>[] )
{
    x = squeeze(slice(X, axes = [0], begin = [index], end = [index + 1]), axes = [0]);
    h = states[index];
    [xz, xr, xn] = split(affine(x, W, b), axis = 1, ratios = [1, 1, 1]);
    [hz, hr, hn] = split(affine(h, R, d), axis = 1, ratios = [1, 1, 1]);
    z = sigmoid(xz + hz);
    n = tanh(xn + sigmoid(xr + hr) * hn);
    next = states + [(1.0 - z) * n + z * h];
    all = gru_steps(X, next, W, R, b, d, index = index + 1, steps = steps)
        if index + 1 < steps else next;
}

fragment gru(
    X: tensor<scalar>,
    W: tensor<scalar>,
    R: tensor<scalar>,
    B: tensor<scalar>,
    h: tensor<scalar>,
    steps: integer )
-> ( Y: tensor<scalar>, Y_h: tensor<scalar> )
{
    [b, d] = split(B, axis = 1, ratios = [1, 1]);
    first = squeeze(h, axes = [0]);
    states = gru_steps(X, [first], W, R, b, d, index = 0, steps = steps);
    Y = unsqueeze(stack(states[1:], axis = 0), axes = [1]);
    Y_h = unsqueeze(states[steps], axes = [0]);
}

fragment rnn_steps(
    X: tensor<scalar>,
    states: tensor<scalar>[],
    W: tensor<scalar>,
    R: tensor<scalar>,
    b: tensor<scalar>,
    d: tensor<scalar>,
    index: integer,
    steps: integer )
-> ( all: tensor<scalar>[] )
{
    x = squeeze(slice(X, axes = [0], begin = [index], end = [index + 1]), axes = [0]);
    sums = affine(x, W, b) + affine(states[index], R, d);
    next = states + [tanh(sums)];
    all = rnn_steps(X, next, W, R, b, d, index = index + 1, steps = steps)
        if index + 1 < steps else next;
}

fragment rnn(
    X: tensor<scalar>,
    W: tensor<scalar>,
    R: tensor<scalar>,
    B: tensor<scalar>,
    h: tensor<scalar>,
    steps: integer )
-> ( Y: tensor<scalar>, Y_h: tensor<scalar> )
{
    [b, d] = split(B, axis = 1, ratios = [1, 1]);
    first = squeeze(h, axes = [0]);
    states = rnn_steps(X, [first], W, R, b, d, index = 0, steps = steps);
    Y = unsqueeze(stack(states[1:], axis = 0), axes = [1]);
    Y_h = unsqueeze(states[steps], axes = [0]);
}

fragment matmul_add(
    A: tensor<scalar>,
    B: tensor<scalar>,
    C: tensor<scalar>,
    transposeA: logical,
    transposeB: logical )
-> ( Y: tensor<scalar> )
{
    Y = matmul(A, B, transposeA = transposeA, transposeB = transposeB) + C;
}

fragment gemm(
    A: tensor<scalar>,
    B: tensor<scalar>,
    C: tensor<scalar>,
    alpha: scalar,
    beta: scalar,
    transposeA: logical,
    transposeB: logical )
-> ( Y: tensor<scalar> )
{
    product = matmul(A, B, transposeA = transposeA, transposeB = transposeB);
    Y = alpha * product + beta * C;
}
"""


# ---- Types, data, quantization ----

_NNEF_TYPES = {"f": "scalar", "i": "integer", "u": "integer", "b": "logical"}
_NUMPY_TYPES = {"scalar": np.float32, "integer": np.int64, "logical": np.bool_}


def _numpy_type(tensor: Tensor, array: Array | None) -> Any:
    return _NUMPY_TYPES[tensor.dtype] if array is None else array.dtype.type


def _with_data(graph: Graph, data: Data) -> Iterator[tuple[Tensor, Array | None]]:
    """Each tensor, with its data if it is a variable that has some."""
    labelled = {label.lower(): array for label, array in data.items()}
    for operation in graph.operations:
        label = str(operation.attributes.get("label", "")).lower()
        for tensor in operation.outputs:
            array = labelled.get(label) if operation.name == "variable" else None
            if array is not None and array.shape != tensor.shape:
                shapes = f"{list(array.shape)}, and the variable {list(tensor.shape)}"
                raise UsageError(f"the data of '{label}' have the shape {shapes}")
            yield tensor, array


def _is(array: Any) -> bool:
    return array is not None and np.size(array) > 0


def _quantized(graph: Graph, tensor: Tensor) -> dict[str, Any]:
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
