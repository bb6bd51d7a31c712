"""Convolutions: tensors are [batch, channels, spatial...], the filter is [c, C /
groups, spatial...].

C channels are on the up-scaled side, c on the down-scaled one: `conv` reads C channels
and writes c, `deconv` goes the other way with the same filter. Each is the adjoint of
the other. The gradient of the filter pairs the two sides: it is a convolution too, with
stride and dilation exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.ops.registry import (
    Emit,
    ShapeError,
    require,
    shape,
    vjp,
)
from nnef_grad.ops.shape import reshaped
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
        f" but is {list(output_shape)}",
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
    """The shape after the two steps of its body."""
    with _naming("plane_filter"):
        planes = conv_shape(
            input, plane_filter, (), border, padding, stride, dilation, 0
        )
    with _naming("point_filter"):
        return conv_shape(planes, point_filter, bias, "constant", (), (), (), groups)


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
    """The shape after the two steps of its body."""
    with _naming("point_filter"):
        points = deconv_shape(
            input, point_filter, (), "constant", (), (), (), (), groups
        )
    window = border, padding, stride, dilation
    with _naming("plane_filter"):
        return deconv_shape(points, plane_filter, bias, *window, output_shape, 0)


@contextmanager
def _naming(filter_name: str) -> Iterator[None]:
    """A message says of which filter of a separable convolution it speaks."""
    try:
        yield
    except ShapeError as error:
        raise ShapeError(f"with '{filter_name}', {error}") from None


def conv_groups(input: Shape, groups: int) -> int:
    """The number of groups; 0 stands for one for each channel of the input."""
    return groups or input[1]


def deconv_groups(input: Shape, output_shape: Shape, groups: int) -> int:
    """The number of groups; 0 stands for one for each channel of the output, which are
    those of the input by default.
    """
    return groups or (output_shape[1] if output_shape else input[1])


def _check_filter(input: Shape, filter: Shape, border: str, groups: int) -> None:
    check_border(border, BORDERS)
    require(
        len(input) >= 2,
        f"the input must have batch and channels, but has the shape {list(input)}",
    )
    fits = len(filter) == len(input)
    require(
        fits,
        f"the filter must have the rank of the input, and their shapes are {list(filter)} and {list(input)}",
    )
    require(groups >= 0, f"'groups' must not be negative, but is {groups}")


def _check_divides(groups: int, filter: Shape) -> None:
    require(
        filter[0] % groups == 0,
        f"'groups' must divide the number of filters, and they are {groups} and {filter[0]}",
    )


def _check_output_shape(input: Shape, output_shape: Shape) -> None:
    fits = len(output_shape) in (0, len(input))
    require(
        fits,
        f"'output_shape' must have {len(input)} items, or none at all, but is {list(output_shape)}",
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
            f" but has the shape {list(bias)}"
        )
        raise ShapeError(message, remedy="lenient" if len(bias) == 1 else None)


# ---- Gradients ----


@vjp("conv")
def conv_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor | None]:
    """dinput goes back through the same filter; dfilter pairs the input with dy; dbias
    is dy, which the sweep sums.
    """
    x, w, *_ = op.inputs
    windows = conv_windows(op)
    if not windows.touch_data:
        return [None, None, dy]
    attributes = {
        **windows.attributes,
        "output_shape": () if windows.has_natural_extents else x.shape,
        "groups": conv_groups(x.shape, op.attributes["groups"]),
    }
    return [
        emit("deconv", dy, w, **attributes),
        _filter_gradient(emit, x, dy, windows, attributes["groups"], ("input", "grad")),
        dy,
    ]


@vjp("deconv")
def deconv_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor | None]:
    """As for conv, with the two sides exchanged: the input is the small one."""
    x, w, *_ = op.inputs
    windows, attributes = deconv_windows(op), op.attributes
    if not windows.touch_data:
        return [None, None, dy]
    groups = deconv_groups(x.shape, attributes["output_shape"], attributes["groups"])
    return [
        emit("conv", dy, w, **windows.attributes, groups=groups),
        _filter_gradient(emit, dy, x, windows, groups, ("grad", "input")),
        dy,
    ]


def conv_windows(op: Operation) -> Windows:
    """The windows of a convolution over its input."""
    return _windows(op, op.inputs[0].shape)


def deconv_windows(op: Operation) -> Windows:
    """The windows of a deconvolution over its output."""
    return _windows(op, op.outputs[0].shape)


def _windows(op: Operation, up: Shape) -> Windows:
    size, padding = op.inputs[1].shape[2:], op.attributes["padding"]
    stride, dilation = op.attributes["stride"], op.attributes["dilation"]
    return downscaling(up[2:], size, padding, stride, dilation)


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
    kernels = _by_channel(emit, down, 1, sides[1])
    attributes = {**windows.pairing.attributes, "groups": groups}
    by_channel = emit(
        "conv", images, kernels, **attributes, hint="filter_grad_by_channel"
    )
    return _exchanged(emit, by_channel)


def _by_channel(emit: Emit, x: Tensor, groups: int, side: str) -> Tensor:
    """[B, C, X...] to [C / groups, groups * B, X...]: the channels of a group become
    the batch, its batch the channels.
    """
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
