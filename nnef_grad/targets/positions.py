"""Comparisons of indices with all positions along an axis, by which the standard selects
elements and rows: what is compared, and the indices for operations that take these.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import DefUse, is_instance
from nnef_grad.graph.extents import Dimension, has_symbols, may_exceed
from nnef_grad.graph.ir import ARGSORT, Operand, Shape, Tensor, shape_of
from nnef_grad.ops.join import positions_along
from nnef_grad.ops.shape import reshaped
from nnef_grad.ops.traits import ARRANGING, MOVING
from nnef_grad.targets.facts import TRACT_CORE


class Hits(NamedTuple):
    """A comparison of indices with all positions along an axis, which the indices have none of;
    their shape is that which they have beside the positions.
    """

    indices: Tensor
    shape: Shape
    axis: int
    extent: Dimension


def of_rank(shape: Shape, rank: int) -> Shape:
    """A shape with the trailing extents of 1 that broadcasting gives it."""
    return (*shape, *(1,) * (rank - len(shape)))


def hits_of(condition: Operand, near: DefUse) -> Hits | None:
    """The parts of a comparison of indices with positions; None for another tensor."""
    equal = near.producer(condition)
    if equal is not None and equal.name == "squeeze":
        return _squeezed(hits_of(equal.operands[0], near), equal.attributes["axes"])
    if equal is None or equal.name != "eq" or len(equal.inputs) != 2:
        return None
    rank = equal.outputs[0].rank
    for indices, numbers in (equal.inputs, reversed(equal.inputs)):
        axis, shape = _counted(numbers, near), of_rank(indices.shape, rank)
        if axis is not None and shape[axis] == 1:
            hits = Hits(indices, shape, axis, numbers.shape[axis])
            # Runtimes want the end of a range as a number.
            is_fit = not has_symbols(hits.extent)
            is_fit = is_fit or _are_positions(indices, hits.extent, near)
            return hits if is_fit else None
    return None


def _squeezed(hits: Hits | None, axes: Sequence[int]) -> Hits | None:
    """The comparison without axes of one element."""
    if hits is None:
        return None
    shape = tuple([n for a, n in enumerate(hits.shape) if a not in axes])
    return hits._replace(shape=shape, axis=hits.axis - sum(a < hits.axis for a in axes))


def _counted(numbers: Tensor, near: DefUse) -> int | None:
    """The axis whose positions are the numbers of a tensor, if they are."""
    axes = [a for a, extent in enumerate(numbers.shape) if extent != 1]
    if len(axes) != 1:
        return None
    extent, source = numbers.shape[axes[0]], near.producer(near.source(numbers))
    if source is not None and source.name == "constant":
        values = source.attributes["value"]
        is_row = values == tuple(map(float, range(len(values))))
        return axes[0] if is_row and len(values) == extent else None

    def row(emit: Emitter) -> Operand:
        return positions_along(emit, extent, axes[0], numbers.rank)

    return axes[0] if is_instance(near, numbers, row) else None


# ---- Indices as integers ----


def index_of(emit: Emitter, near: DefUse, hits: Hits) -> tuple[Tensor, Tensor | None]:
    """The indices as integers, and which of them are those of positions, unless all of them
    are. The others, which no position equals, become some of a position.
    """
    if _are_positions(hits.indices, hits.extent, near):
        integers = _integers(emit, hits.indices, near)
        return reshaped(emit, integers, hits.shape, "index"), None
    given = reshaped(emit, hits.indices, hits.shape, "index")
    nearest = emit("clamp", given, 0.0, float(hits.extent - 1), hint="nearest")
    place = emit("floor", nearest, hint="place")
    in_range = emit("eq", place, given, hint="in_range")
    return emit("cast", place, dtype="integer", hint="index"), in_range


# Their results are indices along an axis of their operand.
_FINDING = {"argmax_reduce", "argmin_reduce", ARGSORT, f"{TRACT_CORE}_topk"}


def _are_positions(x: Operand, extent: Dimension, near: DefUse) -> bool:
    """Whether all elements are indices along an axis with no greater extent: those of constants,
    those that were found, and those that rows are read at.
    """
    producer = near.producer(x)
    if producer is None:
        return False
    if producer.name in MOVING or producer.name == "cast":
        parts = producer.inputs
        return all(_are_positions(y, extent, near) for y in parts) or _is_read(
            x, extent, near
        )
    settings = producer.attributes
    if producer.name == "constant":
        values = settings["value"]
        is_whole = all(value >= 0 and float(value).is_integer() for value in values)
        return is_whole and not may_exceed(int(max(values)) + 1, extent)
    if producer.name not in _FINDING:
        return _is_read(x, extent, near)
    (searched,) = producer.inputs
    axes = settings["axes"] if "axes" in settings else (settings["axis"],)
    return not may_exceed(prod(searched.shape[a] for a in axes), extent)


def _is_read(x: Operand, extent: Dimension, near: DefUse) -> bool:
    """Whether rows of a table with no more of them are read at the same indices."""
    return any(
        near.source(op.operands[1]) is x
        and not may_exceed(shape_of(op.operands[0])[op.attributes["axis"]], extent)
        for op in near.named("gather", f"{TRACT_CORE}_gather")
    )


def _integers(emit: Emitter, x: Tensor, near: DefUse) -> Tensor:
    """The integers that scalars were cast from, arranged in the same way; or cast again."""
    producer = near.producer(x)
    assert producer is not None
    (given, *_) = producer.inputs or (x,)
    if producer.name == "cast" and given.dtype == "integer":
        return given
    source = near.producer(near.source(x, ARRANGING))
    is_cast = source is not None and source.name == "cast"
    if producer.name not in ARRANGING or not is_cast:
        return emit("cast", x, dtype="integer", hint="index")
    (arranged,) = emit.emit_again(producer, (_integers(emit, given, near),))
    assert isinstance(arranged, Tensor)
    return arranged
