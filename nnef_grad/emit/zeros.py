"""Zeros that gradients flow through, x - stop_gradient(x), as in straight-through estimators, and
what is linear in them. For those that do not differentiate, they are nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from nnef_grad.emit.arguments import bind
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import STOP, Graph, Operation, Tensor
from nnef_grad.graph.passes import prune
from nnef_grad.graph.rewriting import Fate, sweep
from nnef_grad.language.library import STDLIB
from nnef_grad.ops.linear import is_linear

# The names of stops whose zeros a derivative has only because a linear map must be applied to
# something: the map itself is the derivative, and what it is made of has none of them.
HELD = f"{STOP}_held"


def without_zeros(graph: Graph) -> Graph:
    """The graph with addends in the place of sums with such zeros."""
    stops = {t for op in graph.operations if op.name == STOP for t in op.outputs}
    return _without(graph, stops, lambda _: True)


def without_residuals(
    graph: Graph, names: Mapping[Tensor, str], is_new: Callable[[Tensor], bool]
) -> Graph:
    """A derivative without what is linear in zeros of held tensors: other derivatives of it
    would not be zero.

    Args:
        names: those of tensors that are not new.
        is_new: whether a tensor is of the derivative.
    """
    stops = {
        t
        for op in graph.operations
        if op.name == STOP
        for t in op.outputs
        if names.get(t, "").startswith(HELD)
    }
    return _without(graph, stops, is_new)


def _without(
    graph: Graph, stops: set[Tensor], is_dropped: Callable[[Tensor], bool]
) -> Graph:
    if not stops:
        return graph
    stopped = {
        op.outputs[0]: op.operands[0]
        for op in graph.operations
        if op.outputs[0] in stops
    }
    zeros: set[Tensor] = set()

    def change(op: Operation) -> Fate:
        result = op.outputs[0]
        is_zero = _is_difference(op, stopped) or _is_zero(op, zeros)
        zeros.update(op.outputs if is_zero else ())
        addend = None if is_zero or not is_dropped(result) else _addend(op, zeros)
        if addend is not None:
            is_output = result in graph.outputs
            return _made(op, "copy", x=addend) if is_output else {result: addend}
        if is_zero and is_dropped(result) and not has_symbols(result.shape):
            return _made(op, "constant", shape=result.shape, value=(0.0,))
        return op

    return prune(sweep(graph, change))


def _made(op: Operation, name: str, **values: Any) -> Operation:
    """Another operation that makes the result of one."""
    return replace(op, **bind(STDLIB[name], values, None)._asdict())


def _is_difference(op: Operation, stopped: Mapping[Tensor, object]) -> bool:
    if op.name != "sub":
        return False
    x, y = op.operands
    return isinstance(y, Tensor) and y in stopped and stopped[y] is x


def _is_zero(op: Operation, zeros: set[Tensor]) -> bool:
    """Whether the result of an operation is zero, as zeros are among its operands."""
    is_of_these = len(op.outputs) == 1 and not zeros.isdisjoint(op.inputs)
    return is_of_these and is_linear(op, zeros)


def _addend(op: Operation, zeros: set[Tensor]) -> Tensor | None:
    """The other summand of zeros, if it has the shape of the sum."""
    if op.name not in ("add", "sub"):
        return None
    x, y = op.operands
    for one, zero in [(x, y), (y, x)][: 2 if op.name == "add" else 1]:
        is_sum = isinstance(zero, Tensor) and zero in zeros
        if is_sum and isinstance(one, Tensor) and one.shape == op.outputs[0].shape:
            return one
    return None
