"""Convolutions: tensors are [batch, channels, spatial...], the filter is [c, C /
groups, spatial...].

C channels are on the up-scaled side, c on the down-scaled one: `conv` reads C channels
and writes c, `deconv` goes the other way with the same filter. Each is the adjoint of
the other. The gradient of the filter pairs the two sides: it is a convolution too, with
stride and dilation exchanged, or a product of matrices where nothing slides.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.graph.learning import all_equal, equal
from nnef_grad.ops.elementwise import fits_into
from nnef_grad.ops.parts import section
from nnef_grad.ops.registry import Emit, ShapeError, require, shape, vjp
from nnef_grad.ops.shape import reshaped
from nnef_grad.ops.windows import (
    BORDERS,
    Windows,
    check_choice,
    check_positive,
    downscaling,
    has_border,
    is_reverse,
    up_side,
    upscaling,
    windows_of,
)

# ---- Shapes ----


@shape("conv")
def conv_shape(
    input: Shape, filter: Shape, bias: Shape, border: str, groups: int, **sliding: Any
) -> Shape:
    """[B, C, X...] and [c, C / groups, f...] give [B, c, x...]."""
    _check_filter(input, filter, border, groups)
    count = group_count(input, groups)
    message = (
        f"the filter has {filter[1]} channels for each of {count} groups,"
        f" and the input has {input[1]} channels in all"
    )
    require(equal(filter[1] * count, input[1]), message)
    _check_channels(count, filter, bias, filter[0])
    windows = downscaling(input[2:], filter[2:], border=border, **sliding)
    return (input[0], filter[0], *windows.down)


@shape("deconv")
def deconv_shape(
    input: Shape,
    filter: Shape,
    bias: Shape,
    border: str,
    output_shape: Shape,
    groups: int,
    **sliding: Any,
) -> Shape:
    """[B, c, x...] and [c, C / groups, f...] give [B, C, X...]."""
    _check_filter(input, filter, border, groups)
    message = f"there are {filter[0]} filters, and the input has {input[1]} channels"
    require(equal(filter[0], input[1]), message)
    message = f"'output_shape' must have {len(input)} items, or none at all, but is {list(output_shape)}"
    require(len(output_shape) in (0, len(input)), message)
    check_positive("output_shape", output_shape)
    message = (
        f"with 'groups' = 0 the filter must have 1 channel, and it has {filter[1]}"
    )
    require(groups > 0 or filter[1] == 1, message)
    count = group_count(input, groups, output_shape)
    channels = filter[1] * count
    _check_channels(count, filter, bias, channels)
    message = (
        f"'output_shape' must begin with {[input[0], channels]}, batch and channels,"
        f" but is {list(output_shape)}"
    )
    wanted = (input[0], channels)
    require(not output_shape or all_equal(output_shape[:2], wanted), message)
    sliding.update(border=border, output_shape=output_shape[2:])
    windows = upscaling(input[2:], filter[2:], **sliding)
    return (input[0], channels, *windows.up)


@shape("separable_conv")
def separable_conv_shape(
    input: Shape, planes: Shape, points: Shape, bias: Shape, groups: int, **plane: Any
) -> Shape:
    """The shape after the two steps of its body."""
    inner = _step("plane_filter", conv_shape, input, planes, (), groups=0, **plane)
    along: Any = {"border": "constant", "groups": groups}
    return _step("point_filter", conv_shape, inner, points, bias, **along)


@shape("separable_deconv")
def separable_deconv_shape(
    input: Shape, planes: Shape, points: Shape, bias: Shape, groups: int, **plane: Any
) -> Shape:
    """The shape after the two steps of its body."""
    along: Any = {"border": "constant", "output_shape": (), "groups": groups}
    inner = _step("point_filter", deconv_shape, input, points, (), **along)
    return _step("plane_filter", deconv_shape, inner, planes, bias, groups=0, **plane)


def _step(
    name: str, shape_of_step: Callable[..., Shape], *shapes: Shape, **attributes: Any
) -> Shape:
    """A message says of which filter of a separable convolution it speaks."""
    try:
        return shape_of_step(*shapes, **attributes)
    except ShapeError as error:
        message = f"with '{name}', {error}"
        raise ShapeError(message, remedy=error.remedy) from None


def group_count(input: Shape, groups: int, output_shape: Shape = ()) -> Dimension:
    """The number of groups; 0 stands for one for each channel of the up-scaled side."""
    return groups or (output_shape or input)[1]


def _check_filter(input: Shape, filter: Shape, border: str, groups: int) -> None:
    check_choice("border", border, BORDERS)
    message = f"the input must have batch and channels, but has the shape {list(input)}"
    require(len(input) >= 2, message)
    message = (
        "the filter must have the rank of the input, and their shapes are"
        f" {list(filter)} and {list(input)}"
    )
    require(len(filter) == len(input), message)
    require(groups >= 0, f"'groups' must not be negative, but is {groups}")


def _check_channels(
    groups: Dimension, filter: Shape, bias: Shape, channels: Dimension
) -> None:
    """The filters are divided into groups, and the bias is one of the channels written."""
    message = f"'groups' must divide the number of filters, and they are {groups} and {filter[0]}"
    require(filter[0] % groups == 0, message)
    if not fits_into(bias, (1, channels, *(1,) * (len(filter) - 2))):
        message = (
            f"the bias must have the shape [1, {channels}], or be a single element,"
            f" but has the shape {list(bias)}"
        )
        raise ShapeError(message, remedy="lenient" if len(bias) == 1 else None)


# ---- Gradients ----


@vjp("conv", "deconv")
def conv_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor | None]:
    """dinput goes back through the same filter; dbias is dy, which the sweep sums."""
    (x, w, *_), windows, groups = op.inputs, windows_of(op), groups_of(op)
    if not windows.touch_data:
        return [None, None, dy]
    attributes = {**windows.attributes, "groups": groups}
    if is_reverse(op):
        sides = Sides(dy, x, windows, groups, ("grad", "input"))
        dx = emit("conv", dy, w, **attributes)
    else:
        sides = Sides(x, dy, windows, groups, ("input", "grad"))
        attributes["output_shape"] = windows.output_shape(*x.shape[:2])
        dx = emit("deconv", dy, w, **attributes)
    return [dx, filter_gradient(emit, sides), dy]


def groups_of(op: Operation) -> Dimension:
    """The number of groups of an operation."""
    return op.attributes["groups"] or up_side(op)[1]


# ---- The gradient of a filter ----


class Sides(NamedTuple):
    """The two sides of a filter and its windows: the up-scaled [B, C, X...] and the
    down-scaled one [B, c, x...], of which one is the input and the other a gradient.
    """

    up: Tensor
    down: Tensor
    windows: Windows
    groups: Dimension
    names: tuple[str, str]


def filter_gradient(emit: Emit, sides: Sides) -> Tensor:
    """[c, C / groups, f...], in its most readable form."""
    windows = sides.windows
    if has_border(windows.padding):
        return _correlation(emit, sides)
    # The filter is as large as the up-scaled side, and is at one place.
    is_whole = windows.size == windows.up and prod(windows.down) == 1
    if is_whole and sides.groups == 1:
        return _layer_product(emit, sides)
    # A filter of one element takes every stride-th.
    is_point = prod(windows.size) == 1
    return (_pixel_product if is_point else _correlation)(emit, sides)


def _layer_product(emit: Emit, sides: Sides) -> Tensor:
    """As in a fully connected layer: [B, c] and [B, C * X...] give [c, C * X...]."""
    (up, down, *_), names = sides, sides.names
    if up.shape[0] == 1:
        return emit("mul", _exchanged(emit, down, f"{names[1]}_by_channel"), up)
    rows = [
        reshaped(emit, side, (side.shape[0], prod(side.shape[1:])), hint=f"{name}_rows")
        for side, name in zip((down, up), reversed(names), strict=True)
    ]
    product = emit("matmul", *rows, transposeA=True, hint="filter_grad_matrix")
    return reshaped(emit, product, (down.shape[1], *up.shape[1:]))


def _pixel_product(emit: Emit, sides: Sides) -> Tensor:
    """[B, groups, c / groups, x] and [B, groups, C / groups, x] give matrices that are
    summed over B. Neither B nor groups has an axis if it is 1.
    """
    up, down, windows, groups, names = sides
    batch, pixels = down.shape[0], prod(windows.down)
    if windows.down != windows.up:
        axes, begin = list(range(2, up.rank)), [0] * (up.rank - 2)
        end, step = [axis.end for axis in windows.axes], windows.stride
        up = emit("slice", up, axes=axes, begin=begin, end=end, stride=step, hint="met")
    outer = tuple(extent for extent in (batch, groups) if extent != 1)
    rows = [
        reshaped(emit, side, (*outer, side.shape[1] // groups, pixels), f"{name}_rows")
        for side, name in zip((down, up), reversed(names), strict=True)
    ]
    product = emit("matmul", *rows, transposeB=True, hint="filter_grad_matrix")
    if batch != 1:
        product = emit("sum_reduce", product, axes=[0], hint="filter_grad_matrix")
    shape = (down.shape[1], up.shape[1] // groups, *windows.size)
    return reshaped(emit, product, shape)


def _correlation(emit: Emit, sides: Sides) -> Tensor:
    """With batch and channels exchanged, a convolution whose filter is the down-scaled
    side: where the forward filter moved by the stride, this one is stretched by it, and
    it moves by what was the dilation.
    """
    up, down, windows, groups, names = sides
    images = _by_channel(emit, up, groups, names[0])
    kernels = _by_channel(emit, down, 1, names[1])
    attributes = {**windows.pairing.attributes, "groups": groups}
    hint = "filter_grad_by_channel"
    if has_symbols(attributes["padding"]):
        # What a stride leaves over is not known: it meets places beyond the filter.
        attributes["padding"] = windows.padding
        places = emit("conv", images, kernels, **attributes, hint="places")
        ends = {axis: (0, size) for axis, size in enumerate(windows.size, start=2)}
        product = section(emit, places, ends, hint=hint)
    else:
        product = emit("conv", images, kernels, **attributes, hint=hint)
    return _exchanged(emit, product)


def _by_channel(emit: Emit, x: Tensor, groups: Dimension, side: str) -> Tensor:
    """To [C / groups, groups * B, X...]: a group's channels become the batch."""
    hint = f"{side}_by_channel"
    if groups == 1:
        return _exchanged(emit, x, hint)
    batch, channels, *spatial = x.shape
    shape = (batch, groups, channels // groups, *spatial)
    apart = reshaped(emit, x, shape, hint=f"{side}_groups")
    order = [2, 1, 0, *range(3, apart.rank)]
    moved = emit("transpose", apart, axes=order, hint=f"{side}_groups_by_channel")
    return reshaped(emit, moved, (channels // groups, groups * batch, *spatial), hint)


def _exchanged(emit: Emit, x: Tensor, hint: str | None = None) -> Tensor:
    """Batch and channels change places."""
    return emit("transpose", x, axes=[1, 0, *range(2, x.rank)], hint=hint)
