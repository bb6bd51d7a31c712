"""Batch normalization by the mean and the variance of the batch, as in training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from nnef_grad.base.errors import UsageError
from nnef_grad.emit.arguments import bind
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.inline import Decompose, inline
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.ops.opset import OpSet
from nnef_grad.ops.tensors import number

NORMALIZATION = "batch_normalization"


@dataclass(frozen=True)
class Running:
    """A graph that normalizes by the statistics of the batch.

    Attributes:
        graph: the graph. After its own outputs it returns the new running statistics.
        statistics: the output with the new value of each running mean and variance.
    """

    graph: Graph
    statistics: Mapping[Tensor, Tensor]


def statistics_of(graph: Graph) -> set[Tensor]:
    """The variables that are running means and variances."""
    declared = set(graph.variables)
    return {
        operand
        for op in graph.operations
        if op.name == NORMALIZATION
        for operand in op.operands[1:3]
        if isinstance(operand, Tensor) and operand in declared
    }


def with_batch_statistics(graph: Graph, momentum: float, opset: OpSet) -> Running:
    """The graph with the statistics of the batch in place of the running ones, which move
    towards them.

    Args:
        graph: the forward graph.
        momentum: how much of the new running value is that of the batch; the variance is
            the unbiased one there, as in torch.
        opset: the operations of the graph.

    Raises:
        UsageError: a channel has a single element, whose variance is zero; or the momentum
            is none.
    """
    if not 0.0 < momentum <= 1.0:
        message = (
            f"the momentum of running statistics must be in (0, 1], not {momentum}"
        )
        raise UsageError(message)
    running, moved = statistics_of(graph), dict[Tensor, Tensor]()

    def body(operation: Operation) -> Decompose | None:
        is_open = operation.name == NORMALIZATION and running.issuperset(
            operation.operands[1:3]
        )
        return partial(_normalized, moved, momentum) if is_open else None

    changed = inline(graph, body, opset)
    outputs = (*changed.outputs, *moved.values())
    return Running(replace(changed, outputs=outputs), moved)


def _normalized(
    moved: dict[Tensor, Tensor], momentum: float, emit: Emitter, operation: Operation
) -> tuple[Any, ...]:
    """Emits the normalization by the statistics of the batch; `moved` gets the new value of
    each running one.
    """
    operands: Any = operation.operands
    x, mean, variance, *parameters = operands
    size = prod(x.shape[:1] + x.shape[2:])
    if size == 1:
        name = emit.names[x]
        message = f"'{name}' has one element in a channel: its variance is zero"
        raise UsageError(message, operation.span)
    batch = _moments(emit, x)
    # Of the batch it is the mean of squares; what it estimates is larger.
    unbiased = emit("mul", batch[1], _quotient(emit, size), hint="unbiased")
    for running, value in ((mean, batch[0]), (variance, unbiased)):
        kept = emit("mul", moved.get(running, running), 1.0 - momentum)
        part = emit("mul", value, momentum)
        moved[running] = emit("add", kept, part)
        words = {"kept": kept, "part": part, "moved": moved[running]}
        for word, tensor in words.items():
            emit.set_hint(tensor, f"{word}_{emit.names[running]}")
    return emit.emit_again(operation, (x, *batch, *parameters))


def _quotient(emit: Emitter, size: Any) -> Any:
    """size / (size - 1), which is computed where the size has symbols."""
    if not has_symbols(size):
        return size / (size - 1)
    count = number(emit, size)
    return emit("div", count, emit("sub", count, 1.0), hint="factor")


def _moments(emit: Emitter, x: Tensor) -> list[Tensor]:
    """The mean and the variance of each channel, of shape [1, channels]."""
    axes = [axis for axis in range(x.rank) if axis != 1]
    values: dict[str, Any] = {"input": x, "axes": axes}
    call = bind(emit.opset.declarations["moments"], values, None)
    hints = (emit.naming("mean"), emit.naming("variance"))
    found = emit.emit_op(call, hints=hints)
    if x.rank == 2:
        return [tensor for tensor in found if isinstance(tensor, Tensor)]
    rest = list(range(2, x.rank))
    words = ("channel_mean", "channel_variance")
    return [
        emit("squeeze", tensor, axes=rest, hint=word)
        for tensor, word in zip(found, words, strict=True)
    ]
