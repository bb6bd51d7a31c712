"""Conditions on how an operation with windows is set, as those of conditions.py."""

from __future__ import annotations

from nnef_grad.graph.ir import Operation, Shape, Tensor, shape_of
from nnef_grad.ops.conv import conv_windows, deconv_windows
from nnef_grad.ops.pool import basic_windows, reverse_windows
from nnef_grad.ops.windows import REPEATING, Padding, Windows, basic_outside, reaches
from nnef_grad.targets.conditions import operand_shape, result_shape, with_border
from nnef_grad.targets.windows import (
    covers,
    have_empty,
    idle_windows,
    moving_axes,
    skipping_axes,
)

_WINDOWS = {"conv": conv_windows, "deconv": deconv_windows, "debox": reverse_windows}


def _windows(operation: Operation) -> Windows:
    return _WINDOWS.get(operation.name, basic_windows)(operation)


# ---- Windows ----


def automatic(operation: Operation) -> bool:
    """The padding is not said."""
    padding: Padding = operation.attributes["padding"]
    return padding == ()


def sized(operation: Operation) -> bool:
    """The shape of the output is said."""
    output_shape: Shape = operation.attributes["output_shape"]
    return output_shape != ()


def dilated(operation: Operation) -> bool:
    """A dilation is said, if only of windows of one element."""
    return max(_windows(operation).dilation, default=1) > 1


def skipping(operation: Operation) -> bool:
    """There are elements of the input that a stride skips in all windows."""
    return len(skipping_axes(_windows(operation))) > 0


def apart(operation: Operation) -> bool:
    """A stride is longer than a window."""
    windows = _windows(operation)
    reach = reaches(windows.size, windows.dilation)
    return any(s > r for s, r in zip(windows.stride, reach, strict=True))


def along_four_axes(operation: Operation) -> bool:
    """Windows slide along more than three axes."""
    return len(moving_axes(_windows(operation))) > 3


def wide(operation: Operation) -> bool:
    """There is as much padding on a side as a window has elements."""
    windows = _windows(operation)
    return any(
        max(sides) >= f for sides, f in zip(windows.padding, windows.size, strict=True)
    )


def idle(operation: Operation) -> bool:
    """Windows lie outside as a whole."""
    return any(map(any, idle_windows(_windows(operation))))


def across(operation: Operation) -> bool:
    """Something is said of windows along batch or channels."""
    windows = _windows(operation)
    columns = zip(
        windows.size, windows.stride, windows.dilation, windows.padding, strict=True
    )
    return any(column != (1, 1, 1, (0, 0)) for column in list(columns)[:2])


def not_by_two(operation: Operation) -> bool:
    """An axis grows by another factor than 2."""
    factor: Shape = operation.attributes["factor"]
    return set(factor) != {2}


def aligned(operation: Operation) -> bool:
    """The first and the last points of input and output coincide."""
    method: str = operation.attributes["method"]
    return method == "aligned"


# ---- Borders ----


# The border repeats elements, whether any is read or not.
repeating = with_border(*REPEATING)


def outside(operation: Operation) -> bool:
    """Elements of the border are read, and count."""
    is_read = any(map(any, basic_outside(_windows(operation))))
    return operation.attributes["border"] != "ignore" and is_read


def empty(operation: Operation) -> bool:
    """Nothing counts in some window."""
    is_ignored = operation.attributes["border"] == "ignore"
    return is_ignored and have_empty(_windows(operation))


# ---- Filters and biases ----


def multiplying(operation: Operation) -> bool:
    """There is a group for each channel, and several filters in it."""
    filters, *_ = shape_of(operation.operands[1])
    return (
        operation.attributes["groups"] == 0 and filters != operand_shape(operation)[1]
    )


def biased(operation: Operation) -> bool:
    """There is a bias."""
    return operation.operands[2] != 0.0


def uncovered(operation: Operation) -> bool:
    """A part of the output lies in no window."""
    return not covers(_windows(operation))


def bias_beyond_channels(operation: Operation) -> bool:
    """The bias has an axis after the channels."""
    return len(shape_of(operation.operands[2])) > 2


def bias_not_by_channel(operation: Operation) -> bool:
    """The bias has axes, and not just a number for each channel."""
    shape = shape_of(operation.operands[2])
    return shape not in ((), (1, result_shape(operation)[1]))


def number_as_bias(operation: Operation) -> bool:
    """The bias is a single number, and not zero."""
    bias = operation.operands[2]
    return shape_of(bias) == () and (isinstance(bias, Tensor) or bias != 0.0)
