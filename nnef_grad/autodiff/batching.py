"""Batching: computes a graph for many values of some inputs at once.

Tensors that depend on these inputs get a new leading axis, with an item for each value; all
others are computed once, as they were. How each operation takes the new axis stands with it
(ops/batching.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nnef_grad.base.errors import NoDerivativeError
from nnef_grad.emit.bodies import is_short, unrolled
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.evaluation import instantiate_body
from nnef_grad.emit.rewriting import Decompose, inline_fully
from nnef_grad.graph.extents import Dimension
from nnef_grad.graph.ir import Graph, Operand, Operation, Shape, Tensor, tensors
from nnef_grad.graph.names import with_suffix
from nnef_grad.ops.batching import BATCHING
from nnef_grad.ops.registry import OpSet


def batch(
    emit: Emitter, graph: Graph, values: Mapping[Tensor, Tensor]
) -> dict[Tensor, Tensor]:
    """Emits the operations of a flat graph, for many values of inputs.

    Returns:
        For each tensor of the graph that depends on these, the tensor with the leading
        axis. All other tensors of the graph are emitted as they are, unless they are there.

    Raises:
        NoDerivativeError: an operation on the way has no form for many values at once.
    """
    graph = _decompose_unknown(graph, values, emit.opset)
    new = {x: name for x, name in graph.names.items() if x not in emit.names}
    emit.hints.update(new)
    many = {**values}
    for operation in graph.operations:
        if operation.name == "copy" and operation.operands[0] in many:
            many[operation.outputs[0]] = many[operation.inputs[0]]
        elif any(t in many for t in operation.inputs):
            results = _batched(emit, operation, many)
            many.update(zip(operation.outputs, results, strict=True))
        elif not any(t in many or emit.knows(t) for t in operation.outputs):
            emit.append(operation)
    return many


def _decompose_unknown(graph: Graph, inputs: Iterable[Tensor], opset: OpSet) -> Graph:
    """The graph with the operations decomposed that have no batching rule."""
    dependent = {*inputs}

    def body(operation: Operation) -> Decompose | None:
        """Is asked in the order of the graph."""
        if dependent.isdisjoint(operation.inputs):
            return None
        dependent.update(operation.outputs)
        if is_short(operation):
            return unrolled
        is_known = operation.name in BATCHING or operation.definition.body is None
        return None if is_known else instantiate_body

    return inline_fully(graph, body, opset)


def _batched(
    emit: Emitter, operation: Operation, many: Mapping[Tensor, Tensor]
) -> tuple[Tensor, ...]:
    """The results with the new axis."""
    op = _Many(emit, operation, many)
    if (rule := BATCHING.get(operation.name)) is None:
        raise op.refusal("values")
    with emit.deriving(
        operation.origin, with_suffix(emit.called(operation.outputs[0]))
    ):
        first, *others = rule(op)
        if isinstance(first, float):
            # It does not depend on the values.
            first = emit("constant", shape=op.whole, value=(first,))
    results = tensors((first, *others))
    for plain, widened in zip(operation.outputs, results, strict=True):
        emit.set_hint(widened, emit.called(plain))
    return results


@dataclass(frozen=True)
class _Many:
    """An operation, and the tensors that have the new axis, by the same without it."""

    emit: Emitter
    operation: Operation
    many: Mapping[Tensor, Tensor]

    @property
    def count(self) -> Dimension:
        """How many values there are: the extent of the new axis."""
        return next(iter(self.many.values())).shape[0]

    @property
    def whole(self) -> Shape:
        """The shape of the result, with the new axis."""
        return (self.count, *self.operation.outputs[0].shape)

    def aligned(self, operand: Operand) -> Any:
        """The operand with a leading axis, of extent 1 where it does not depend on the
        input; what has rank 0 is aligned with anything.
        """
        if isinstance(operand, tuple):
            return tuple(map(self.aligned, operand))
        if not isinstance(operand, Tensor):
            return operand
        if operand in self.many or operand.rank == 0:
            return self.many.get(operand, operand)
        return self._single(operand)

    def repeated(self, operand: Operand) -> Any:
        """The operand with the new axis, in full."""
        if isinstance(operand, tuple):
            return tuple(map(self.repeated, operand))
        if not isinstance(operand, Tensor) or operand in self.many:
            return self.aligned(operand)
        repeats = [self.count] + [1] * operand.rank
        repeated = self.emit("tile", self._single(operand), repeats=repeats)
        self.emit.set_hint(repeated, f"{self.emit.called(operand)}_repeated")
        return repeated

    def _single(self, operand: Tensor) -> Tensor:
        single = self.emit("unsqueeze", operand, axes=[0])
        self.emit.set_hint(single, f"{self.emit.called(operand)}_aligned")
        return single

    def again(
        self, *operands: Any, hint: str | None = None, **attributes: Any
    ) -> tuple[Any, ...]:
        """The results of the operation with other operands and attributes."""
        results = self.emit.emit_again(self.operation, operands, **attributes)
        if hint is not None:
            self.emit.set_hint(results[0], self.emit.naming(hint))
        return results

    def refusal(self, what: str) -> NoDerivativeError:
        """That the operation has no form for many of these at once."""
        message = f"'{self.operation.name}' has no form for many {what} at once"
        return NoDerivativeError(message, self.operation.span)
