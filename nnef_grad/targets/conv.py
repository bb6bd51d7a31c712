"""Convolutions, and deconvolutions as convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operand, Operation, Shape, Tensor
from nnef_grad.ops import DECOMPOSITIONS
from nnef_grad.ops.conv import conv_groups, conv_windows, deconv_groups, deconv_windows
from nnef_grad.ops.shape import reshaped
from nnef_grad.ops.windows import Padding, Windows, reaches
from nnef_grad.targets.registry import Inexpressible, lowering
from nnef_grad.targets.windows import (
    MOST_AXES,
    covers,
    cropped,
    idle_windows,
    lie_side_by_side,
    skipping_axes,
    stuffed,
    without_idle,
)

# ---- Convolutions ----


@lowering("conv")
def conv_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """With everything said: the padding, the groups, a bias that has a number for each
    channel. What negative padding crops is sliced off, and windows that lie outside as a
    whole are zeros around the result.
    """
    x, w, bias = op.operands
    assert isinstance(x, Tensor)
    assert isinstance(w, Tensor)
    groups = conv_groups(x.shape, op.attributes["groups"])
    if x.rank == 2:
        return [_pointwise(emit, op, groups)]
    _check_rank(x)
    if DECOMPOSITIONS["conv"].applies(op):
        return DECOMPOSITIONS["conv"].build(emit, op)
    windows, idle = without_idle(conv_windows(op)), idle_windows(conv_windows(op))
    if min(windows.down) <= 0:
        return [_untouched(emit, op)]
    inside, windows = cropped(emit, x, windows)
    kept, windows = _thinned(emit, inside, windows)
    is_whole = not any(map(any, idle))
    within, after = _divided(bias, w.shape[0]) if is_whole else (0.0, bias)
    attributes = {**windows.attributes, "groups": groups}
    y = emit("conv", kept, w, within, **attributes, hint="unbiased")
    if not is_whole:
        y = emit("pad", y, padding=[(0, 0), (0, 0), *idle], hint="padded")
    return [emit("add", y, after)]


def _thinned(emit: Emitter, x: Tensor, windows: Windows) -> tuple[Any, Windows]:
    """The input without the elements that a stride skips in all windows, and the windows
    over what is left.
    """
    axes = skipping_axes(windows)
    if not axes:
        return x, windows
    each = [s if axis in axes else 1 for axis, s in enumerate(windows.stride)]
    single: dict[str, Any] = {"size": [1] * x.rank, "padding": [(0, 0)] * x.rank}
    kept = emit("box", x, **single, stride=[1, 1, *each], hint="kept")
    stride = tuple(s // every for s, every in zip(windows.stride, each, strict=True))
    dilation = tuple(
        max(d // every, 1) for d, every in zip(windows.dilation, each, strict=True)
    )
    return kept, replace(windows, up=kept.shape[2:], stride=stride, dilation=dilation)


def _divided(bias: Operand, channels: int) -> tuple[Operand, Operand]:
    """A bias as one of the operation itself, and one to be added after it."""
    return (bias, 0.0) if _is_by_channel(bias, channels) else (0.0, bias)


def _is_by_channel(bias: Operand, channels: int) -> bool:
    """Whether there is a number for each channel, or nothing to add at all."""
    return bias.shape == (1, channels) if isinstance(bias, Tensor) else bias == 0.0


def _pointwise(emit: Emitter, op: Operation, groups: int) -> Any:
    """Without space: the same with a single element of space."""
    x, w, bias = op.operands
    points = emit("unsqueeze", x, axes=[2], hint="points")
    kernels = emit("unsqueeze", w, axes=[2], hint="kernels")
    attributes: dict[str, Any] = {"padding": [(0, 0)], "groups": groups}
    mixed = emit(op.name, points, kernels, bias, **attributes, hint="mixed")
    return emit("squeeze", mixed, axes=[2])


def _untouched(emit: Emitter, op: Operation) -> Any:
    """All windows lie outside: there is nothing but the bias."""
    (y,) = op.outputs
    zeros = emit("constant", shape=y.shape, value=[0.0], hint="zeros")
    return emit("add", zeros, op.operands[2])


def _check_rank(x: Tensor) -> None:
    if x.rank > 2 + MOST_AXES:
        raise Inexpressible(f"with more than {MOST_AXES} spatial axes")


# ---- Deconvolutions ----


@lowering("deconv")
def deconv_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """With everything said, if it is not: a convolution, if it is."""
    x = op.inputs[0]
    if x.rank == 2:
        return [_pointwise(emit, op, _groups(op))]
    _check_rank(x)
    if DECOMPOSITIONS["deconv"].applies(op):
        return DECOMPOSITIONS["deconv"].build(emit, op)
    if not deconv_windows(op).touch_data:
        return [_untouched(emit, op)]
    if not _is_plain(op):
        return [_plain(emit, op)]
    if _groups(op) == 1 and _is_single(deconv_windows(op)):
        return [_product(emit, op)]
    return [_convolution(emit, op)]


def _groups(op: Operation) -> int:
    x, attributes = op.inputs[0], op.attributes
    return deconv_groups(x.shape, attributes["output_shape"], attributes["groups"])


def _is_plain(op: Operation) -> bool:
    """Whether everything is said, and nothing that need not be."""
    (y,), attributes, windows = op.outputs, op.attributes, deconv_windows(op)
    padding: Padding = attributes["padding"]
    return (
        attributes["border"] == "constant"
        and len(padding) > 0
        and min(map(min, padding)) >= 0
        and not (attributes["output_shape"] and windows.has_natural_extents)
        and (op.operands[2] == 0.0 or covers(windows))
        and _is_by_channel(op.operands[2], y.shape[1])
    )


def _plain(emit: Emitter, op: Operation) -> Any:
    """Negative padding is zeros around the result. The bias is added to them too, and to
    what no window reaches.
    """
    (y,), (x, w, bias), windows = op.outputs, op.operands, deconv_windows(op)
    zeros = [(max(-before, 0), max(-after, 0)) for before, after in windows.padding]
    attributes = {**_inside(windows, zeros, y.shape[:2]), "groups": _groups(op)}
    within, after = _divided(bias, y.shape[1]) if covers(windows) else (0.0, bias)
    spread = emit("deconv", x, w, within, **attributes, hint="spread")
    if any(map(any, zeros)):
        padding = [(0, 0), (0, 0), *zeros]
        spread = emit("pad", spread, padding=padding, hint="padded")
    return emit("add", spread, after)


def _inside(
    windows: Windows, zeros: Sequence[tuple[int, int]], channels: Shape
) -> dict[str, Any]:
    """The attributes of a deconvolution without the zeros around its result."""
    up = tuple(
        extent - sum(sides) for extent, sides in zip(windows.up, zeros, strict=True)
    )
    padding = tuple(
        (max(before, 0), max(after, 0)) for before, after in windows.padding
    )
    inside = replace(windows, up=up, padding=padding)
    output_shape = () if inside.has_natural_extents else (*channels, *up)
    return {**inside.attributes, "output_shape": output_shape}


def _is_single(windows: Windows) -> bool:
    """Whether one window is all there is."""
    is_one = prod(windows.down) == 1 and prod(windows.size) > 1
    return is_one and lie_side_by_side(windows)


def _product(emit: Emitter, op: Operation) -> Any:
    """One window is as large as the result: a fully connected layer in reverse."""
    (y,) = op.outputs
    x, w, bias = op.operands
    assert isinstance(x, Tensor)
    assert isinstance(w, Tensor)
    batch, channels = x.shape[:2]
    points = reshaped(emit, x, (batch, channels), hint="points")
    rows = reshaped(emit, w, (channels, prod(w.shape[1:])), hint="rows")
    product = emit("matmul", points, rows, hint="product")
    return emit("add", reshaped(emit, product, y.shape, hint="unbiased"), bias)


def _convolution(emit: Emitter, op: Operation) -> Any:
    """What the elements of the result receive: the windows slide along the result, over
    an input with zeros between its elements, and meet their elements in reverse order.
    """
    x, w, bias = op.operands
    assert isinstance(x, Tensor)
    assert isinstance(w, Tensor)
    windows, groups = deconv_windows(op), _groups(op)
    strides = zip(windows.stride, windows.down, strict=True)
    factors = {a: s for a, (s, count) in enumerate(strides, start=2) if count > 1}
    apart = stuffed(emit, x, factors)
    reach = reaches(windows.size, windows.dilation)
    columns = zip(windows.padding, reach, windows.up, apart.shape[2:], strict=True)
    padding = [(r - 1 - p, up - held + p) for (p, _), r, up, held in columns]
    attributes = {
        **windows.attributes,
        "padding": padding,
        "stride": (),
        "groups": groups,
    }
    return emit("conv", apart, _transposed(emit, w, groups), bias, **attributes)


# ---- The filter of the other direction ----


def _transposed(emit: Emitter, w: Tensor, groups: int) -> Any:
    """[c, C / groups, f...] to [C, c / groups, f...], turned around in space."""
    filters, channels, *size = w.shape
    shape = (channels * groups, filters // groups, *size)
    producer = emit.producer(w)
    if producer is None or producer.name != "constant":
        return _exchanged(emit, _turned(emit, w), groups, w.shape, shape)
    value = producer.attributes["value"]
    if len(value) > 1:
        value = _transposed_values(value, groups, w.shape)
    return emit("constant", shape=shape, value=value, hint="turned")


def _transposed_values(
    value: Sequence[float], groups: int, shape: Shape
) -> list[float]:
    filters, channels, *size = shape
    volume, per_group = prod(size), filters // groups
    return [
        value[((group * per_group + i) * channels + j) * volume + element]
        for group in range(groups)
        for j in range(channels)
        for i in range(per_group)
        for element in reversed(range(volume))
    ]


def _turned(emit: Emitter, w: Tensor) -> Any:
    """The filter turned around in space: the response to a single 1, as large as the
    filter is; its filters are all the planes.
    """
    filters, channels, *size = w.shape
    if prod(size) == 1:
        return w
    impulse = emit("constant", shape=[1] * w.rank, value=[1.0], hint="impulse")
    planes = reshaped(emit, w, (filters * channels, 1, *size), hint="planes")
    padding = [(extent - 1, extent - 1) for extent in size]
    return emit("conv", impulse, planes, padding=padding, hint="turned")


def _exchanged(
    emit: Emitter, w: Tensor, groups: int, shape: Shape, exchanged: Shape
) -> Any:
    """The filters of a group and its channels change places.

    Args:
        w: the filter, in whatever shape.
        groups: the groups.
        shape, exchanged: its shapes before and after.
    """
    filters, channels, *size = shape
    if channels == 1 or filters == groups:
        return reshaped(emit, w, exchanged, hint="kernels")
    if groups == 1:
        axes = [1, 0, *range(2, len(shape))]
        kernels = reshaped(emit, w, shape, hint="kernels")
        return emit("transpose", kernels, axes=axes, hint="exchanged")
    # The spatial axes go as one: not all runtimes transpose more than five.
    apart = (groups, filters // groups, channels, prod(size))
    kernels = reshaped(emit, w, apart, hint="kernels")
    moved = emit("transpose", kernels, axes=[0, 2, 1, 3], hint="exchanged")
    return reshaped(emit, moved, exchanged, hint="filter")
