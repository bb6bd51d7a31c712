"""Large variables that are read several times.

tract computes what depends on variables alone when it loads a graph: it turns filters, and
brings matrices into the order of its kernels. With a large variable it does so only if
nothing else reads that, or what does reads it alike, but it takes slices of any. So each
product of another kind reads its own slices, which are joined to the whole again:

    y = matmul(x, w, transposeB = true);        y = matmul(x, w, transposeB = true);
    dx = matmul(dy, w);                    ->   first = slice(w, axes = [0], begin = [0], end = [512]);
                                                second = slice(w, axes = [0], begin = [512], end = [1024]);
                                                whole = concat([first, second], axis = 0);
                                                dx = matmul(dy, whole);
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.inline import Decompose, inline
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor
from nnef_grad.graph.passes import count_uses
from nnef_grad.ops.parts import section
from nnef_grad.ops.traits import PRODUCTS, RESHAPING

# tract folds what is read by several operations up to 4 MiB.
MOST_FOLDED = 2**20
# What it folds, or packs, if an operand is known.
_FOLDED = PRODUCTS | RESHAPING | {"transpose"}

# A variable, and a number of a reader of it, for each of several readers.
_Readers = Mapping[Tensor, int]


def split_large_variables(graph: Graph) -> Graph:
    """The graph with parts of large variables, joined again, for all products but one."""
    readers = _further_readers(graph)

    def build(op: Operation) -> Decompose | None:
        own = readers.get(op.outputs[0])
        return partial(_joined_again, own) if own else None

    return inline(graph, build) if readers else graph


def _further_readers(graph: Graph) -> Mapping[Tensor, _Readers]:
    """By the result of an operation, the large variables that it should read by parts."""
    large = {
        op.outputs[0]
        for op in graph.operations
        if op.name == "variable" and prod(op.outputs[0].shape) > MOST_FOLDED
    }
    if not large:
        return {}
    folded: dict[Tensor, list[Operation]] = {x: [] for x in large}
    sliced: dict[Tensor, int] = dict.fromkeys(large, 0)
    for op in graph.operations:
        for x in large.intersection(op.inputs):
            if op.name in _FOLDED:
                folded[x].append(op)
            sliced[x] += op.name == "slice"
    uses, found = count_uses(graph), defaultdict[Tensor, dict[Tensor, int]](dict)
    for x, operations in folded.items():
        is_read_otherwise = uses[x] > len(operations) + sliced[x]
        numbers: dict[Any, int] = {}
        for op in operations:
            way, next_number = _way(op, x), len(numbers) + int(is_read_otherwise)
            if (number := numbers.setdefault(way, next_number)) > 0:
                found[op.outputs[0]][x] = number
    return found


def _way(op: Operation, x: Tensor) -> Any:
    """How an operation reads a variable: a product that is computed again, as the first
    one.
    """
    if op.name not in ("linear", "matmul"):
        return op.outputs[0]
    shapes = tuple(operand.shape for operand in op.inputs)
    return op.name, op.operands.index(x), tuple(op.settings.items()), shapes


def _joined_again(readers: _Readers, emit: Emitter, op: Operation) -> Sequence[Operand]:
    operands = [
        _in_parts(emit, x, readers[x]) if isinstance(x, Tensor) and x in readers else x
        for x in op.operands
    ]
    return emit.emit_again(op, operands)


def _in_parts(emit: Emitter, x: Tensor, number: int) -> Tensor:
    """Two parts of a variable, joined; another two for each number."""
    axis = max(range(x.rank), key=lambda axis: x.shape[axis])
    extent = x.shape[axis]
    middle = max(extent // (number + 1), 1)
    parts = [
        section(emit, x, {axis: ends}, hint="part")
        for ends in ((0, middle), (middle, extent))
    ]
    return emit("concat", parts, axis=axis, hint="whole")
