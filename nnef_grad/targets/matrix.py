"""Matrix products in which nothing is transposed, and no batch is broadcast; a product
that is one number is a sum, and a sum of products may be one product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.inline import Decompose, inline
from nnef_grad.graph.extents import nominal
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.ops.parts import section
from nnef_grad.ops.shape import reshaped, transposed
from nnef_grad.targets.conditions import (
    Condition,
    crowded,
    inner_product,
    outer_product,
    set_to,
)
from nnef_grad.targets.forms import form
from nnef_grad.targets.registry import Relations, lowering
from nnef_grad.targets.shape import fill


@lowering("matmul")
def matmul_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """First the operands are transposed, then those with fewer batches are repeated."""
    x, y = op.inputs
    flags = op.attributes["transposeA"], op.attributes["transposeB"]
    if inner_product(op):
        x, y = _turned(emit, x, not flags[0]), _turned(emit, y, flags[1])
        products = emit("mul", x, y, hint="products")
        return [emit("sum_reduce", products, axes=[x.rank - 2])]
    if any(flags) and x.rank > 2:
        return [emit("matmul", _turned(emit, x, flags[0]), _turned(emit, y, flags[1]))]
    return [emit("matmul", *_filled(emit, op), **op.settings)]


def _filled(emit: Emitter, op: Operation) -> Iterator[Any]:
    """The operands of a product, with all batches."""
    batch = op.outputs[0].shape[:-2]
    return (fill(emit, x, (*batch, *x.shape[-2:]), "repeated") for x in op.inputs)


def _turned(emit: Emitter, x: Tensor, flag: bool) -> Tensor:
    *batch, row, column = range(x.rank)
    order = [*batch, column, row]
    return emit("transpose", x, axes=order, hint="transposed") if flag else x


@Condition
def _over_batches(op: Operation) -> bool:
    """All axes but those of the matrices are summed over, or have one element."""
    axes, batch = op.attributes["axes"], op.inputs[0].shape[:-2]
    is_summed = all(axis in axes or n == 1 for axis, n in enumerate(batch))
    return is_summed and max(axes, default=len(batch)) < len(batch)


@form("sum_reduce", _over_batches & set_to(normalize=False), source="matmul")
def product_of_all_batches(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """A sum over products is the product of rows that go through the whole batch."""
    source = emit.producer(op.inputs[0])
    assert source is not None
    flags = source.attributes["transposeA"], source.attributes["transposeB"]
    left, right = _filled(emit, source)
    joined = (
        _joined_rows(emit, left, inner_first=flags[0]),
        _joined_rows(emit, right, inner_first=not flags[1]),
    )
    found = emit(
        "matmul", *joined, transposeA=flags[0], transposeB=flags[1], hint="product"
    )
    return [reshaped(emit, found, op.outputs[0].shape)]


def _joined_rows(emit: Emitter, x: Tensor, *, inner_first: bool) -> Tensor:
    """[batch..., inner, rows] to [batch * inner, rows], or the other way round."""
    *batch, first, last = x.shape
    if inner_first:
        return reshaped(emit, x, (prod(batch) * first, last), "lines")
    axes = [len(batch), *range(len(batch)), len(batch) + 1]
    moved = transposed(emit, x, axes, "moved")
    return reshaped(emit, moved, (first, prod(batch) * last), "lines")


# ---- Products of a column and a row ----


@form("matmul", outer_product)
def column_times_row(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """Nothing is summed: the gradient of a matrix for a batch of one."""
    m, n = op.outputs[0].shape
    shapes = zip(op.inputs, ((m, 1), (1, n)), ("column", "row"), strict=True)
    column, row = (reshaped(emit, x, shape, name) for x, shape, name in shapes)
    return [emit("mul", column, row)]


# ---- Many rows ----

# A product of more blocks takes too many operations.
_MOST_BLOCKS = 16


@form("matmul", crowded & Condition(lambda op: len(_blocks(op)) <= _MOST_BLOCKS))
def product_for_each_block(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """Blocks of rows, which have more columns than rows."""
    (x, y), axis = op.inputs, int(op.attributes["transposeA"])
    each = [
        emit("matmul", section(emit, x, {axis: ends}), y, **op.settings, hint="block")
        for ends in _blocks(op)
    ]
    return [emit("concat", each, axis=0)]


def _blocks(op: Operation) -> list[tuple[int, int]]:
    """Where the rows of each block begin and end."""
    rows, columns = op.outputs[0].shape
    return [*pairwise([*range(0, rows, columns // 2), rows])]


# ---- Sums of products ----


class _Sum(NamedTuple):
    """The terms of a sum: products of matrices, for this sum alone, and other tensors."""

    products: list[Operation]
    others: list[Tensor]


def join_products(graph: Graph) -> Graph:
    """The graph with a product of longer rows in place of a sum of products, where that
    moves less memory: as in the gradient of a matrix that is used at each step.
    """
    sums = _sums_of_products(graph)

    def build(op: Operation) -> Decompose | None:
        found = sums.get(op.outputs[0]) if op.name == "add" else None
        if found is None or not _pays(found, op):
            return None
        return partial(_joined_products, found)

    return inline(graph, build) if sums else graph


def _sums_of_products(graph: Graph) -> dict[Tensor, _Sum]:
    """The sums that are no part of another one."""
    near, sums = Relations(graph), dict[Tensor, _Sum]()
    for op in graph.operations:
        result = op.outputs[0]
        if op.name == "matmul" and result.rank == 2:
            sums[result] = _Sum([op], [])
        elif op.name == "add" and all(x.shape == result.shape for x in op.inputs):
            parts = [
                sums.pop(x) if x in sums and near.uses[x] == 1 else _Sum([], [x])
                for x in op.inputs
            ]
            sums[result] = reduce(_merged, sorted(parts, key=_length, reverse=True))
    return sums


def _length(part: _Sum) -> int:
    return len(part.products)


def _merged(part: _Sum, other: _Sum) -> _Sum:
    """Both, in the lists of the first one: the lists of a long sum are not copied."""
    part.products.extend(other.products)
    part.others.extend(other.others)
    return part


def _pays(found: _Sum, op: Operation) -> bool:
    """Whether the operands have fewer elements than the sums between."""
    products = _alike(found)
    operands = sum(prod(x.shape) for product in products for x in product.inputs)
    between = (len(products) - 1) * prod(op.outputs[0].shape)
    return nominal(operands) < nominal(between)


def _alike(found: _Sum) -> list[Operation]:
    """The products that are transposed like the first one."""
    settings = [product.settings for product in found.products[:1]]
    return [product for product in found.products if product.settings in settings]


def _joined_products(found: _Sum, emit: Emitter, op: Operation) -> Sequence[Tensor]:
    products = _alike(found)
    flags = products[0].attributes
    lefts, rights = zip(*(product.inputs for product in products), strict=True)
    left = emit("concat", lefts, axis=0 if flags["transposeA"] else 1, hint="lefts")
    right = emit("concat", rights, axis=1 if flags["transposeB"] else 0, hint="rights")
    joined = emit("matmul", left, right, **products[0].settings, hint="product")
    others = [p.outputs[0] for p in found.products if p not in products]
    return [reduce(partial(emit, "add", hint="sum"), [*others, *found.others], joined)]
