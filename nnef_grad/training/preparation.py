"""Changes of a forward graph for training, before it is differentiated: rows of tables for
padding, quantization, and batch normalization by the statistics of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from nnef_grad.base.errors import UsageError
from nnef_grad.emit.arguments import bind
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import Decompose, inline
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Graph, Operation, Quantization, Tensor
from nnef_grad.graph.rewriting import substitute
from nnef_grad.language.types import SCALAR, TensorType
from nnef_grad.ops.registry import OpSet
from nnef_grad.ops.shape import number
from nnef_grad.training.choice import matching

NORMALIZATION = "batch_normalization"

# ---- Rows of tables that stand for nothing: no gradient reaches them in a lookup ----


def with_padding(graph: Graph, rows: Mapping[str, int], opset: OpSet) -> Graph:
    """The graph with one row of some tables for padding, as with `padding_idx` in torch:
    its number, by labels or names of tables, with wildcards; what is negative counts from
    the end.
    """
    lookups = {
        op: op.operands[0]
        for op in graph.operations
        if op.name == "gather" and op.attributes["axis"] == 0
    }
    labels, tensors, paddings = graph.labels, graph.tensors, dict[Any, float]()
    # A later pattern overrides an earlier one.
    chosen = {n: row for how, row in rows.items() for n in matching(how, labels)}
    for name, row in chosen.items():
        table, label = tensors[name], labels[name]
        if table not in lookups.values():
            raise UsageError(f"'{label}' is not a lookup table")
        count = table.shape[0]
        if not -count <= row < count:
            raise UsageError(f"'{label}' has {count} rows, and no row {row}")
        paddings[table] = float(row % count)

    def body(operation: Operation) -> Decompose | None:
        row = paddings.get(lookups.get(operation))
        return None if row is None else partial(_padded, row)

    return inline(graph, body, opset)


def _padded(row: float, emit: Emitter, operation: Operation) -> tuple[Any, ...]:
    """Emits rows that are looked up, of which some are padding."""
    numbers: Any = operation.operands[1]
    hints = (emit.naming("rows"),)
    (rows,) = emit.emit_again(operation, operation.operands, hints=hints)
    column = emit("unsqueeze", numbers, axes=[numbers.rank], hint="column")
    scalars = emit("cast", column, dtype=SCALAR.dtype, hint="numbers")
    is_padding = emit("eq", scalars, row, hint="is_padding")
    return (emit("select", is_padding, emit.stop(rows), rows),)


# ---- Quantization-aware training ----


def with_quantization(graph: Graph, opset: OpSet) -> tuple[Graph, dict[Tensor, Tensor]]:
    """The graph with the quantization of each tensor as an operation, whose derivative is
    that of the calculus: straight through, within the range; and the quantized tensors.
    """
    if not graph.quantization:
        message = f"there is no quantization info for graph '{graph.name}'"
        raise UsageError(f"{message}: write it to graph.quant beside the graph")
    emitter = Emitter(opset.extended(graph.fragments), graph.names)
    quantized: dict[Tensor, Tensor] = {}
    for operation in graph.operations:
        emitter.append(substitute(operation, quantized))
        for tensor in operation.outputs:
            entry = graph.quantization.get(graph.names[tensor])
            if entry is not None:
                quantized[tensor] = _quantized(emitter, tensor, entry)
    changed = replace(
        graph,
        operations=tuple(emitter.operations),
        outputs=tuple(quantized.get(tensor, tensor) for tensor in graph.outputs),
        names=emitter.assigned_names(emitter.operations, reserved=graph.tensors),
        quantization={},
    )
    return changed, quantized


def _quantized(emitter: Emitter, tensor: Tensor, entry: Quantization) -> Any:
    """A tensor as its quantization rounds it."""
    definition, subject = entry.operation, emitter.names[tensor]
    if definition.name not in emitter.opset.declarations:
        message = f"'{definition.name}' is not a standard operation"
        raise UsageError(message, entry.span)
    first, *others = definition.parameters
    values: dict[str, Any] = {first.name: tensor}
    for parameter in others:
        value: Any = entry.attributes[parameter.name]
        if isinstance(parameter.type, TensorType) and isinstance(value, tuple):
            shape, items = _flat(value)
            how = {"dtype": parameter.type.dtype, "hint": f"{subject}_{parameter.name}"}
            value = emitter("constant", shape=shape, value=items, **how)
        values[parameter.name] = value
    hints = (f"{subject}_quantized",)
    call = bind(definition, values, None)
    return emitter.emit_op(call, hints=hints, span=entry.span)[0]


def _flat(value: tuple[Any, ...]) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """The shape of nested tuples of numbers, and the numbers."""
    if not isinstance(value[0], tuple):
        return (len(value),), value
    parts = [_flat(item) for item in value]
    items = tuple([item for _, items in parts for item in items])
    return (len(value), *parts[0][0]), items


# ---- Batch normalization by the mean and the variance of the batch ----


def statistics_of(graph: Graph) -> set[Any]:
    """The variables that are running means and variances."""
    normalizations = (op for op in graph.operations if op.name == NORMALIZATION)
    operands = {x for op in normalizations for x in op.operands[1:3]}
    return operands.intersection(graph.variables)


def with_batch_statistics(
    graph: Graph, momentum: float, opset: OpSet
) -> tuple[Graph, dict[Tensor, Tensor]]:
    """The graph with the statistics of the batch in place of the running ones, which move
    towards them; and the new value of each running mean and variance, which it returns
    after its own outputs. The momentum is how much of the new value is that of the batch;
    the variance is the unbiased one there, as in torch.
    """
    if not 0.0 < momentum <= 1.0:
        message = "the momentum of running statistics must be in (0, 1]"
        raise UsageError(f"{message}, not {momentum}")
    running, moved = statistics_of(graph), dict[Tensor, Tensor]()

    def body(operation: Operation) -> Decompose | None:
        statistics = operation.operands[1:3]
        is_open = operation.name == NORMALIZATION and running.issuperset(statistics)
        return partial(_normalized, moved, momentum) if is_open else None

    changed = inline(graph, body, opset)
    return replace(changed, outputs=(*changed.outputs, *moved.values())), moved


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
        message = f"'{emit.names[x]}' has one element in a channel"
        raise UsageError(f"{message}: its variance is zero", operation.span)
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


def _moments(emit: Emitter, x: Tensor) -> list[Any]:
    """The mean and the variance of each channel, of shape [1, channels]."""
    axes = [axis for axis in range(x.rank) if axis != 1]
    values: dict[str, Any] = {"input": x, "axes": axes}
    call = bind(emit.opset.declarations["moments"], values, None)
    hints = (emit.naming("mean"), emit.naming("variance"))
    mean, variance = emit.emit_op(call, hints=hints)
    if x.rank == 2:
        return [mean, variance]
    rest = list(range(2, x.rank))
    return [
        emit("squeeze", mean, axes=rest, hint="channel_mean"),
        emit("squeeze", variance, axes=rest, hint="channel_variance"),
    ]
