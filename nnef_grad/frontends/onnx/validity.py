"""Files that no reader can make sense of, or that ask for much more than they hold: names that
mean two tensors, functions without end, and what the checker of onnx says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from onnx import IR_VERSION, NodeProto, TensorProto
from onnx.checker import ValidationError, check_model, check_node
from onnx.helper import make_tensor_value_info
from onnx.onnx_cpp2py_export.checker import CheckerContext
from onnx.shape_inference import InferenceError, infer_shapes

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import UnsupportedError, UsageError
from nnef_grad.frontends.reading import MOST_WORK, WORK_PER_ELEMENT

# The domains of standard ONNX operations, and of those for training.
DOMAINS = ("", "ai.onnx")
TRAINING = "ai.onnx.preview.training"
LEARNING = "ai.onnx.ml"

# Reading a node counts as the computation of so many elements.
NODE_WORK = 1_000


def graphs_of(node: Any) -> list[Any]:
    """The graphs that are attributes of a node: branches, and bodies of loops."""
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def nodes_of(graph: Any) -> Iterator[Any]:
    """The nodes of a graph, or of a function, and of the graphs in it."""
    for node in graph.node:
        yield node
        for inner in graphs_of(node):
            yield from nodes_of(inner)


def version_of(opsets: Iterable[Any], name: str) -> int:
    """The version of the standard operators in a file."""
    versions = {o.version for o in opsets if o.domain in DOMAINS}
    if not versions and any(o.domain in (TRAINING, LEARNING) for o in opsets):
        # It has no standard operators, whose version would matter.
        return 1
    if len(versions) != 1:
        many = "several versions" if versions else "no version"
        raise UsageError(f"'{name}' is not valid: it has {many} of ONNX's operators")
    (version,) = versions
    if version < 1:
        raise UsageError(f"'{name}' is not valid: there is no operator set {version}")
    return int(version)


def refuse_repeated(graph: Any, name: str) -> None:
    """Refuses names that tensors of a graph share: what they mean is not said. Inner graphs
    have names of their own.
    """
    given = [value.name for value in graph.input]
    stored = [tensor.name for tensor in graph.initializer]
    made = [result for node in graph.node for result in node.output if result]
    for names in (given, stored, [*{*given, *stored}, *made]):
        for word, count in Counter(names).items():
            if count > 1:
                message = f"'{name}' is not valid: it has several tensors '{word}'"
                raise UsageError(message)
    for node in graph.node:
        if not any(node.output):
            message = f"'{name}' is not valid: a '{node.op_type}' has no result"
            raise UsageError(message)
        for inner in graphs_of(node):
            refuse_repeated(inner, name)


# ---- What a file may ask for ----


def most_work(model: Any, arrays: Mapping[str, Array]) -> int:
    """How much a file may make this program compute: see `Reading.spend`."""
    stored = model.ByteSize() + sum(array.size for array in arrays.values())
    return int(MOST_WORK + WORK_PER_ELEMENT * stored)


def refuse_endless(model: Any, name: str, most: int) -> None:
    """Refuses functions that call themselves, or that come to too many nodes when their
    bodies take the place of calls.
    """
    for (domain, kind, _), count in Counter(map(_key, model.functions)).items():
        if count > 1:
            message = f"the function '{domain}.{kind}' is there {count} times"
            raise UsageError(f"'{name}' is not valid: {message}")
    work = {_key(f): _own_work(f) for f in model.functions}
    calls = {_key(f): Counter(map(_called, nodes_of(f))) for f in model.functions}
    inner = {key: calls.keys() & called.keys() for key, called in calls.items()}
    try:
        order = [*TopologicalSorter(inner).static_order()]
    except CycleError as error:
        circle = " -> ".join(f"'{domain}.{kind}'" for domain, kind, _ in error.args[1])
        message = f"'{name}' is not valid: functions call each other: {circle}"
        raise UsageError(message) from None
    for key in order:
        work[key] += sum(work[k] * n for k, n in calls[key].items() if k in work)
    called = Counter(map(_called, nodes_of(model.graph)))
    if sum(work[k] * n for k, n in called.items() if k in work) > most + sum(
        map(_own_work, model.functions)
    ):
        limit = f"{most // NODE_WORK:,} nodes"
        message = f"the functions of '{name}' come to more than {limit}"
        raise UnsupportedError(message)


def _own_work(function: Any) -> int:
    return sum(NODE_WORK + node.ByteSize() for node in nodes_of(function))


def _key(function: Any) -> tuple[str, str, str]:
    return function.domain, function.name, function.overload


def _called(node: Any) -> tuple[str, str, str]:
    return node.domain, node.op_type, node.overload


# ---- The checker of onnx ----


def fault_of_node(node: NodeProto, opsets: Iterable[Any]) -> str:
    """What the checker of onnx says against a node; nothing of one with inner graphs, which
    read names from outside.
    """
    context = CheckerContext()
    context.ir_version = IR_VERSION
    context.opset_imports = {o.domain: o.version for o in opsets}
    try:
        if not graphs_of(node):
            check_node(node, context)
    except ValidationError as error:
        return _first_line(error)
    return ""


def fault_of_model(model: Any) -> str:
    """What onnx says against a file, whose data are elsewhere: its checker, or else its
    inference of shapes.
    """
    shapes, graph = _fault_of_shapes(model), model.graph
    try:
        for stored in graph.initializer:
            stored.CopyFrom(TensorProto(name=stored.name, data_type=1, dims=[0]))
        # Files may leave out types and shapes.
        del graph.value_info[:]
        for value in (*graph.input, *graph.output):
            value.CopyFrom(make_tensor_value_info(value.name, 1, []))
        check_model(model)
    except UnicodeDecodeError:
        return "a name is not UTF-8"
    except ValidationError as error:
        return _first_line(error)
    return shapes


def _fault_of_shapes(model: Any) -> str:
    try:
        infer_shapes(model, check_type=True, strict_mode=True)
    except (InferenceError, RuntimeError, TypeError, ValueError) as error:
        return _first_line(error)
    return ""


def _first_line(error: Exception) -> str:
    first, *_ = str(error).strip().splitlines() or [type(error).__name__]
    return first


# ---- The order of nodes ----


def topological(nodes: Iterable[Any]) -> list[Any]:
    """The nodes, each after those that it reads from, as the standard wants them to be: engines
    take files in which they are not.
    """
    listed = list(nodes)
    makers = {name: i for i, node in enumerate(listed) for name in node.output if name}
    needs = [
        {makers[name] for name in _names_read(node) if name in makers} - {i}
        for i, node in enumerate(listed)
    ]
    if all(max(own, default=-1) < i for i, own in enumerate(needs)):
        return listed
    try:
        order = TopologicalSorter(dict(enumerate(needs))).static_order()
        return [listed[i] for i in order]
    except CycleError:
        # What reads itself is refused where it is read.
        return listed


def _names_read(node: Any) -> Iterator[str]:
    """The names that a node reads, and those in its graphs."""
    yield from node.input
    for graph in graphs_of(node):
        yield from (name for inner in nodes_of(graph) for name in inner.input)
        yield from (output.name for output in graph.output)
