"""Matrix products in which nothing is transposed, and no batch is broadcast; a product
that is one number is a sum, and a sum of products may be one product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from itertools import pairwise
from math import prod
from typing import Any

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import Decompose, DefUse, inline
from nnef_grad.graph.bounds import nominal
from nnef_grad.graph.ir import Graph, Operation, Tensor, shape_of
from nnef_grad.ops.parts import section
from nnef_grad.ops.shape import reshaped, transposed
from nnef_grad.targets import conditions as when
from nnef_grad.targets.conditions import Condition
from nnef_grad.targets.forms import form
from nnef_grad.targets.registry import lowering
from nnef_grad.targets.shape import fill


@lowering("matmul")
def matmul_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """First the operands are transposed, then those with fewer batches are repeated."""
    x, y = op.inputs
    flags = op.attributes["transposeA"], op.attributes["transposeB"]
    if when.inner_product(op):
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


@form("sum_reduce", _over_batches & when.set_to(normalize=False), source="matmul")
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
    product = emit(
        "matmul", *joined, transposeA=flags[0], transposeB=flags[1], hint="product"
    )
    return [reshaped(emit, product, op.outputs[0].shape)]


def _joined_rows(emit: Emitter, x: Tensor, *, inner_first: bool) -> Tensor:
    """[batch..., inner, rows] to [batch * inner, rows], or the other way round."""
    *batch, first, last = x.shape
    if inner_first:
        return reshaped(emit, x, (prod(batch) * first, last), "lines")
    axes = [len(batch), *range(len(batch)), len(batch) + 1]
    moved = transposed(emit, x, axes, "moved")
    return reshaped(emit, moved, (first, prod(batch) * last), "lines")


# ---- Products of a column and a row ----


@form("matmul", when.outer_product)
def column_times_row(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """Nothing is summed: the gradient of a matrix for a batch of one."""
    m, n = op.outputs[0].shape
    shapes = zip(op.inputs, ((m, 1), (1, n)), ("column", "row"), strict=True)
    column, row = (reshaped(emit, x, shape, name) for x, shape, name in shapes)
    return [emit("mul", column, row)]


# ---- Many rows ----

# A product of more blocks takes too many operations.
_MOST_BLOCKS = 16


@form("matmul", when.crowded & Condition(lambda op: len(_blocks(op)) <= _MOST_BLOCKS))
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


def join_products(graph: Graph) -> Graph:
    """The graph with a product of longer rows in place of a sum of products, where that
    moves less memory: as in the gradient of a matrix that is used at each step.
    """
    near = DefUse(graph)
    sums = _sums_of_products(near) if any(near.named("matmul")) else {}

    def build(op: Operation) -> Decompose | None:
        terms = sums.get(op.outputs[0], []) if op.name == "add" else []
        products = _alike([near.producers[x] for x in terms if _is_product(x, near)])
        if not products or not _pays(products):
            return None
        joined = {product.outputs[0] for product in products}
        return partial(
            _joined_products, products, [x for x in terms if x not in joined]
        )

    return inline(graph, build) if sums else graph


def _is_product(x: Tensor, near: DefUse) -> bool:
    """Whether a tensor is a product of matrices, for one sum alone."""
    return near.uses[x] == 1 and near.chain(x, "matmul") is not None


def _sums_of_products(near: DefUse) -> dict[Tensor, list[Tensor]]:
    """The terms of sums that are no part of another one."""
    sums = dict[Tensor, list[Tensor]]()
    for op in near.named("add"):
        result = op.outputs[0]
        # A number that is added has another shape.
        if result.rank == 2 and {*map(shape_of, op.operands)} == {result.shape}:
            parts = [
                sums.pop(x) if x in sums and near.uses[x] == 1 else [x]
                for x in op.inputs
            ]
            longest, *others = sorted(parts, key=len, reverse=True)
            for part in others:
                # The lists of a long sum are not copied.
                longest.extend(part)
            sums[result] = longest
    return sums


def _pays(products: Sequence[Operation]) -> bool:
    """Whether the operands have fewer elements than the sums between."""
    operands = sum(prod(x.shape) for product in products for x in product.inputs)
    between = (len(products) - 1) * prod(products[0].outputs[0].shape)
    return nominal(operands) < nominal(between)


def _alike(products: Sequence[Operation]) -> list[Operation]:
    """The most products that are transposed alike."""
    groups: dict[object, list[Operation]] = {}
    for product in products:
        groups.setdefault((*product.settings.items(),), []).append(product)
    return max(groups.values(), key=len, default=[])


def _joined_products(
    products: Sequence[Operation], others: Sequence[Tensor], emit: Emitter, _: Operation
) -> Sequence[Tensor]:
    flags = products[0].attributes
    lefts, rights = zip(*(product.inputs for product in products), strict=True)
    left = emit("concat", lefts, axis=0 if flags["transposeA"] else 1, hint="lefts")
    right = emit("concat", rights, axis=1 if flags["transposeB"] else 0, hint="rights")
    joined = emit("matmul", left, right, **products[0].settings, hint="product")
    return [reduce(partial(emit, "add", hint="sum"), others, joined)]
