"""Conditions on how an operation is set: on its attributes, types and shapes.

What they mean for a runtime stands in facts.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from operator import index

from nnef_grad.graph.bounds import nominal
from nnef_grad.graph.extents import Dimension, has_symbols, may_exceed
from nnef_grad.graph.ir import Operand, Operation, Shape, Tensor, shape_of
from nnef_grad.graph.loops import ScanAxis, loop_of
from nnef_grad.ops.conv import groups_of
from nnef_grad.ops.parts import slice_positions
from nnef_grad.ops.windows import (
    REPEATING,
    AxisWindows,
    Windows,
    has_border,
    windows_of,
)
from nnef_grad.targets.windows import form_blocks, moving_axes, skipping_axes


@dataclass(frozen=True)
class Condition:
    """A condition: `a | b` is one of two, `a & b` is both, `~a` is the contrary."""

    holds: Callable[[Operation], bool]

    def __call__(self, operation: Operation) -> bool:
        """Whether it holds for an operation."""
        return self.holds(operation)

    def __or__(self, other: Condition) -> Condition:
        holds, also = self.holds, other.holds
        return Condition(lambda op: holds(op) or also(op))

    def __and__(self, other: Condition) -> Condition:
        holds, also = self.holds, other.holds
        return Condition(lambda op: holds(op) and also(op))

    def __invert__(self) -> Condition:
        return Condition(lambda op: not self.holds(op))


always = Condition(lambda op: True)


def of_type(dtype: str) -> Condition:
    """The generic data type is this one."""
    return Condition(lambda op: op.dtype == dtype)


def set_to(**settings: object) -> Condition:
    """The attributes are these."""
    wanted = settings.items()
    return Condition(lambda op: all(op.settings[name] == v for name, v in wanted))


def other_than(**settings: object) -> Condition:
    """An attribute is not what it is here."""
    return ~set_to(**settings)


def with_border(*borders: str) -> Condition:
    """The border is one of these."""
    return Condition(lambda op: op.attributes["border"] in borders)


def above_rank(rank: int) -> Condition:
    """The operand has more axes than these."""
    return Condition(lambda op: len(_operand(op)) > rank)


# The operand is one element.
of_one = Condition(lambda op: prod(_operand(op)) == 1)


def _operand(op: Operation, index: int = 0) -> Shape:
    return shape_of(op.operands[index])


def _result(op: Operation) -> Shape:
    return op.outputs[0].shape


def _axes(op: Operation) -> list[int]:
    return list(op.attributes["axes"])


# ---- Ranks and axes ----


rank_0 = Condition(lambda op: not _operand(op))
no_axes = set_to(axes=())
not_one_axis = Condition(lambda op: len(_axes(op)) != 1)
fewer_axes = Condition(lambda op: len(_axes(op)) < len(_operand(op)))
# The axes are not named in ascending order.
unsorted = Condition(lambda op: _axes(op) != sorted(_axes(op)))
# There are extents other than 1 after the only axis that is named.
not_last = Condition(lambda op: prod(_operand(op)[_axes(op)[0] + 1 :]) > 1)


# ---- Elements, matrices and normalisation ----


@Condition
def runs_out_of_axes(op: Operation) -> bool:
    """A loop over the axes goes on where an operand has no more of them.

    It ends as soon as each operand has as many elements left as the result, or one.
    """
    result, operands = _result(op), [shape_of(operand) for operand in op.operands]
    for axis in range(len(result)):
        if {prod(shape[axis:]) for shape in operands} <= {1, prod(result[axis:])}:
            return False
        if any(len(shape) <= axis for shape in operands):
            return True
    return False


def is_several(shape: Shape) -> bool:
    """Whether there may be more than one element."""
    return not {*shape} <= {1}


# Of the two that are chosen from, only the second is broadcast, and is more than a number.
second_choice_broadcast = Condition(
    lambda op: (
        _operand(op, 1) == _result(op) != _operand(op, 2)
        and is_several(_operand(op, 2))
    )
)
# The condition of a choice is known.
literal_condition = Condition(lambda op: isinstance(op.operands[0], bool))


def _are_in_order(low: Operand, high: Operand) -> bool:
    return isinstance(low, float) and isinstance(high, float) and low <= high


# Both bounds are numbers, the lower one first.
with_number_bounds = Condition(lambda op: _are_in_order(*op.operands[1:]))
# An operand is an integer, written as a literal.
literal_integers = Condition(lambda op: int in map(type, op.operands))
# The first operand is broadcast.
broadcast_operand = Condition(lambda op: _operand(op) != _result(op))
# A tensor of several elements is broadcast.
broadcast_tensor = Condition(
    lambda op: any(x.shape != _result(op) and is_several(x.shape) for x in op.inputs)
)
# A tensor among the operands has another rank than the result.
unequal_ranks = Condition(
    lambda op: any(x.rank != op.outputs[0].rank for x in op.inputs)
)
# One value fills a shape of several elements.
splat = Condition(lambda op: len(op.attributes["value"]) == 1 < prod(_result(op)))
# Batches of matrices are broadcast.
different_batches = Condition(lambda op: _operand(op)[:-2] != _operand(op, 1)[:-2])
# A row is multiplied by a column.
inner_product = Condition(lambda op: _result(op)[-2:] == (1, 1))


# From so many elements on, the length of a run makes no difference to a runtime.
LONG_RUN = 64
# A column is multiplied by a long row.
outer_product = Condition(
    lambda op: (
        len(_result(op)) == 2
        and _operand(op)[-1 - op.attributes["transposeA"]] == 1
        and nominal(_result(op)[-1]) >= LONG_RUN
    )
)


def outer_factors(op: Operation) -> tuple[Tensor, Tensor] | None:
    """The column and the row of an outer product over several axes, the last one short."""
    if op.name != "mul" or op.outputs[0].rank <= 2 or len(op.inputs) != 2:
        return None
    last = op.outputs[0].shape[-1]
    if has_symbols(last) or last >= LONG_RUN:
        return None
    for column, row in (op.inputs, op.inputs[::-1]):
        longer = [axis for axis, extent in enumerate(column.shape) if extent != 1]
        later = [axis for axis, extent in enumerate(row.shape) if extent != 1]
        if longer and later and longer[-1] < later[0]:
            return column, row
    return None


# So many numbers apart, elements share few places in a cache.
_APART = 256


@Condition
def crowded(op: Operation) -> bool:
    """A product has as many rows as columns or more, which crowd in a cache."""
    shape = _result(op)
    if len(shape) != 2 or has_symbols(shape) or outer_product(op):
        return False
    rows, columns = shape
    return rows >= columns and columns % _APART == 0


@Condition
def no_plain_layer(op: Operation) -> bool:
    """There are batches of matrices, or a bias that is no number for each output."""
    weights, bias = _operand(op, 1), op.operands[2]
    is_plain = not isinstance(bias, Tensor) or bias.shape == (1, weights[0])
    return len(weights) != 2 or not is_plain


# A parameter is not a tensor of the shape [1, channels].
not_by_channel = Condition(
    lambda op: {*map(shape_of, op.operands[1:])} != {(1, *_operand(op)[1:2])}
)
# A tensor serves as two parameters.
shared_parameters = Condition(lambda op: len({*op.operands}) < len(op.operands))


def _is_across(size: Shape) -> bool:
    return len(size) == 4 and size[1] % 2 == 1 and {size[0], *size[2:]} == {1}


# The window is not an odd one along the channels of images.
not_across_channels = Condition(lambda op: not _is_across(op.attributes["size"]))

# ---- Shapes ----

# Nothing is repeated.
repeated_once = Condition(lambda op: {*op.attributes["repeats"]} <= {1})
# The new shape is not that of all axes, as it begins later or ends earlier.
_to_rank = Condition(lambda op: op.attributes["axis_count"] == len(_operand(op)))
of_some_axes = other_than(axis_start=0) | other_than(axis_count=-1) & ~_to_rank
# An end of 0 stands for the extent.
_to_0 = Condition(lambda op: 0 in op.attributes["end"])
open_ended = _to_0 & Condition(lambda op: {*op.attributes["stride"]} <= {1})
# The numbers of a padding are not known.
open_padding = Condition(lambda op: has_symbols(op.attributes["padding"]))
# Padding is negative.
cropping = Condition(
    lambda op: any(
        may_exceed(0, n) for sides in op.attributes["padding"] for n in sides
    )
)


@Condition
def no_plain_range(op: Operation) -> bool:
    """A range is backward, begins at a negative number, is 0 to 0, or ends outside."""
    extents = (_operand(op)[axis] for axis in _axes(op))
    ranges = zip(op.attributes["begin"], op.attributes["end"], extents, strict=True)
    return any(step < 0 for step in op.attributes["stride"]) or any(
        may_exceed(0, begin) or begin == end == 0 or may_exceed(end, extent)
        for begin, end, extent in ranges
    )


# There is a stride along an axis of which one element is taken.
needless_stride = Condition(
    lambda op: (
        not {*op.attributes["stride"]} <= {1}
        and any(
            taken.step > 1 == taken.count
            for taken in slice_positions(_operand(op), **op.settings).values()
        )
    )
)


@Condition
def beside_space(op: Operation) -> bool:
    """Batch or channels are padded, or there are not one to three axes after them."""
    padding = op.attributes["padding"]
    return has_border(padding[:2]) or not 3 <= len(padding) <= 5


# ---- Windows ----


# There are no channels; how many there are must be known.
no_channels = Condition(lambda op: 0 in map(index, _operand(op)[1:2]))


def _windowed(holds: Callable[[Windows], bool]) -> Condition:
    """A condition on the windows of an operation."""
    return Condition(lambda op: holds(windows_of(op)))


def on_each_axis(holds: Callable[[AxisWindows], bool]) -> Condition:
    """A condition on the windows along all of the axes."""
    return Condition(lambda op: all(map(holds, windows_of(op).axes)))


def _on_an_axis(holds: Callable[[AxisWindows], bool]) -> Condition:
    """A condition on the windows along one of the axes."""
    return _windowed(lambda windows: any(map(holds, windows.axes)))


# Windows are not the elements one by one along batch or channels, or dilated.
across = _windowed(
    lambda windows: any(not c.is_still or c.dilation > 1 for c in windows.axes[:2])
)
# There are no axes after batch and channels.
no_space = ~above_rank(2)
# The padding is not given.
automatic = set_to(padding=())
# The shape of the output is given.
sized = other_than(output_shape=())
# An axis grows by another factor than 2.
not_by_two = Condition(lambda op: {*op.attributes["factor"]} != {2})
# The border repeats elements, whether any is read or not.
repeating = with_border(*REPEATING)
ignoring = with_border("ignore")
# Elements of the border are read.
reading = _windowed(lambda windows: windows.read_outside)
# Windows are single elements, and a stride leaves others out.
sampling = _windowed(
    lambda windows: (
        {*windows.size} == {1} != {*windows.stride} and not windows.read_outside
    )
)
# There are elements of the input that a stride skips in all windows.
skipping = _windowed(lambda windows: len(skipping_axes(windows)) > 0)
along_four_axes = _windowed(lambda windows: len(moving_axes(windows)) > 3)
# Windows lie side by side, along two axes at most.
blocks = _windowed(form_blocks)
# Not all windows lie outside.
touching = _windowed(lambda windows: windows.touch_data)
# There is a window without an element inside.
empty = _on_an_axis(lambda c: c.has_empty)
# A window has more than 300 elements along an axis.
long = _on_an_axis(lambda c: may_exceed(c.size, 300))
# A dilation is given, if only of windows of one element.
dilated = _on_an_axis(lambda c: c.dilation > 1)
# Windows of several elements are dilated along the first of three axes of space.
dilated_in_depth = above_rank(4) & _windowed(
    lambda windows: windows.dilation[-3] > 1 and may_exceed(windows.size[-3], 1)
)
# There are several items in the batch of what has three axes of space.
several_volumes = above_rank(4) & Condition(lambda op: _operand(op)[0] != 1)
# There is one window along an axis, and a stride that takes no step.
single = _on_an_axis(lambda c: c.down == 1 and c.stride > 1)
# A stride is longer than a window.
spaced = _on_an_axis(lambda c: may_exceed(c.stride, c.reach))
# There is as much padding on a side as a window has elements.
wide = _on_an_axis(lambda c: any(may_exceed(n + 1, c.size) for n in c.padding))
# More elements of the border are read after the data than before.
trailing = _on_an_axis(lambda c: may_exceed(c.outside[1], c.outside[0]))
# A part of the output lies before the first window, or after the last one.
uncovered = _on_an_axis(lambda c: may_exceed(c.begin, 0) or may_exceed(c.up, c.end))
# How much is read outside depends on numbers that are not known.
open_windows = _windowed(lambda windows: has_symbols(windows.padding))
# There may be windows that lie outside as a whole.
idle = _on_an_axis(lambda c: any(may_exceed(n + 1, c.reach) for n in c.padding))


# ---- Filters and biases ----

# There is a group for each channel, and several filters in it.
_of_other_channels = Condition(lambda op: _operand(op, 1)[0] != _operand(op)[1])
multiplying = set_to(groups=0) & _of_other_channels
# There is a filter for each channel.
by_channel = Condition(lambda op: _operand(op, 1)[:2] == (_operand(op)[1], 1))
# There is one row to gather from.
of_one_row = Condition(lambda op: _operand(op)[op.attributes["axis"]] == 1)
biased = Condition(lambda op: op.operands[2] != 0.0)

of_one_group = Condition(lambda op: groups_of(op) == 1)
# A convolution without a bias, over one to three axes.
plain = touching & ~biased & ~repeating & ~no_space & ~above_rank(5)
# The bias is a single number, and not zero.
number_as_bias = biased & Condition(lambda op: _operand(op, 2) == ())

# The bias has axes, and not just a number for each channel.
bias_not_by_channel = Condition(
    lambda op: _operand(op, 2) not in ((), (1, _result(op)[1]))
)


# ---- Loops ----


@Condition
def collecting_several_ways(op: Operation) -> bool:
    """Parts are collected from both ends, or one of another along another axis."""
    loop = loop_of(op)
    collected = {loop.body.outputs[one.output]: one.along for one in loop.collected}
    if len({along.direction for along in collected.values()}) > 1:
        return True
    # The axes of what each tensor of the body is made of.
    scan_axes: dict[Tensor, set[ScanAxis]] = {}
    for inner in loop.body.operations:
        before = set[ScanAxis]().union(*(scan_axes.get(x, ()) for x in inner.inputs))
        for tensor in inner.outputs:
            own = {collected[tensor]} if tensor in collected else set()
            scan_axes[tensor] = before | own
    return any(scan_axes[tensor] != {along} for tensor, along in collected.items())


@Condition
def scanning_in_vain(op: Operation) -> bool:
    """No step reads a part of what is scanned."""
    loop = loop_of(op)
    read = {x for inner in loop.body.operations for x in inner.inputs}
    return read.isdisjoint(loop.parts)


@Condition
def making_constants(op: Operation) -> bool:
    """No result of a step depends on a state or a part."""
    loop = loop_of(op)
    moving = {*loop.state_inputs, *loop.parts}
    for inner in loop.body.operations:
        if not moving.isdisjoint(inner.inputs):
            moving.update(inner.outputs)
    return not moving.issuperset(loop.body.outputs)


# ---- Elements in order ----

# Each of the largest elements is a step, or each pair of elements a comparison.
_MOST_IN_ORDER = 1024


def _ordered(op: Operation) -> Dimension:
    """How many elements are ordered."""
    return op.inputs[0].shape[op.attributes["axis"]]


@Condition
def taking_few(op: Operation) -> bool:
    """The first ones are wanted, known to be fewer than half of them all."""
    extent, count = _ordered(op), op.attributes["count"]
    if op.attributes["ranks"] or has_symbols(count):
        return False
    return has_symbols(extent) or 2 * count < extent


@Condition
def ordering_many(op: Operation) -> bool:
    """There are too many steps, or pairs of elements."""
    if taking_few(op):
        return bool(op.attributes["count"] > _MOST_IN_ORDER)
    return not has_symbols(_ordered(op)) and _ordered(op) > _MOST_IN_ORDER


@Condition
def taking_two_to_four(op: Operation) -> bool:
    """The first two to four elements are wanted."""
    own = op.attributes
    return not own["ranks"] and own["count"] in (2, 3, 4)
