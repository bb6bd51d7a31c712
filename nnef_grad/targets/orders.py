"""Elements in order, where there is no operation for it: of a few the largest one is found
again and again; for many, the rank of an element is the number of those before it, which all
pairs are compared for:

    [.., i, j, ..]   whether element j is before element i, in the place of the axis
    [.., i, k, ..]   whether element i has rank k
"""

from __future__ import annotations

from collections.abc import Sequence

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import ARGSORT, Operand, Operation, Tensor
from nnef_grad.language.types import LARGEST
from nnef_grad.ops.join import positions_along
from nnef_grad.ops.shape import line
from nnef_grad.targets import conditions as when
from nnef_grad.targets.registry import lowering

# The smallest numbers of single precision that are not infinite.
_SMALLEST = [-LARGEST + i * 2.0**104 for i in range(3)]


@lowering(ARGSORT, applies=~when.ordering_many)
def argsort_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """By steps, or by ranks."""
    return [(_by_steps if when.taking_few(op) else _by_ranks)(emit, op)]


def _by_steps(emit: Emitter, op: Operation) -> Tensor:
    """The index of the largest one, and then of the largest of the others."""
    (x,), axis, count = op.inputs, op.attributes["axis"], op.attributes["count"]
    numbers = positions_along(emit, x.shape[axis], axis, x.rank)
    rest = x if op.attributes["descending"] else emit("neg", x, hint="turned")
    if count > 1:
        rest = _above_the_smallest(emit, rest)
    indices: list[Tensor] = []
    while len(indices) < count:
        if indices:
            # What was chosen is not chosen again: the others are greater.
            last = emit("cast", indices[-1], dtype="scalar", hint="place")
            hit = emit("eq", last, numbers, hint="hit")
            rest = emit("select", hit, _SMALLEST[0], rest, hint="rest")
        indices.append(emit("argmax_reduce", rest, axes=[axis], hint="index"))
    return emit("concat", indices, axis=axis) if len(indices) > 1 else indices[0]


def _above_the_smallest(emit: Emitter, x: Tensor) -> Tensor:
    """What is in the order of the elements, of which the smallest number may be one, or what
    is infinite: numbers greater than the smallest one, next to which numbers count as equal.
    """
    first, second, third = _SMALLEST
    least = emit("lt", x, first, hint="is_least")
    return emit("select", least, second, emit("max", x, third), hint="order")


def _by_ranks(emit: Emitter, op: Operation) -> Tensor:
    """The sum of the indices of those elements that have a rank, which is one."""
    (x,), axis = op.inputs, op.attributes["axis"]
    ranks, rank = op.attributes["ranks"], x.rank + 1
    key = emit("neg", x, hint="key") if op.attributes["descending"] else x
    own = emit("unsqueeze", key, axes=[axis + 1], hint="own")
    other = emit("unsqueeze", key, axes=[axis], hint="other")
    numbers, others = (
        positions_along(emit, x.shape[axis], a, rank) for a in (axis, axis + 1)
    )
    is_earlier = emit("lt", others, numbers, hint="is_earlier")
    reached = emit("le", other, own, hint="reached")
    below = emit("lt", other, own, hint="below")
    before = emit("select", is_earlier, reached, below, hint="before")
    ones = emit("select", before, 1.0, 0.0, hint="ones")
    own_rank = emit("sum_reduce", ones, axes=[axis + 1], hint="rank")
    if ranks:
        taken = line(emit, ranks, "ranks", axis + 1, rank)
    else:
        taken = positions_along(emit, op.attributes["count"], axis + 1, rank)
    has_rank = emit("eq", own_rank, taken, hint="hit")
    named = emit("select", has_rank, numbers, 0.0, hint="named")
    sums = emit("sum_reduce", named, axes=[axis], hint="sums")
    found = emit("squeeze", sums, axes=[axis], hint="index")
    return emit("cast", found, dtype="integer")
