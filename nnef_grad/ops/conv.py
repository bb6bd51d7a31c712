"""Convolutions: tensors are [batch, channels, spatial...], the filter is [c, C /
groups, spatial...].

C channels are on the up-scaled side, c on the down-scaled one: `conv` reads C channels
and writes c, `deconv` goes the other way with the same filter. Each is the adjoint of
the other. The gradient of the filter pairs the two sides: it is a convolution too, with
stride and dilation exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.ops.registry import (
    Emit,
    ShapeError,
    require,
    shape,
    vjp,
)
from nnef_grad.ops.windows import (
    Padding,
    Windows,
    basic_outside,
    check_border,
    check_positive,
    check_reach,
    downscaling,
    reverse_outside,
    upscaling,
)

BORDERS = ("constant", "replicate", "reflect", "reflect-even")


# ---- Shapes ----


@shape("conv")
def conv_shape(
    input: Shape,
    filter: Shape,
    bias: Shape,
    border: str,
    padding: Padding,
    stride: Shape,
    dilation: Shape,
    groups: int,
) -> Shape:
    """[B, C, X...] and [c, C / groups, f...] give [B, c, x...]."""
    _check_filter(input, filter, border, groups)
    groups = conv_groups(input, groups)
    message = (
        f"the filter has {filter[1]} channels for each of {groups} groups,"
        f" and the input has {input[1]} channels in all"
    )
    require(filter[1] * groups == input[1], message)
    _check_divides(groups, filter)
    _check_bias(bias, filter[0], len(input))
    windows = downscaling(input[2:], filter[2:], padding, stride, dilation)
    check_reach(border, windows.up, basic_outside(windows))
    return (input[0], filter[0], *windows.down)


@shape("deconv")
def deconv_shape(
    input: Shape,
    filter: Shape,
    bias: Shape,
    border: str,
    padding: Padding,
    stride: Shape,
    dilation: Shape,
    output_shape: Shape,
    groups: int,
) -> Shape:
    """[B, c, x...] and [c, C / groups, f...] give [B, C, X...]."""
    _check_filter(input, filter, border, groups)
    require(
        filter[0] == input[1],
        f"there are {filter[0]} filters, and the input has {input[1]} channels",
    )
    _check_output_shape(input, output_shape)
    depthwise, groups = groups == 0, deconv_groups(input, output_shape, groups)
    require(
        not depthwise or filter[1] == 1,
        f"with 'groups' = 0 the filter must have 1 channel, and it has {filter[1]}",
    )
    _check_divides(groups, filter)
    channels = filter[1] * groups
    expected = output_shape[:2] in ((), (input[0], channels))
    require(
        expected,
        f"'output_shape' must begin with {[input[0], channels]}, batch and channels,"
        f" and is {list(output_shape)}",
    )
    _check_bias(bias, channels, len(input))
    windows = upscaling(
        input[2:], filter[2:], padding, stride, dilation, output_shape[2:]
    )
    check_reach(border, windows.down, reverse_outside(windows))
    return (input[0], channels, *windows.up)


@shape("separable_conv")
def separable_conv_shape(
    input: Shape,
    plane_filter: Shape,
    point_filter: Shape,
    bias: Shape,
    border: str,
    padding: Padding,
    stride: Shape,
    dilation: Shape,
    groups: int,
) -> Shape:
    """What the two steps of its body give."""
    planes = _step(
        "plane_filter",
        conv_shape,
        input,
        plane_filter,
        (),
        border,
        padding,
        stride,
        dilation,
        0,
    )
    return _step(
        "point_filter",
        conv_shape,
        planes,
        point_filter,
        bias,
        "constant",
        (),
        (),
        (),
        groups,
    )


@shape("separable_deconv")
def separable_deconv_shape(
    input: Shape,
    plane_filter: Shape,
    point_filter: Shape,
    bias: Shape,
    border: str,
    padding: Padding,
    stride: Shape,
    dilation: Shape,
    output_shape: Shape,
    groups: int,
) -> Shape:
    """What the two steps of its body give."""
    points = _step(
        "point_filter",
        deconv_shape,
        input,
        point_filter,
        (),
        "constant",
        (),
        (),
        (),
        (),
        groups,
    )
    return _step(
        "plane_filter",
        deconv_shape,
        points,
        plane_filter,
        bias,
        border,
        padding,
        stride,
        dilation,
        output_shape,
        0,
    )


def _step(
    filter_name: str, shape_function: Callable[..., Shape], *arguments: Any
) -> Shape:
    """The shape after one step of a separable convolution; a message says of which
    filter it speaks.
    """
    try:
        return shape_function(*arguments)
    except ShapeError as error:
        raise ShapeError(f"with '{filter_name}', {error}") from None


def conv_groups(input: Shape, groups: int) -> int:
    """The number of groups; 0 stands for one for each channel of the input."""
    return groups or input[1]


def deconv_groups(input: Shape, output_shape: Shape, groups: int) -> int:
    """The number of groups; 0 stands for one for each channel of the output, which are
    those of the input if nobody says.
    """
    return groups or (output_shape[1] if output_shape else input[1])


def _check_filter(input: Shape, filter: Shape, border: str, groups: int) -> None:
    check_border(border, BORDERS)
    require(
        len(input) >= 2,
        f"the input must have batch and channels, and has the shape {list(input)}",
    )
    fits = len(filter) == len(input)
    require(
        fits,
        f"the filter must have the rank of the input, and their shapes are {list(filter)} and {list(input)}",
    )
    require(groups >= 0, f"'groups' must not be negative, and is {groups}")


def _check_divides(groups: int, filter: Shape) -> None:
    require(
        filter[0] % groups == 0,
        f"'groups' must divide the number of filters, and they are {groups} and {filter[0]}",
    )


def _check_output_shape(input: Shape, output_shape: Shape) -> None:
    fits = len(output_shape) in (0, len(input))
    require(
        fits,
        f"'output_shape' must have {len(input)} items, or none at all, and is {list(output_shape)}",
    )
    check_positive("output_shape", output_shape)


def _check_bias(bias: Shape, channels: int, rank: int) -> None:
    fits = len(bias) <= rank and all(
        extent in ((1, channels) if axis == 1 else (1,))
        for axis, extent in enumerate(bias)
    )
    if not fits:
        message = (
            f"the bias must have the shape [1, {channels}], or be a single element,"
            f" and has the shape {list(bias)}"
        )
        raise ShapeError(message, remedy="lenient" if len(bias) == 1 else None)


# ---- Gradients ----


@vjp("conv")
def conv_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    """dinput goes back through the same filter; dfilter pairs the input with dy; dbias
    is dy, which the sweep sums.
    """
    x, w = _operands(op)
    windows = conv_windows(op)
    if not windows.touch_data:
        return [None, None, dy]
    groups = conv_groups(x.shape, op.attributes["groups"])
    output_shape = () if windows.has_natural_extents else x.shape
    dinput = emit(
        "deconv", dy, w, **windows.attributes, output_shape=output_shape, groups=groups
    )
    return [
        dinput,
        _filter_gradient(emit, x, dy, windows, groups, ("input", "grad")),
        dy,
    ]


@vjp("deconv")
def deconv_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    """As for conv, with the two sides exchanged: the input is the small one."""
    x, w = _operands(op)
    windows = deconv_windows(op)
    if not windows.touch_data:
        return [None, None, dy]
    groups = deconv_groups(
        x.shape, op.attributes["output_shape"], op.attributes["groups"]
    )
    dinput = emit("conv", dy, w, **windows.attributes, groups=groups)
    return [
        dinput,
        _filter_gradient(emit, dy, x, windows, groups, ("grad", "input")),
        dy,
    ]


def _operands(op: Operation) -> tuple[Tensor, Tensor]:
    """The input and the filter."""
    x, w, *_ = op.inputs
    return x, w


def conv_windows(op: Operation) -> Windows:
    """The windows of a convolution over its input."""
    x, _ = _operands(op)
    return _windows(op, x.shape)


def deconv_windows(op: Operation) -> Windows:
    """The windows of a deconvolution over its output."""
    (y,) = op.outputs
    return _windows(op, y.shape)


def _windows(op: Operation, up: Shape) -> Windows:
    _, w = _operands(op)
    attributes = op.attributes
    return downscaling(
        up[2:],
        w.shape[2:],
        attributes["padding"],
        attributes["stride"],
        attributes["dilation"],
    )


def _filter_gradient(
    emit: Emit,
    up: Tensor,
    down: Tensor,
    windows: Windows,
    groups: int,
    sides: tuple[str, str],
) -> Tensor:
    """Correlates the two sides of a convolution: [B, C, X...] with [B, c, x...] gives
    [c, C / groups, f...].

    With batch and channels exchanged this is a convolution whose filter is the
    down-scaled side: where the forward filter moved by the stride, this one is
    stretched by it, and it moves by what was the dilation.
    """
    images = _by_channel(emit, up, groups, sides[0])
    kernels = emit(
        "transpose", down, axes=_exchanged(down.rank), hint=f"{sides[1]}_by_channel"
    )
    # A stride may leave a remainder after the last window: negative padding crops it.
    after = (
        last - extent for last, extent in zip(windows.end, windows.up, strict=True)
    )
    pairing = Windows(
        up=windows.up,
        down=windows.size,
        size=windows.down,
        padding=tuple((p, q) for (p, _), q in zip(windows.padding, after, strict=True)),
        stride=windows.dilation,
        dilation=windows.stride,
    )
    by_channel = emit(
        "conv",
        images,
        kernels,
        **pairing.attributes,
        groups=groups,
        hint="filter_grad_by_channel",
    )
    return emit("transpose", by_channel, axes=_exchanged(down.rank))


def _by_channel(emit: Emit, x: Tensor, groups: int, side: str) -> Tensor:
    """[B, C, X...] to [C / groups, groups * B, X...]: the channels of a group become
    the batch, its batch the channels.
    """
    batch, channels, *spatial = x.shape
    exchanged: Tensor
    if groups == 1:
        exchanged = emit(
            "transpose", x, axes=_exchanged(x.rank), hint=f"{side}_by_channel"
        )
        return exchanged
    apart = emit(
        "reshape",
        x,
        shape=[batch, groups, channels // groups, *spatial],
        hint=f"{side}_groups",
    )
    order = [2, 1, 0, *range(3, apart.rank)]
    moved = emit("transpose", apart, axes=order, hint=f"{side}_groups_by_channel")
    shape = [channels // groups, groups * batch, *spatial]
    exchanged = emit("reshape", moved, shape=shape, hint=f"{side}_by_channel")
    return exchanged


def _exchanged(rank: int) -> list[int]:
    """Batch and channels change places."""
    return [1, 0, *range(2, rank)]
