"""The verifier: what a graph of the compiler promises, and what its operations make of their
operands, inferred again. What it finds is a bug, and no mistake of the user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nnef_grad.emit.arguments import Call, settings_key
from nnef_grad.emit.rule_results import ShapeInference
from nnef_grad.graph.extents import Dimension, OpenExtentError, has_symbols
from nnef_grad.graph.ir import Graph, Operation, Shape, Tensor
from nnef_grad.graph.loops import is_loop, loop_of, loops_in
from nnef_grad.language.types import GENERIC, ArrayType, TensorType, Type
from nnef_grad.ops.registry import OpSet
from nnef_grad.ops.traits import UNIQUE


class BrokenGraphError(AssertionError):
    """A graph that the compiler should not have made."""


class Verifier:
    """Checks graphs, one pass after the other: operations that stay are checked once.

    Args:
        opset: the operations that are known, with their shape functions. Results of others
            are not checked.
    """

    def __init__(self, opset: OpSet | None = None) -> None:
        self._opset = opset or OpSet()
        self._inference = ShapeInference(self._opset)
        self._seen: frozenset[Operation] = frozenset()

    def __call__(self, name: str, graph: Graph) -> None:
        """Checks what the pass of a name has made.

        Raises:
            BrokenGraphError: a tensor is not defined once, before use, or has another shape
                or data type than its operation gives it.
        """
        try:
            self.verify(graph)
        except BrokenGraphError as error:
            raise BrokenGraphError(f"after {name}: {error}") from None

    def verify(self, graph: Graph) -> None:
        """Checks a graph, and the bodies of its loops."""
        graphs = (*(loop.body for loop in loops_in(graph)), graph)
        for each in graphs:
            _verify_definitions(each)
            for operation in each.operations:
                if operation not in self._seen:
                    self._verify_results(operation, each)
        _verify_ends(graph)
        self._seen = frozenset(op for g in graphs for op in g.operations)

    def _verify_results(self, operation: Operation, graph: Graph) -> None:
        for tensor, dtype, shape in self._wanted(operation):
            if tensor.dtype != dtype or not _may_be(tensor.shape, shape):
                name = graph.names.get(tensor, "a tensor")
                is_so = f"{tensor.dtype} {list(tensor.shape)}"
                message = f"{name}, of '{operation.name}', is {is_so}, and should be"
                raise BrokenGraphError(f"{message} {dtype} {list(shape)}")

    def _wanted(self, operation: Operation) -> Iterator[tuple[Tensor, str, Shape]]:
        """The results of an operation, with the data types and shapes that it gives them."""
        definition = operation.definition
        if is_loop(operation):
            yield from _carried(operation)
        if definition.name not in self._opset.shapes:
            return
        attributes, dtype = operation.attributes, operation.dtype
        call = Call(definition, operation.operands, attributes, dtype)
        settings = "" if definition.name in UNIQUE else settings_key(call)
        try:
            shapes = self._inference.infer(call, settings, operation.span)
        except OpenExtentError:
            # What was known of the sizes when it was made.
            return
        declared = zip(definition.results, operation.results, shapes, strict=True)
        for result, value, shape in declared:
            yield from _tensors(result.type, value, shape, dtype)


def _carried(operation: Operation) -> Iterator[tuple[Tensor, str, Shape]]:
    """What a loop carries: a state has the type of what becomes of it, wherever it is."""
    loop = loop_of(operation)
    after = operation.outputs[: loop.states]
    count = len(loop.full)
    before = operation.inputs[count : count + loop.states]
    for values in zip(after, before, loop.state_inputs, loop.next_values, strict=True):
        *others, like = values
        yield from ((tensor, like.dtype, like.shape) for tensor in others)
    for inner, outer in zip(loop.full, operation.inputs, strict=False):
        yield inner, outer.dtype, outer.shape


def verify(graph: Graph) -> None:
    """Checks a graph that is to be written: see `Verifier`."""
    Verifier().verify(graph)


def verify_order(graph: Graph) -> None:
    """Checks what is quickly checked: that tensors are defined once, before use."""
    _verify_definitions(graph)
    _verify_ends(graph)


def _tensors(
    type_: Type, value: Any, shape: Any, dtype: str | None
) -> Iterator[tuple[Tensor, str, Shape]]:
    """The tensors of a result, with their data types and shapes."""
    if isinstance(type_, ArrayType):
        for item, extents in zip(value, shape, strict=True):
            yield from _tensors(type_.item, item, extents, dtype)
    else:
        assert isinstance(type_, TensorType)
        yield value, str(dtype if type_.dtype == GENERIC else type_.dtype), shape


def _may_be(shape: Shape, other: Shape) -> bool:
    """Whether two shapes are the same for all that is known here of open sizes."""
    return len(shape) == len(other) and all(map(_may_equal, shape, other))


def _may_equal(extent: Dimension, other: Dimension) -> bool:
    return extent == other or has_symbols((extent, other))


def _verify_definitions(graph: Graph) -> None:
    """Checks that tensors are defined once, before use, and have names of their own."""
    names = [graph.names[tensor] for op in graph.operations for tensor in op.outputs]
    if len({*names}) < len(names):
        raise BrokenGraphError("two tensors have one name")
    defined: set[Tensor] = set()
    for operation in graph.operations:
        if not defined.issuperset(operation.inputs):
            told = f"'{operation.name}' reads what is defined later, or nowhere, for"
            raise BrokenGraphError(f"{told} {_named(operation, graph)}")
        if not defined.isdisjoint(operation.outputs):
            raise BrokenGraphError(f"{_named(operation, graph)} is defined twice")
        defined.update(operation.outputs)
    if not defined.issuperset(graph.outputs):
        raise BrokenGraphError("an output is not defined")


def _named(operation: Operation, graph: Graph) -> str:
    return ", ".join(
        graph.names.get(tensor, "a tensor") for tensor in operation.outputs
    )


def _verify_ends(graph: Graph) -> None:
    """Checks what a graph returns: the body of a loop may return its input, and one twice."""
    outputs = {*graph.outputs}
    if len(outputs) < len(graph.outputs):
        raise BrokenGraphError("an output is returned twice")
    if not outputs.isdisjoint(graph.inputs):
        raise BrokenGraphError("an output is also an input")
