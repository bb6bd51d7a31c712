"""Rows of tables that stand for nothing: no gradient reaches them where they are looked up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from nnef_grad.base.errors import UsageError
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.inline import Decompose, inline
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.language.types import SCALAR
from nnef_grad.ops.opset import OpSet
from nnef_grad.training.choice import matching


def with_padding(graph: Graph, rows: Mapping[str, int], opset: OpSet) -> Graph:
    """The graph with one row of some tables for padding, as with `padding_idx` in torch.

    Args:
        graph: the forward graph.
        rows: the number of the row, by labels or names of tables, with wildcards; what is
            negative counts from the end.
        opset: the operations of the graph.

    Raises:
        UsageError: a variable is unknown, is not a lookup table, or has
            no such row.
    """
    tensors = graph.tensors
    of = {
        tensors[name]: row
        for pattern, row in rows.items()
        for name in matching(pattern, graph.labels)
    }
    read = {op.operands[0] for op in graph.operations if _looks_up(op)}
    paddings = {t: _row(graph, t, row, t in read) for t, row in of.items()}

    def body(operation: Operation) -> Decompose | None:
        is_padded = _looks_up(operation) and operation.operands[0] in paddings
        return partial(_padded, paddings) if is_padded else None

    return inline(graph, body, opset)


def _looks_up(operation: Operation) -> bool:
    return operation.name == "gather" and operation.attributes["axis"] == 0


def _row(graph: Graph, table: Tensor, row: int, is_read: bool) -> int:
    label = graph.labels[graph.names[table]]
    if not is_read:
        raise UsageError(f"'{label}' is not a lookup table")
    count = table.shape[0]
    if not -count <= row < count:
        raise UsageError(f"'{label}' has {count} rows, and no row {row}")
    return row % count


def _padded(
    rows: Mapping[Any, int], emit: Emitter, operation: Operation
) -> tuple[Any, ...]:
    """Emits rows that are looked up, of which some are padding."""
    table, numbers = operation.operands
    assert isinstance(numbers, Tensor)
    hints = (emit.naming("rows"),)
    (found,) = emit.emit_again(operation, operation.operands, hints=hints)
    column = emit("unsqueeze", numbers, axes=[numbers.rank], hint="column")
    scalars = emit("cast", column, dtype=SCALAR.name, hint="numbers")
    is_padding = emit("eq", scalars, float(rows[table]), hint="is_padding")
    return (emit("select", is_padding, emit.stop(found), found),)
