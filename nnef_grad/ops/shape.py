"""Axes and extents: checks of attributes that name axes, the operations by which tensors
enter a graph, the same elements in another shape or in another order of the axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nnef_grad.graph.extents import Dimension, has_symbols, may_exceed
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.graph.learning import all_equal, current_facts, equal, reaches
from nnef_grad.ops.batching import (
    Many,
    along_axes,
    batching_rule,
    further,
    with_attributes,
)
from nnef_grad.ops.examples import (
    MAY_MEET,
    MeetError,
    Place,
    Use,
    beside_axes,
    divided,
    place_rule,
    repeated_rule,
)
from nnef_grad.ops.linear import in_first, linearity_rule
from nnef_grad.ops.ranges import FINITE, Range, of_first, range_rule
from nnef_grad.ops.registry import Emit, ShapeError, require, shape, vjp, volume


def check_axes(axes: tuple[int, ...], rank: int) -> None:
    """Raises `ShapeError` where an axis of a tensor is out of range, or named twice."""
    message = f"a tensor of rank 0 has no axes, and 'axes' are {list(axes)}"
    require(rank > 0 or not axes, message)
    message = f"'axes' must be in 0..{rank - 1} for rank {rank}, but are {list(axes)}"
    require(all(0 <= axis < rank for axis in axes), message)
    require(len(set(axes)) == len(axes), f"'axes' must differ, but are {list(axes)}")


def check_axis(axis: int, rank: int) -> None:
    """Raises `ShapeError` where an axis of a tensor is out of range."""
    require(rank > 0, f"a tensor of rank 0 has no axis, and 'axis' is {axis}")
    message = f"'axis' must be in 0..{rank - 1} for rank {rank}, but is {axis}"
    require(0 <= axis < rank, message)


def check_length(name: str, items: tuple[object, ...], rank: int) -> None:
    """Raises `ShapeError` unless an attribute has an item for each dimension."""
    message = f"'{name}' must have an item for each of {rank} dimensions, but has {len(items)}"
    require(len(items) == rank, message)


@dataclass(frozen=True)
class Positions:
    """Positions along an axis, as in a range, whose ends may have symbols."""

    start: Dimension
    stop: Dimension
    step: int = 1

    @property
    def count(self) -> int:
        """How many there are: the quotient is rounded up."""
        return -((self.start - self.stop) // self.step)

    @property
    def least(self) -> Dimension:
        """The one that is nearest to the beginning of the axis."""
        if self.step > 0:
            return self.start
        return self.start + (self.count - 1) * self.step

    @property
    def backward(self) -> Positions:
        """The same, from the last one on."""
        last = self.start + (self.count - 1) * self.step
        return Positions(last, self.start - self.step, -self.step)

    def are_all(self, extent: Dimension) -> bool:
        """Whether they are all positions of an axis, in their order."""
        is_forward = self.step == 1 or extent == 1
        return is_forward and self.least == 0 and self.count == extent

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop, self.step))


# ---- Tensors in another shape ----


def with_extent(shape: Shape, axis: int, extent: Dimension) -> Shape:
    """The shape with another extent along an axis."""
    return (*shape[:axis], extent, *shape[axis + 1 :])


def reshaped(emit: Emit, x: Tensor, shape: Shape, hint: str | None = None) -> Tensor:
    """The same elements in another shape; x itself where it has the shape already."""
    return x if x.shape == shape else emit("reshape", x, shape=shape, hint=hint)


def transposed(
    emit: Emit, x: Tensor, axes: Sequence[int], hint: str | None = None
) -> Tensor:
    """The axes in another order; x itself where they have it already."""
    is_ordered = list(axes) == sorted(axes)
    return x if is_ordered else emit("transpose", x, axes=axes, hint=hint)


def turned(emit: Emit, x: Tensor, matrices: Shape) -> Tensor:
    """The elements of some matrices, with each of them transposed."""
    if 1 in matrices[-2:]:
        return x
    *batches, rows, columns = range(len(matrices))
    blocks = reshaped(emit, x, matrices, hint="blocks")
    return emit("transpose", blocks, axes=[*batches, columns, rows], hint="turned")


# ---- Another shape ----


@shape("reshape")
def reshape_shape(
    input: Shape, shape: tuple[int, ...], axis_start: int, axis_count: int
) -> Shape:
    """The extents in the axis range are replaced; the volume stays."""
    rank = len(input)
    message = f"'axis_start' must be in 0..{rank} for rank {rank}, but is {axis_start}"
    require(0 <= axis_start <= rank, message)
    most = rank - axis_start
    message = f"'axis_count' must be in -1..{most} from axis {axis_start} on, but is {axis_count}"
    require(-1 <= axis_count <= most, message)
    axis_end = rank if axis_count == -1 else axis_start + axis_count
    replaced = _resolve(shape, input[axis_start:axis_end])
    return (*input[:axis_start], *replaced, *input[axis_end:])


def _resolve(items: tuple[int, ...], input: Shape) -> Shape:
    """The extents that items stand for: 0 keeps one, -1 takes what remains."""
    message = f"the items of 'shape' must be at least -1, but are {list(items)}"
    # Where no network is read, extents are those of tensors, or products of them.
    is_made = current_facts() is None
    require(
        all(
            item == -1 or (is_made and has_symbols(item)) or reaches(item, 0)
            for item in items
        ),
        message,
    )
    require(items.count(-1) <= 1, f"'shape' may have one item -1, but is {list(items)}")
    message = (
        f"an item 0 of 'shape' keeps an extent, and there is none in {list(input)}"
        f" for each 0 of {list(items)}"
    )
    require(0 not in items[len(input) :], message)
    extents = [input[a] if item == 0 else item for a, item in enumerate(items)]
    count, rest = volume(input), prod(extent for extent in extents if extent != -1)
    message = f"'shape' {list(items)} does not fit the extents {list(input)} of volume {count}"
    is_open = -1 in extents
    # Where all extents are given, there may be none of an open one.
    require((not is_open and has_symbols(rest)) or reaches(rest, 1), message)
    require(equal(count // rest * rest if is_open else rest, count), message)
    return tuple(count // rest if extent == -1 else extent for extent in extents)


@vjp("reshape")
def reshape_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor]:
    """The elements return to their places."""
    return [reshaped(emit, dy, op.inputs[0].shape)]


@shape("squeeze")
def squeeze_shape(input: Shape, axes: tuple[int, ...]) -> Shape:
    """The axes of the input that are named go; they must have extent 1."""
    check_axes(axes, len(input))
    extents = [input[axis] for axis in axes]
    message = f"only extents of 1 can be squeezed, and those of axes {list(axes)} are {extents}"
    require(all(equal(extent, 1) for extent in extents), message)
    gone = set(axes)
    return tuple(extent for axis, extent in enumerate(input) if axis not in gone)


@shape("unsqueeze")
def unsqueeze_shape(input: Shape, axes: tuple[int, ...]) -> Shape:
    """The axes that are named are new; they are counted in the output, in any order."""
    rank = len(input) + len(axes)
    check_axes(axes, rank)
    extents, new = iter(input), set(axes)
    return tuple(1 if axis in new else next(extents) for axis in range(rank))


@vjp("squeeze", "unsqueeze")
def squeeze_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor]:
    """The axes are inserted, or removed, again."""
    inverse = "unsqueeze" if op.name == "squeeze" else "squeeze"
    axes = sorted(op.attributes["axes"])
    return [emit(inverse, dy, axes=axes) if axes else dy]


# ---- Another order ----


@shape("transpose")
def transpose_shape(input: Shape, axes: tuple[int, ...]) -> Shape:
    """A permutation of the leading axes; axes beyond the list stay."""
    rank, count = len(input), len(axes)
    message = f"'axes' may have {rank} items for rank {rank}, but have {count}"
    require(count <= rank, message)
    message = f"'axes' must be a permutation of 0..{count - 1}, but are {list(axes)}"
    require(sorted(axes) == list(range(count)), message)
    return (*(input[axis] for axis in axes), *input[count:])


@vjp("transpose")
def transpose_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor]:
    """The inverse permutation, of all axes."""
    axes = op.attributes["axes"]
    order = [*axes, *range(len(axes), dy.rank)]
    return [transposed(emit, dy, sorted(range(dy.rank), key=order.__getitem__))]


# ---- Where tensors enter, and `update` ----


def line(
    emit: Emit, values: Iterable[float], hint: str, axis: int = 1, rank: int = 2
) -> Tensor:
    """A constant that varies along one axis; all other extents are 1."""
    value = [float(number) for number in values]
    shape = with_extent((1,) * rank, axis, len(value))
    return emit("constant", shape=shape, value=value, hint=hint)


@shape("external")
def external_shape(shape: Shape) -> Shape:
    if any(not may_exceed(extent, 0) for extent in shape):
        raise ShapeError(f"extents must be positive, and the shape is {list(shape)}")
    return shape


@shape("variable")
def variable_shape(shape: Shape, label: str) -> Shape:
    require(label != "", "a variable needs a label")
    return external_shape(shape)


@shape("constant")
def constant_shape(shape: Shape, value: tuple[object, ...]) -> Shape:
    count = volume(external_shape(shape))
    message = (
        f"{len(value)} values do not fill the shape {list(shape)} of volume {count}"
    )
    require(len(value) in (1, count), message)
    return shape


@shape("update")
def update_shape(variable: Shape, value: Shape) -> Shape:
    message = f"the value of shape {list(value)} does not fit the variable of shape {list(variable)}"
    require(all_equal(variable, value), message)
    return variable


def number(emit: Emit, extent: Dimension) -> float | Tensor:
    """An extent as a scalar: a literal, or, if it has symbols, the sum of so many ones."""
    if not has_symbols(extent):
        return float(extent)
    # There are runtimes that end where there is nothing to add up.
    more = int(may_exceed(1, extent))
    ones = emit("constant", shape=(extent + more,), value=(1.0,), hint="ones")
    total = emit("sum_reduce", ones, axes=(0,), hint="total")
    count = emit("squeeze", total, axes=(0,), hint="count")
    return emit("sub", count, 1.0, hint="number") if more else count


# ---- Batching, linearity, ranges ----

batching_rule("squeeze", "unsqueeze")(along_axes)
batching_rule("transpose")(with_attributes(axes=lambda axes: (0, *further(axes))))
linearity_rule("reshape", "squeeze", "unsqueeze", "transpose")(in_first)
range_rule("reshape", "squeeze", "unsqueeze", "transpose")(of_first)


@batching_rule("reshape")
def reshape_batching(op: Many) -> Sequence[Any]:
    """To the shape of the result, after the new axis."""
    return (op.emit("reshape", op.aligned(op.operation.operands[0]), shape=op.whole),)


def in_batch(op: Many, x: Tensor) -> Tensor:
    """Many images, as a larger batch."""
    shape = (op.count * x.shape[0], *x.shape[1:])
    return reshaped(op.emit, op.many[x], shape, hint="images")


@range_rule("constant")
def constant_range(value: tuple[Any, ...], **attributes: Any) -> Range:
    """Between the least and the largest number."""
    numbers = [float(v) for v in value if not isinstance(v, str)]
    return Range(min(numbers), max(numbers)) if numbers else FINITE


@place_rule("squeeze")
def squeeze_place(use: Use) -> Place:
    """Some axes less."""
    place = beside_axes(use)
    before = sum(axis < place.axis for axis in use.settings["axes"])
    return place._replace(axis=place.axis - before)


@place_rule("unsqueeze")
def unsqueeze_place(use: Use) -> Place:
    """Some axes more, counted in the result."""
    place, new = use.one(), use.settings["axes"]
    old = [axis for axis in range(len(use.result)) if axis not in new]
    return place._replace(axis=old[place.axis])


@place_rule("transpose")
def transpose_place(use: Use) -> Place:
    """The axes in another order."""
    place, axes = use.one(), [*use.settings["axes"]]
    axes += range(len(axes), len(use.result))
    return place._replace(axis=axes.index(place.axis))


@place_rule("reshape")
def reshape_place(use: Use) -> Place:
    """An axis of the result that has the examples where the operand has them, in the order
    of the elements.
    """
    (x,), shape, (place, *_) = use.operation.inputs, use.result, use.at.values()
    before = prod(x.shape[: place.axis]) * use.outer(x)
    after = place.inner * prod(x.shape[place.axis + 1 :])
    for axis, extent in enumerate(shape):
        outer = divided(before, prod(shape[:axis]))
        inner = divided(after, prod(shape[axis + 1 :]))
        if None not in (outer, inner) and outer * use.count * inner == extent:
            return Place(axis, inner)
    raise MeetError(MAY_MEET)


@repeated_rule("constant")
def constant_place(use: Use) -> Place:
    """The model has them so."""
    assert use.wanted is not None
    return use.wanted
