"""Conditions on how an operation is set: on its attributes, types and shapes.

What they mean for a runtime stands in runtimes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nnef_grad.graph.ir import Operation, Shape, Tensor, shape_of
from nnef_grad.ops.conv import conv_windows, deconv_windows
from nnef_grad.ops.pool import basic_windows, reverse_windows
from nnef_grad.ops.windows import REPEATING, Windows, basic_outside, reaches
from nnef_grad.targets.windows import (
    STILL,
    columns_of,
    covers,
    form_blocks,
    have_empty,
    moving_axes,
    skipping_axes,
)


@dataclass(frozen=True)
class Condition:
    """A condition: `a | b` is one of two, `a & b` is both."""

    holds: Callable[[Operation], bool]

    def __call__(self, operation: Operation) -> bool:
        """Whether it holds for an operation."""
        return self.holds(operation)

    def __or__(self, other: Condition) -> Condition:
        return Condition(lambda operation: self(operation) or other(operation))

    def __and__(self, other: Condition) -> Condition:
        return Condition(lambda operation: self(operation) and other(operation))


@Condition
def always(operation: Operation) -> bool:
    """Whatever the settings are."""
    return True


def of_type(dtype: str) -> Condition:
    """The generic data type is this one."""
    return Condition(lambda operation: operation.dtype == dtype)


def other_than(**settings: object) -> Condition:
    """An attribute is not what it is here."""
    wanted = settings.items()
    return Condition(
        lambda operation: any(operation.settings[name] != v for name, v in wanted)
    )


def with_border(*borders: str) -> Condition:
    """The border is one of these."""
    return Condition(lambda operation: operation.attributes["border"] in borders)


def _operand(operation: Operation, index: int = 0) -> Shape:
    """The shape of an operand."""
    return shape_of(operation.operands[index])


def _result(operation: Operation) -> Shape:
    """The shape of the first result."""
    return operation.outputs[0].shape


# ---- Ranks and axes ----


@Condition
def rank_0(operation: Operation) -> bool:
    """The operand has no axes."""
    return len(_operand(operation)) == 0


def above_rank(rank: int) -> Condition:
    """The operand has more axes than these."""
    return Condition(lambda operation: len(_operand(operation)) > rank)


@Condition
def no_axes(operation: Operation) -> bool:
    """No axis is named."""
    return not operation.attributes["axes"]


@Condition
def unsorted(operation: Operation) -> bool:
    """The axes are not named in ascending order."""
    axes = operation.attributes["axes"]
    return list(axes) != sorted(axes)


@Condition
def not_one_axis(operation: Operation) -> bool:
    """No axis is named, or several are."""
    return len(operation.attributes["axes"]) != 1


@Condition
def not_last(operation: Operation) -> bool:
    """Not just one axis is named, with nothing after it but extents of 1."""
    axes = operation.attributes["axes"]
    return len(axes) != 1 or prod(_operand(operation)[axes[0] + 1 :]) > 1


@Condition
def fewer_axes(operation: Operation) -> bool:
    """Axes are left out."""
    return len(operation.attributes["axes"]) < len(_operand(operation))


# ---- Element by element ----


@Condition
def runs_out_of_axes(operation: Operation) -> bool:
    """A loop over the axes goes on where an operand has no more of them.

    It ends as soon as each operand has as many elements left as the result, or one.
    """
    result = _result(operation)
    operands = [shape_of(operand) for operand in operation.operands]
    for axis in range(len(result)):
        left = [prod(shape[axis:]) for shape in operands]
        if {*left} <= {1, prod(result[axis:])}:
            return False
        if any(len(shape) <= axis for shape in operands):
            return True
    return False


@Condition
def literal_condition(operation: Operation) -> bool:
    """The condition of a choice is known."""
    return isinstance(operation.operands[0], bool)


@Condition
def literal_integers(operation: Operation) -> bool:
    """An operand is an integer, written as a literal."""
    return any(type(operand) is int for operand in operation.operands)


@Condition
def broadcast_operand(operation: Operation) -> bool:
    """The first operand is broadcast."""
    return _operand(operation) != _result(operation)


# ---- Tensors ----


@Condition
def splat(operation: Operation) -> bool:
    """One value fills a shape of several elements."""
    return len(operation.attributes["value"]) == 1 and prod(_result(operation)) > 1


# ---- Matrices and normalisation ----


@Condition
def transposed_batches(operation: Operation) -> bool:
    """An operand is transposed, and there are batches of matrices."""
    transposed = other_than(transposeA=False, transposeB=False)
    return len(_operand(operation)) > 2 and transposed(operation)


@Condition
def different_batches(operation: Operation) -> bool:
    """Batches of matrices are broadcast."""
    return _operand(operation)[:-2] != _operand(operation, 1)[:-2]


@Condition
def inner_product(operation: Operation) -> bool:
    """A row is multiplied by a column."""
    return _result(operation)[-2:] == (1, 1)


@Condition
def no_plain_layer(operation: Operation) -> bool:
    """The matrices come in batches, or the bias is neither a literal nor a number for
    each output.
    """
    weights, bias = _operand(operation, 1), operation.operands[2]
    is_plain = not isinstance(bias, Tensor) or bias.shape == (1, weights[0])
    return len(weights) != 2 or not is_plain


@Condition
def not_by_channel(operation: Operation) -> bool:
    """A parameter is not a tensor of the shape [1, channels]."""
    wanted = (1, *_operand(operation)[1:2])
    return any(shape_of(operand) != wanted for operand in operation.operands[1:])


@Condition
def shared_parameters(operation: Operation) -> bool:
    """A tensor serves as two parameters."""
    return len(set(operation.operands)) < len(operation.operands)


@Condition
def not_across_channels(operation: Operation) -> bool:
    """The window is not an odd one along the channels of images."""
    size = operation.attributes["size"]
    return len(size) != 4 or size[1] % 2 == 0 or {size[0], *size[2:]} != {1}


# ---- Shapes ----


@Condition
def of_some_axes(operation: Operation) -> bool:
    """The new shape is not that of all axes."""
    start, count = (operation.settings[f"axis_{name}"] for name in ("start", "count"))
    return start != 0 or count not in (-1, len(_operand(operation)))


@Condition
def empty_shape(operation: Operation) -> bool:
    """The new shape is empty."""
    return not operation.attributes["shape"]


@Condition
def open_ended(operation: Operation) -> bool:
    """An end of 0 stands for the extent."""
    is_open = {1}.issuperset(operation.attributes["stride"])
    return is_open and 0 in operation.attributes["end"]


@Condition
def no_plain_range(operation: Operation) -> bool:
    """A range goes backward, begins at a negative number, or goes from 0 to 0, or ends
    after the extent.
    """
    attributes = operation.attributes
    extents = [_operand(operation)[axis] for axis in attributes["axes"]]
    ranges = zip(attributes["begin"], attributes["end"], extents, strict=True)
    return any(step < 0 for step in attributes["stride"]) or any(
        begin < 0 or begin == end == 0 or end > extent for begin, end, extent in ranges
    )


@Condition
def needless_stride(operation: Operation) -> bool:
    """There is a stride along an axis of which one element is taken."""
    steps = strides(operation).items()
    return any(step > 1 and _result(operation)[axis] == 1 for axis, step in steps)


def strides(operation: Operation) -> dict[int, int]:
    """The stride of a slice along each of its axes."""
    axes = operation.attributes["axes"]
    steps = operation.attributes["stride"] or (1,) * len(axes)
    return dict(zip(axes, steps, strict=True))


@Condition
def repeated_once(operation: Operation) -> bool:
    """Nothing is repeated."""
    return {1}.issuperset(operation.attributes["repeats"])


@Condition
def cropping(operation: Operation) -> bool:
    """Padding is negative."""
    return any(min(sides) < 0 for sides in operation.attributes["padding"])


@Condition
def beside_space(operation: Operation) -> bool:
    """Batch or channels are padded, or there are not one to three axes after them."""
    padding = operation.attributes["padding"]
    return any(map(any, padding[:2])) or not 3 <= len(padding) <= 5


# ---- Windows ----

_WINDOWS = {
    "conv": conv_windows,
    "deconv": deconv_windows,
    "debox": reverse_windows,
    "desample": reverse_windows,
}


def _windows(operation: Operation) -> Windows:
    return _WINDOWS.get(operation.name, basic_windows)(operation)


def _reaches(operation: Operation) -> Sequence[tuple[Any, ...]]:
    """For each axis its stride, its padding, and how far a window reaches."""
    windows = _windows(operation)
    reach = reaches(windows.size, windows.dilation)
    return list(zip(windows.stride, windows.padding, reach, strict=True))


@Condition
def no_space(operation: Operation) -> bool:
    """There are no axes after batch and channels."""
    return len(_operand(operation)) <= 2


@Condition
def automatic(operation: Operation) -> bool:
    """The padding is not given."""
    return operation.attributes["padding"] == ()


@Condition
def sized(operation: Operation) -> bool:
    """The shape of the output is given."""
    return operation.attributes["output_shape"] != ()


@Condition
def dilated(operation: Operation) -> bool:
    """A dilation is given, if only of windows of one element."""
    return max(_windows(operation).dilation, default=1) > 1


@Condition
def skipping(operation: Operation) -> bool:
    """There are elements of the input that a stride skips in all windows."""
    return len(skipping_axes(_windows(operation))) > 0


@Condition
def spaced(operation: Operation) -> bool:
    """A stride is longer than a window."""
    return any(stride > reach for stride, _, reach in _reaches(operation))


@Condition
def along_four_axes(operation: Operation) -> bool:
    """Windows slide along more than three axes."""
    return len(moving_axes(_windows(operation))) > 3


@Condition
def wide(operation: Operation) -> bool:
    """There is as much padding on a side as a window has elements."""
    windows = _windows(operation)
    pairs = zip(windows.padding, windows.size, strict=True)
    return any(max(sides) >= f for sides, f in pairs)


@Condition
def idle(operation: Operation) -> bool:
    """There may be windows that lie outside as a whole."""
    return any(max(sides) >= reach for _, sides, reach in _reaches(operation))


@Condition
def across(operation: Operation) -> bool:
    """Windows are not the elements one by one along batch or channels."""
    columns = columns_of(_windows(operation))[:2]
    return any(column[2:] != STILL for column in columns)


@Condition
def no_blocks(operation: Operation) -> bool:
    """Windows overlap, or lie side by side along three axes."""
    return not form_blocks(_windows(operation))


def longer(most: int) -> Condition:
    """A window has more elements along an axis than that."""
    return Condition(lambda operation: max(_windows(operation).size, default=1) > most)


@Condition
def untouched(operation: Operation) -> bool:
    """All windows lie outside."""
    return not _windows(operation).touch_data


@Condition
def not_by_two(operation: Operation) -> bool:
    """An axis grows by another factor than 2."""
    return set(operation.attributes["factor"]) != {2}


# The border repeats elements, whether any is read or not.
repeating = with_border(*REPEATING)


@Condition
def outside(operation: Operation) -> bool:
    """Elements of the border are read, and count."""
    is_read = any(map(any, basic_outside(_windows(operation))))
    return operation.attributes["border"] != "ignore" and is_read


@Condition
def empty(operation: Operation) -> bool:
    """Nothing counts in some window."""
    is_ignored = operation.attributes["border"] == "ignore"
    return is_ignored and have_empty(_windows(operation))


# ---- Filters and biases ----


@Condition
def multiplying(operation: Operation) -> bool:
    """There is a group for each channel, and several filters in it."""
    filters, *_ = _operand(operation, 1)
    return operation.attributes["groups"] == 0 and filters != _operand(operation)[1]


@Condition
def biased(operation: Operation) -> bool:
    """There is a bias."""
    return operation.operands[2] != 0.0


@Condition
def uncovered(operation: Operation) -> bool:
    """A part of the output lies in no window."""
    return not covers(_windows(operation))


@Condition
def bias_not_by_channel(operation: Operation) -> bool:
    """The bias has axes, and not just a number for each channel."""
    return _operand(operation, 2) not in ((), (1, _result(operation)[1]))


@Condition
def number_as_bias(operation: Operation) -> bool:
    """The bias is a single number, and not zero."""
    return _operand(operation, 2) == () and biased(operation)
