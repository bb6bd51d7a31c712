"""Convolutions, and deconvolutions as convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import Operation, Shape, Tensor, shape_of
from nnef_grad.graph.quotients import maximum
from nnef_grad.ops.conv import groups_of
from nnef_grad.ops.parts import section
from nnef_grad.ops.shape import Positions, reshaped
from nnef_grad.ops.windows import Padding, Windows, added_border, windows_of
from nnef_grad.targets import conditions as when
from nnef_grad.targets.borders import crop, join_zeros
from nnef_grad.targets.registry import lowering
from nnef_grad.targets.shape import one_by_one, take
from nnef_grad.targets.windows import (
    are_side_by_side,
    skipping_axes,
    spread,
    without_needless_strides,
)

# Batch and channels are not padded.
_UNPADDED = ((0, 0), (0, 0))


def cropped(emit: Emitter, x: Tensor, padding: Padding) -> tuple[Tensor, Padding]:
    """The input without what negative padding of space crops, and the padding besides."""
    kept = crop(emit, x, (*_UNPADDED, *padding), hint="cropped")
    return kept, added_border(padding)


@lowering("conv")
def conv_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """With everything given. Negative padding crops the input, and zeros are joined to
    it where windows may lie outside as a whole.
    """
    windows = without_needless_strides(windows_of(op))
    x, padding = cropped(emit, op.inputs[0], windows.padding)
    if has_symbols(padding):
        x = emit("pad", x, padding=(*_UNPADDED, *padding), hint="padded")
        padding = ((0, 0),) * len(padding)
    elif when.idle(op):
        x = join_zeros(emit, x, (*_UNPADDED, *padding))
        padding = ((0, 0),) * len(padding)
    x, windows = _thinned(emit, x, replace(windows, padding=padding))
    w = op.inputs[1]
    if x is op.inputs[0] and windows == windows_of(op) and when.dilated_in_depth(op):
        w, windows = _filled(emit, w, windows)
    return [_biased(emit, op, x, w, windows.attributes, hint="unbiased")]


def _filled(emit: Emitter, w: Tensor, windows: Windows) -> tuple[Tensor, Windows]:
    """The filter with zeros for what a dilation along its first axis of space steps over."""
    step, *others = windows.dilation
    gaps = spread(emit, w, (1, 1, step), zeros=True)
    filled = take(emit, gaps, {2: Positions(0, (w.shape[2] - 1) * step + 1)})
    size = filled.shape[2:]
    return filled, replace(windows, size=size, dilation=(1, *others))


def _thinned(emit: Emitter, x: Tensor, windows: Windows) -> tuple[Tensor, Windows]:
    """The input without what a stride skips in all windows, and the windows over it."""
    axes = skipping_axes(windows)
    if not axes:
        return x, windows
    steps = [s if axis in axes else 1 for axis, s in enumerate(windows.stride)]
    size, padding = [1] * x.rank, [(0, 0)] * x.rank
    x = emit("box", x, size=size, padding=padding, stride=[1, 1, *steps], hint="kept")
    stride, dilation = (
        tuple(max(n // step, 1) for n, step in zip(items, steps, strict=True))
        for items in (windows.stride, windows.dilation)
    )
    return x, replace(windows, stride=stride, dilation=dilation)


def _biased(
    emit: Emitter,
    op: Operation,
    x: Tensor,
    w: Tensor,
    attributes: Mapping[str, Any],
    hint: str,
) -> Tensor:
    """The operation on x and w, with a bias by channel, or with another added after it."""
    (y,), bias = op.outputs, op.operands[2]
    is_by_channel = shape_of(bias) == (1, y.shape[1])
    is_within = is_by_channel and (op.name == "conv" or not when.uncovered(op))
    within, after = (bias, 0.0) if is_within else (0.0, bias)
    unbiased = emit(
        op.name, x, w, within, **attributes, groups=groups_of(op), hint=hint
    )
    return emit("add", unbiased, after)


_OPEN = (
    when.automatic
    | when.repeating
    | when.bias_not_by_channel
    | when.number_as_bias
    | when.biased & when.uncovered
)


@lowering("deconv")
def deconv_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """With everything given. Then a single window, as large as the result, is a fully
    connected layer in reverse, and others are those of a convolution.
    """
    windows, groups = windows_of(op), groups_of(op)
    if has_symbols(windows.padding):
        return [_uncropped(emit, op, windows)]
    x, w = op.inputs[:2]
    if _OPEN(op) or (when.sized(op) and windows.has_natural_extents):
        shape = windows.output_shape(*op.outputs[0].shape[:2])
        attributes = {**windows.attributes, "output_shape": shape}
        return [_biased(emit, op, x, w, attributes, hint="spread")]
    is_single = prod(windows.down) == 1 and prod(windows.size) > 1
    if is_single and groups == 1 and are_side_by_side(windows):
        return [_product(emit, op)]
    return [turned_convolution(emit, op, windows)]


def _uncropped(emit: Emitter, op: Operation, windows: Windows) -> Tensor:
    """The operation without padding, of whose result a part is taken."""
    (y,), (x, w), axes = op.outputs, op.inputs[:2], windows.axes
    whole = tuple(a.end - a.begin for a in axes)
    up = tuple(maximum(n, a.up - a.begin) for n, a in zip(whole, axes, strict=True))
    wider = replace(windows, up=up, padding=((0, 0),) * len(axes))
    attributes = {**wider.attributes, "output_shape": wider.output_shape(*y.shape[:2])}
    wide = _biased(emit, op, x, w, attributes, hint="wide")
    ranges = {i: (-a.begin, a.up - a.begin) for i, a in enumerate(axes, 2)}
    return section(emit, wide, ranges)


def _product(emit: Emitter, op: Operation) -> Tensor:
    (y,), (x, w) = op.outputs, op.inputs[:2]
    batch, channels = x.shape[:2]
    points = reshaped(emit, x, (batch, channels), hint="points")
    rows = reshaped(emit, w, (channels, prod(w.shape[1:])), hint="rows")
    product = emit("matmul", points, rows, hint="product")
    unbiased = reshaped(emit, product, y.shape, hint="unbiased")
    return emit("add", unbiased, op.operands[2])


def turned_convolution(emit: Emitter, op: Operation, windows: Windows) -> Tensor:
    """The sums that elements of the result receive: windows slide along the result,
    over an input with zeros between its elements, which they meet in reverse order.
    """
    (x, w), groups = op.inputs[:2], groups_of(op)
    strides = zip(windows.stride, windows.down, strict=True)
    factors = [1, 1, *(s if count != 1 else 1 for s, count in strides)]
    dilated = spread(emit, x, factors, zeros=True)
    padding = tuple(
        (axis.reach - 1 + axis.begin, axis.up - extent - axis.begin)
        for axis, extent in zip(windows.axes, dilated.shape[2:], strict=True)
    )
    x, padding = cropped(emit, dilated, padding)
    attributes = {
        **windows.attributes,
        "padding": padding,
        "stride": (),
        "groups": groups,
    }
    return emit("conv", x, turned_filter(emit, w, groups), op.operands[2], **attributes)


def turned_filter(
    emit: Emitter, w: Tensor, groups: Dimension, kept: Sequence[Positions] | None = None
) -> Tensor:
    """[c, C / groups, f...] to [C, c / groups, f...], turned, with kept positions."""
    filters, channels, *size = w.shape
    kept = kept or [Positions(0, extent) for extent in size]
    extents = [taken.count for taken in kept]
    shape = (channels * groups, filters // groups, *extents)
    producer = emit.producer(w)
    if producer is None or producer.name != "constant":
        before = (filters, channels, *extents)
        return exchanged(emit, _turned(emit, w, kept), groups, before, shape)
    value = producer.attributes["value"]
    if len(value) > 1:
        parts = np.reshape(value, (groups, filters // groups, channels, *size))
        for axis, taken in enumerate(kept, start=3):
            parts = parts.take([*taken.backward], axis)
        value = parts.swapaxes(1, 2).ravel().tolist()
    return emit("constant", shape=shape, value=value, hint="turned")


def _turned(emit: Emitter, w: Tensor, kept: Sequence[Positions]) -> Tensor:
    """A part of the filter, turned around: computed, as the response to a single 1; of
    a variable, one by one: tract folds slices of any, and else only of what is read
    once.
    """
    producer = emit.producer(w)
    if producer is not None and producer.name == "variable":
        backward = {axis: taken.backward for axis, taken in enumerate(kept, start=2)}
        return one_by_one(emit, w, backward)
    part = take(emit, w, dict(enumerate(kept, start=2)))
    filters, channels, *size = part.shape
    if prod(size) == 1:
        return part
    impulse = emit("constant", shape=[1] * w.rank, value=[1.0], hint="impulse")
    planes = reshaped(emit, part, (filters * channels, 1, *size), hint="planes")
    padding = [(extent - 1, extent - 1) for extent in size]
    return emit("conv", impulse, planes, padding=padding, hint="turned")


def exchanged(
    emit: Emitter, w: Tensor, groups: Dimension, shape: Shape, exchanged: Shape
) -> Tensor:
    """A filter, from a shape to another: filters and channels of groups exchanged."""
    filters, channels, *size = shape
    if channels == 1 or filters == groups:
        return reshaped(emit, w, exchanged, hint="kernels")
    parts, axes = shape, [1, 0, *range(2, len(shape))]
    if groups > 1:
        # The spatial axes go as one: not all runtimes transpose more than five.
        parts, axes = (groups, filters // groups, channels, prod(size)), [0, 2, 1, 3]
    kernels = reshaped(emit, w, parts, hint="kernels")
    moved = emit("transpose", kernels, axes=axes, hint="exchanged")
    return reshaped(emit, moved, exchanged, hint="filter")
