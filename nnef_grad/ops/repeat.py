"""Elements that are taken several times: their gradients are added."""

from __future__ import annotations

from itertools import accumulate, chain
from math import prod
from typing import cast

from nnef_grad.graph.extents import has_symbols, may_exceed
from nnef_grad.graph.ir import Operand, Operation, Shape, Tensor
from nnef_grad.ops.axes import check_axis, check_length
from nnef_grad.ops.parts import section
from nnef_grad.ops.registry import Emit, require, shape, vjp
from nnef_grad.ops.shape import reshaped, turned
from nnef_grad.ops.tensors import line

# The longest constant of positions.
BLOCK = 1000


@shape("tile")
def tile_shape(input: Shape, repeats: tuple[int, ...]) -> Shape:
    """The extents are multiplied."""
    check_length("repeats", repeats, len(input))
    message = f"'repeats' must be positive, but are {list(repeats)}"
    require(all(may_exceed(count, 0) for count in repeats), message)
    return tuple(extent * count for extent, count in zip(input, repeats, strict=True))


@vjp("tile")
def tile_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor]:
    """The sum over the repeats, which first get an axis of their own if more than a
    single element is repeated.
    """
    (x,), repeats = op.inputs, op.attributes["repeats"]
    groups = [
        (count, extent) if count != 1 and extent != 1 else (count * extent,)
        for count, extent in zip(repeats, x.shape, strict=True)
    ]
    starts = list(accumulate(map(len, groups), initial=0))[:-1]
    summed = [start for start, count in zip(starts, repeats, strict=True) if count != 1]
    extra = [s for s, group in zip(starts, groups, strict=True) if len(group) == 2]
    if not summed:
        return [dy]
    separate = reshaped(emit, dy, tuple(chain.from_iterable(groups)), hint="repeats")
    sums = emit("sum_reduce", separate, axes=summed, hint="sums")
    return [emit("squeeze", sums, axes=extra) if extra else sums]


@shape("gather")
def gather_shape(input: Shape, indices: Shape, axis: int) -> Shape:
    """The shape of the indices takes the place of the axis."""
    check_axis(axis, len(input))
    return (*input[:axis], *indices, *input[axis + 1 :])


@vjp("gather")
def gather_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor | None]:
    """A product with a matrix of zeros and ones, which adds up the gradients of equal
    indices.
    """
    x, axis = op.inputs[0], op.attributes["axis"]
    extent = x.shape[axis]
    before, after = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    onehot = one_hot(emit, op.operands[1], extent)
    taken = onehot.shape[0]
    if before == 1:
        rows = reshaped(emit, dy, (taken, after), hint="rows")
        sums = emit("matmul", onehot, rows, transposeA=True, hint="sums")
    else:
        columns = turned(emit, dy, (before, taken, after))
        rows = reshaped(emit, columns, (before * after, taken), hint="rows")
        sums = emit("matmul", rows, onehot, hint="sums")
        sums = turned(emit, sums, (before, after, extent))
    return [reshaped(emit, sums, x.shape), None]


def one_hot(emit: Emit, indices: Operand, extent: int) -> Tensor:
    """A row for each index: 1 in the column of its position, and otherwise 0."""
    positions = _positions(emit, extent)
    index: Operand
    if isinstance(indices, Tensor):
        column = reshaped(emit, indices, (prod(indices.shape), 1), hint="column")
        index = emit("cast", column, dtype="scalar", hint="index")
    else:
        index = float(cast("int", indices))
    taken = emit("eq", index, positions, hint="taken")
    return emit("select", taken, 1.0, 0.0, hint="onehot")


def _positions(emit: Emit, count: int) -> Tensor:
    """A row of the numbers from 0 on. Many are the sums of where a block of them begins
    and of the places in a block: the text is short, however many there are. Those of an
    extent with symbols are counted.
    """
    if has_symbols(count):
        ones = emit(
            "constant", dtype="scalar", shape=(1, count), value=(1.0,), hint="ones"
        )
        before = ((0, 0), (count - 1, 0))
        counts = emit("box", ones, size=(1, count), padding=before, hint="counts")
        return emit("sub", counts, 1.0, hint="positions")
    if count <= BLOCK:
        return line(emit, range(count), "positions")
    blocks = -(-count // BLOCK)
    column = reshaped(emit, _positions(emit, blocks), (blocks, 1), hint="blocks")
    begins = emit("mul", column, float(BLOCK), hint="begins")
    places = line(emit, range(BLOCK), "places")
    numbers = emit("add", begins, places, hint="numbers")
    row = reshaped(emit, numbers, (1, blocks * BLOCK), hint="positions")
    return section(emit, row, {1: (0, count)}, hint="positions")
