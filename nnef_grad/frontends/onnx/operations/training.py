"""Operators of the domain ai.onnx.preview.training: gradients of tensors of the graph, and the
steps of optimizers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from nnef_grad.autodiff.differentiate import differentiate
from nnef_grad.base.errors import Problem
from nnef_grad.emit.bodies import body_of, instantiate
from nnef_grad.emit.emitter import Emitter
from nnef_grad.frontends.onnx.node import Node, kind_of, onnx_op
from nnef_grad.frontends.onnx.operations.control import free_names
from nnef_grad.frontends.onnx.validity import NODE_WORK, TRAINING, graphs_of
from nnef_grad.frontends.values import dtype_of, is_known, shape_of
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.learning import facts_learned
from nnef_grad.graph.names import NameSupply
from nnef_grad.language.identifiers import plain_name

# ---- Gradients ----

GRADIENT = f"{TRAINING}.Gradient"


@onnx_op(GRADIENT)
def _gradient(node: Node, *operands: Any) -> list[Any]:
    """The gradients of the sum of y with respect to xs. The nodes that lead from xs and zs to
    y are read again, on inputs of their own: the operands may be other tensors than those
    that xs and zs name, and these may be one tensor of the graph by several names. What is
    computed already is not computed twice.
    """
    names, count = _independent(node, operands), len(node.attributes["xs"])
    nodes = _dependent(node, names)
    around = dict(_around(node, nodes, names))
    fed = dict(zip(names, (node.tensor_of(x) for x in operands), strict=True))
    fed |= {name: x for name, x in around.items() if isinstance(x, Tensor)}
    graph = _graph(node, fed, {**around}, nodes)
    # Each of several gradients of each other doubles the work.
    node.reading.spend(NODE_WORK * len(graph.operations))
    backward = differentiate(graph, wrt=graph.input_names[:count], seed="ones")
    node.reading.warnings += map(Problem, backward.warnings)
    return _emitted(node, backward.graph, [*fed.values()])


def _independent(node: Node, operands: Sequence[Any]) -> list[str]:
    """The names of the tensors that y is a function of: xs, then zs."""
    sides = (node.attributes.get(side, ()) for side in ("xs", "zs"))
    xs, zs = ([name.decode() for name in side] for side in sides)
    names = [*xs, *zs]
    node.require(bool(xs), "'xs' names no tensor")
    node.require(len({*names}) == len(names), "'xs' and 'zs' name a tensor twice")
    given = [x for x in operands if x is not None]
    message = "it needs one operand for each name in 'xs' and 'zs'"
    node.require(len(given) == len(operands) == len(names), message)
    for name, x in zip(names, operands, strict=True):
        node.require(not isinstance(x, list), f"'{name}' is a sequence")
    for name, x in zip(xs, operands, strict=False):
        node.require(dtype_of(x) == "scalar", f"'{name}' is {_NOT_REAL}")
    return names


_NOT_REAL = "no tensor of floating-point numbers"


def _reads(proto: Any) -> Iterator[str]:
    """The names that a node depends on: of a gradient, also what its y is made of."""
    yield from filter(None, proto.input)
    yield from chain.from_iterable(map(free_names, graphs_of(proto)))
    if kind_of(proto) == GRADIENT:
        yield from (a.s.decode() for a in proto.attribute if a.name == "y")


def _dependent(node: Node, names: Sequence[str]) -> list[Any]:
    """The nodes that y depends on and that depend on some tensors, in order; and those that
    have no value yet.
    """
    changed, dependent = {*names}, list[Any]()
    for proto in _ancestors(node, names):
        is_made = all(_is_tensor(node, name) for name in proto.output if name)
        if not is_made or not changed.isdisjoint(_reads(proto)):
            changed.update(filter(None, proto.output))
            dependent.append(proto)
    return dependent


def _ancestors(node: Node, ends: Sequence[str]) -> list[Any]:
    """The nodes that y depends on, in order, up to the ends."""
    y, makers = node.get("y", ""), node.reading.makers
    is_there = y in makers or y in node.around or y in ends
    node.require(is_there, f"there is no tensor '{y}', which 'y' names")
    found, order = {*ends}, list[Any]()
    # A name is left on the stack until all that its node reads is done.
    stack = [(y, False)]
    while stack:
        name, is_done = stack.pop()
        if is_done:
            order.append(makers[name])
        elif name in makers and name not in found:
            found.update(makers[name].output)
            stack.append((name, True))
            stack += [(read, False) for read in _reads(makers[name])]
    message = f"'{y}', which 'y' names, depends on its results"
    node.require(all(proto.output != node.proto.output for proto in order), message)
    return order


def _is_tensor(node: Node, name: str) -> bool:
    """Whether a name has a value, and no sequence."""
    return not isinstance(node.around.get(name, []), list)


def _around(
    node: Node, nodes: Sequence[Any], names: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    """What the nodes read besides each other and the independent tensors, by name; what may
    be a parameter is a tensor.
    """
    reading, own = node.reading, {*names, *(n for proto in nodes for n in proto.output)}
    read = (*chain.from_iterable(map(_reads, nodes)), node.get("y", ""))
    for name in dict.fromkeys(read):
        if name in own or name not in node.around:
            continue
        value = reading.value(node.around, name)
        if is_known(value) and reading.is_parameter(value):
            value = node.tensor(value)
        if isinstance(value, Tensor):
            message = f"it needs '{name}' from outside of the loop that it is in"
            node.require(reading.emitter.knows(value), message)
        yield name, value


def _graph(
    node: Node,
    fed: Mapping[str, Tensor],
    values: dict[str, Any],
    nodes: Sequence[Any],
) -> Graph:
    """The graph of y as a function of what is fed, by name; other values are known."""
    reading, y = node.reading, node.get("y", "")
    emitter, supply = Emitter(reading.emitter.opset), NameSupply()
    for name, x in fed.items():
        own = supply.fresh(plain_name(name))
        values[name] = emitter.emit_named(own, "external", x.dtype, shape=[*x.shape])
    inputs = tuple(values[name] for name in fed)
    with reading.emitting(emitter):
        for proto in nodes:
            reading.take(values, proto)
        value = reading.value(values, y)
        is_real = not isinstance(value, list) and dtype_of(value) == "scalar"
        node.require(is_real, f"'{y}', which 'y' names, is {_NOT_REAL}")
        tensor = node.tensor_of(value)
        result = reading.returned(tensor, supply.fresh(plain_name(y)))
    operations = tuple(emitter.operations)
    names = emitter.assigned_names(operations, emitter.names.values())
    facts = facts_learned()
    return Graph(
        "of_" + plain_name(y), inputs, (result,), operations, names, facts=facts
    )


def _emitted(node: Node, graph: Graph, operands: Sequence[Tensor]) -> list[Any]:
    """Emits a graph on operands, and returns its results."""
    inner = [op for op in graph.operations if op.name != "external"]
    body = body_of(graph.inputs, inner, graph.outputs, graph.names.__getitem__)
    emitter = node.reading.emitter
    results = instantiate(body, emitter, operands, naming=str, fill=True)
    assert results is not None
    return [*results]


# ---- Optimizers ----


def _optimizer(kind: str, states: int, **settings: Any) -> None:
    """Enters an optimizer, a fragment: its operands are the learning rate, the count of steps,
    then variables, their gradients and their states, each of all variables; its results are
    the new variables and states. The settings have the defaults of ONNX; None for one that
    must be given.
    """

    def step(node: Node, rate: Any, steps: Any, *tensors: Any) -> list[Any]:
        count, rest = divmod(len(tensors), 2 + states)
        node.require(
            not rest and count > 0, f"it needs {2 + states} operands a variable"
        )
        given = {name: node.get(name, usual) for name, usual in settings.items()}
        for name, value in given.items():
            node.require(value is not None, f"'{name}' is missing")
        numbers = [_number(node, x) for x in (rate, steps)]
        moved = [
            node.expand(f"{kind.lower()}_step", *numbers, *tensors[n::count], **given)
            for n in range(count)
        ]
        return [*chain.from_iterable(zip(*moved, strict=True))]

    onnx_op(f"{TRAINING}.{kind}")(step)


def _number(node: Node, x: Any) -> Any:
    """An operand of one element, without axes."""
    shape = shape_of(x)
    node.require(all(n == 1 for n in shape), "'R' and 'T' must have one element")
    return node.reshaped(node.scalars(x), ())


_optimizer("Adagrad", 1, epsilon=1e-6, decay_factor=0.0, norm_coefficient=0.0)
_optimizer(
    "Adam",
    2,
    alpha=0.9,
    beta=0.999,
    epsilon=1e-6,
    norm_coefficient=0.0,
    norm_coefficient_post=0.0,
)
_optimizer("Momentum", 1, alpha=None, beta=None, norm_coefficient=None, mode=None)
