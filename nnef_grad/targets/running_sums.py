"""Sums from one end of an axis with symbols to each element, which a window of the whole axis
adds up: tract wants the numbers of windows, and has triangles of any extent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.inline import Decompose
from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import Operand, Operation, Tensor, shape_of
from nnef_grad.ops.shape import reshaped, transposed
from nnef_grad.targets.own_operations import found_by, tract_core
from nnef_grad.targets.registry import Relations
from nnef_grad.targets.shape import fill


@found_by("tract", "onnx", name="box")
def _running_sum(op: Operation, near: Relations) -> Decompose | None:
    """The running sum of a window along an open axis; None for others. Ones are counted."""
    axis = _open_axis(op)
    if axis is None:
        return None
    made = near.producer(op.operands[0])
    is_count = made is not None and made.attributes.get("value") == (1.0,)
    return partial(_counts if is_count else _products, axis)


def _open_axis(op: Operation) -> int | None:
    """The axis that is added up along, from one of its ends."""
    size, padding = op.attributes["size"], op.attributes["padding"]
    axes = [axis for axis, extent in enumerate(size) if has_symbols(extent)]
    if len(axes) != 1 or not padding or op.attributes["normalize"]:
        return None
    (axis,) = axes
    extent, others = shape_of(op.operands[0])[axis], range(len(size))
    is_plain = all((size[a], padding[a]) == (1, (0, 0)) for a in others if a != axis)
    is_whole = size[axis] == extent and {*padding[axis]} == {0, extent - 1}
    return axis if is_plain and is_whole else None


def _triangle(emit: Emitter, op: Operation, axis: int) -> Tensor:
    """A one in row i and column j if j is the place of a sum with the element at i."""
    extent: Dimension = op.outputs[0].shape[axis]
    ones = tract_core(emit, "broadcast", 1.0, shape=[extent, extent], hint="ones")
    is_upper = op.attributes["padding"][axis][1] == 0
    made = tract_core(emit, "trilu", ones, k=0, upper=is_upper, hint="triangle")
    assert isinstance(made, Tensor)
    return made


def _counts(axis: int, emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The sums of columns."""
    shape = op.outputs[0].shape
    triangle = _triangle(emit, op, axis)
    count = emit("sum_reduce", triangle, axes=[0], hint="count")
    row = tuple(n if a == axis else 1 for a, n in enumerate(shape))
    return [fill(emit, reshaped(emit, count, row), shape)]


def _products(axis: int, emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The product of each line with the triangle."""
    (x,), shape = op.inputs, op.outputs[0].shape
    axes = [a for a in range(len(shape)) if a != axis] + [axis]
    back = sorted(range(len(axes)), key=axes.__getitem__)
    moved = transposed(emit, x, axes, hint="moved")
    lines = prod(moved.shape[:-1]), shape[axis]
    rows = reshaped(emit, moved, lines, hint="lines")
    sums = emit("matmul", rows, _triangle(emit, op, axis), hint="sums")
    return [transposed(emit, reshaped(emit, sums, moved.shape), back)]
