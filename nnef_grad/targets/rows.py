"""Rows at indices, where the standard has products with ones at these, and zeros elsewhere:
they are read, or added to zeros, or to what the product is added to.

hit = eq(index, positions);
onehot = select(hit, 1.0, 0.0);
y = matmul(onehot, rows, transposeA = true);   ->   y = tract_core_scatter_nd(zeros, index, rows);
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import NamedTuple

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import Decompose, DefUse
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Operand, Operation, Tensor
from nnef_grad.ops.join import positions_along
from nnef_grad.ops.shape import reshaped
from nnef_grad.targets.own_operations import found_by, tract_core
from nnef_grad.targets.positions import Hits, hits_of, index_of


class _Product(NamedTuple):
    """A product of the ones of a comparison with rows, and whether it is of the positions, each
    of which has a row, or of the indices.
    """

    hits: Hits
    rows: Tensor
    is_of_positions: bool


def _product(op: Operation, near: DefUse) -> _Product | None:
    """The factors of a product; None for another one."""
    ones = near.producer(op.operands[0])
    if ones is None or ones.name != "select" or op.attributes["transposeB"]:
        return None
    condition, *choices = ones.operands
    hits = hits_of(condition, near)
    if hits is None or choices != [1.0, 0.0] or len(hits.shape) != op.outputs[0].rank:
        return None
    rank = len(hits.shape)
    summed = rank - (2 if op.attributes["transposeA"] else 1)
    _, rows = op.inputs
    is_whole = rank == rows.rank and hits.shape[:-2] == rows.shape[:-2]
    is_matrix = is_whole and hits.axis >= rank - 2
    return _Product(hits, rows, summed == hits.axis) if is_matrix else None


@found_by("tract onnxruntime", "matmul")
def _rows(op: Operation, near: DefUse) -> Decompose | None:
    """For each index the row at its position; or for each position the sum of the rows whose
    index it is.
    """
    product = _product(op, near)
    if product is None or op.outputs[0].rank != 2:
        return None
    if product.is_of_positions:
        return partial(_read, near, product)
    return partial(_added, near, product, None)


@found_by("onnxruntime", "matmul")
def _rows_for_each(op: Operation, near: DefUse) -> Decompose | None:
    """Sums for each example of a batch, of a known size."""
    product = _product(op, near)
    if product is None or not _is_summed_for_each(op, product):
        return None
    return partial(_added, near, product, None)


def _is_summed_for_each(op: Operation, product: _Product) -> bool:
    is_open = has_symbols((*product.rows.shape, *op.outputs[0].shape))
    return op.outputs[0].rank == 3 and not (product.is_of_positions or is_open)


@found_by("onnxruntime", "add")
def _onto(op: Operation, near: DefUse) -> Decompose | None:
    """Rows are added to what they would be added to later: no second tensor is as large."""
    x, y = op.operands
    for onto, product in ((x, near.producer(y)), (y, near.producer(x))):
        if product is None or product.name != "matmul" or not isinstance(onto, Tensor):
            continue
        (sums,) = product.outputs
        if near.uses[sums] > 1 or onto.shape != sums.shape:
            continue
        found = _product(product, near)
        if found is None or found.is_of_positions:
            continue
        if sums.rank == 2 or _is_summed_for_each(product, found):
            return partial(_added, near, found, onto)
    return None


def _read(
    near: DefUse, product: _Product, emit: Emitter, op: Operation
) -> Sequence[Operand]:
    """The rows at the indices, and zeros for those of no position."""
    index, inside = index_of(emit, near, product.hits)
    line = reshaped(emit, index, (prod(index.shape),), hint="index")
    rows = tract_core(emit, "gather", product.rows, line, axis=0, hint="rows")
    if inside is None:
        return [rows]
    column = reshaped(emit, inside, (prod(index.shape), 1), hint="inside")
    return [emit("select", column, rows, 0.0)]


def _added(
    near: DefUse,
    product: _Product,
    onto: Tensor | None,
    emit: Emitter,
    op: Operation,
) -> Sequence[Operand]:
    """The rows, added to zeros, or onto a tensor, where they are from; zeros for indices of no
    position, which a product leaves out, and which end the process of tract.
    """
    hits, rows, _ = product
    index, inside = index_of(emit, near, hits)
    columns = (*rows.shape[:-1], 1)
    if inside is not None:
        column = reshaped(emit, inside, columns, hint="inside")
        rows = emit("select", column, rows, 0.0, hint="rows")
    index = reshaped(emit, index, columns, hint="index")
    if rows.rank == 3:
        index = _with_examples(emit, index)
    if onto is None:
        shape = (*rows.shape[:-2], hits.extent, rows.shape[-1])
        onto = tract_core(emit, "broadcast", 0.0, shape=shape, hint="zeros")
    return [tract_core(emit, "scatter_nd", onto, index, rows, reduction="add")]


def _with_examples(emit: Emitter, index: Tensor) -> Tensor:
    """Each index after the number of its example, whose rows it is an index of."""
    count, taken, _ = index.shape
    numbers = positions_along(emit, count, 0, 3)
    examples = emit("tile", numbers, repeats=[1, taken, 1], hint="examples")
    column = emit("cast", index, dtype="scalar", hint="index")
    return emit("concat", (examples, column), axis=2, hint="indices")
