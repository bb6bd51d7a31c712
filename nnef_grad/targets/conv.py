"""Convolutions, and deconvolutions as convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operand, Operation, Shape, Tensor, shape_of
from nnef_grad.ops import DECOMPOSITIONS
from nnef_grad.ops.conv import groups_of
from nnef_grad.ops.shape import reshaped
from nnef_grad.ops.windows import Windows, windows_of
from nnef_grad.targets.borders import crop, join_zeros
from nnef_grad.targets.conditions import (
    automatic,
    bias_not_by_channel,
    biased,
    idle,
    number_as_bias,
    repeating,
    sized,
    uncovered,
)
from nnef_grad.targets.registry import lowering
from nnef_grad.targets.windows import (
    are_side_by_side,
    dilate,
    skipping_axes,
)

# Batch and channels are not padded.
_UNPADDED = ((0, 0), (0, 0))

# ---- Convolutions ----


@lowering("conv")
def conv_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """With everything given: the padding, the groups, a bias that has a number for each
    channel. Where windows may lie outside as a whole, zeros are joined to the input.
    """
    x, w = op.inputs[:2]
    if DECOMPOSITIONS["conv"].applies(op):
        return DECOMPOSITIONS["conv"].build(emit, op)
    x, windows = _cropped(emit, x, windows_of(op))
    if idle(op):
        x = join_zeros(emit, x, (*_UNPADDED, *windows.padding))
        padding = ((0, 0),) * len(windows.up)
        windows = replace(windows, up=x.shape[2:], padding=padding)
    x, windows = _thinned(emit, x, windows)
    within, after = _divided(op)
    attributes = {**windows.attributes, "groups": groups_of(op)}
    y = emit("conv", x, w, within, **attributes, hint="unbiased")
    return [emit("add", y, after)]


def _cropped(emit: Emitter, x: Tensor, windows: Windows) -> tuple[Tensor, Windows]:
    """The input without the elements that negative padding takes away, as it does in the
    gradient of a filter that does not reach the end, and the windows over the rest.
    """
    inside = crop(emit, x, (*_UNPADDED, *windows.padding), hint="cropped")
    padding = tuple((max(p, 0), max(q, 0)) for p, q in windows.padding)
    return inside, replace(windows, up=inside.shape[2:], padding=padding)


def _thinned(emit: Emitter, x: Tensor, windows: Windows) -> tuple[Tensor, Windows]:
    """The input without the elements that a stride skips in all windows, and the windows
    over what is left.
    """
    axes = skipping_axes(windows)
    if not axes:
        return x, windows
    steps = [s if axis in axes else 1 for axis, s in enumerate(windows.stride)]
    single: dict[str, Any] = {"size": [1] * x.rank, "padding": [(0, 0)] * x.rank}
    kept = emit("box", x, **single, stride=[1, 1, *steps], hint="kept")
    stride, dilation = (
        tuple(max(n // step, 1) for n, step in zip(items, steps, strict=True))
        for items in (windows.stride, windows.dilation)
    )
    return kept, replace(windows, up=kept.shape[2:], stride=stride, dilation=dilation)


def _divided(op: Operation) -> tuple[Operand, Operand]:
    """The bias as one of the operation itself, and one to be added after it."""
    (y,), bias = op.outputs, op.operands[2]
    is_by_channel = shape_of(bias) == (1, y.shape[1])
    is_within = is_by_channel and (op.name == "conv" or not uncovered(op))
    return (bias, 0.0) if is_within else (0.0, bias)


# ---- Deconvolutions ----

_OPEN = (
    automatic | repeating | bias_not_by_channel | number_as_bias | biased & uncovered
)


@lowering("deconv")
def deconv_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """With everything given, if it is not: a convolution, if it is."""
    windows = windows_of(op)
    if DECOMPOSITIONS["deconv"].applies(op):
        return DECOMPOSITIONS["deconv"].build(emit, op)
    if _OPEN(op) or (sized(op) and windows.has_natural_extents):
        return [_explicit(emit, op, windows)]
    if groups_of(op) == 1 and _is_single(windows):
        return [_product(emit, op)]
    return [_convolution(emit, op, windows)]


def _explicit(emit: Emitter, op: Operation, windows: Windows) -> Tensor:
    """With the padding. The bias is added to what no window reaches too."""
    (y,), (x, w, _) = op.outputs, op.operands
    within, after = _divided(op)
    attributes = {
        **windows.attributes,
        "groups": groups_of(op),
        "output_shape": windows.output_shape(*y.shape[:2]),
    }
    spread = emit("deconv", x, w, within, **attributes, hint="spread")
    return emit("add", spread, after)


def _is_single(windows: Windows) -> bool:
    """Whether one window is all there is."""
    is_one = prod(windows.down) == 1 and prod(windows.size) > 1
    return is_one and are_side_by_side(windows)


def _product(emit: Emitter, op: Operation) -> Tensor:
    """One window is as large as the result: a fully connected layer in reverse."""
    (y,), (x, w) = op.outputs, op.inputs[:2]
    batch, channels = x.shape[:2]
    points = reshaped(emit, x, (batch, channels), hint="points")
    rows = reshaped(emit, w, (channels, prod(w.shape[1:])), hint="rows")
    product = emit("matmul", points, rows, hint="product")
    return emit(
        "add", reshaped(emit, product, y.shape, hint="unbiased"), op.operands[2]
    )


def _convolution(emit: Emitter, op: Operation, windows: Windows) -> Tensor:
    """The sums that the elements of the result receive: the windows slide along the
    result, over an input with zeros between its elements, and meet their elements in
    reverse order.
    """
    (x, w), groups = op.inputs[:2], groups_of(op)
    strides = zip(windows.stride, windows.down, strict=True)
    factors = {a: s for a, (s, count) in enumerate(strides, start=2) if count > 1}
    dilated = dilate(emit, x, factors)
    reach = [axis.reach for axis in windows.axes]
    columns = zip(windows.padding, reach, windows.up, dilated.shape[2:], strict=True)
    padding = [(r - 1 - p, up - held + p) for (p, _), r, up, held in columns]
    attributes = {
        **windows.attributes,
        "padding": [(max(p, 0), max(q, 0)) for p, q in padding],
        "stride": (),
        "groups": groups,
    }
    cropped = crop(emit, dilated, (*_UNPADDED, *padding), hint="cropped")
    w = _transposed(emit, w, groups)
    return emit("conv", cropped, w, op.operands[2], **attributes)


# ---- The filter of the other direction ----


def _transposed(emit: Emitter, w: Tensor, groups: int) -> Tensor:
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
    parts = np.reshape(value, (groups, filters // groups, channels, prod(size)))
    found: list[float] = parts[..., ::-1].swapaxes(1, 2).ravel().tolist()
    return found


def _turned(emit: Emitter, w: Tensor) -> Tensor:
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
) -> Tensor:
    """The filters of a group and its channels change places.

    Args:
        w: the filter, in whatever shape.
        groups: the groups.
        shape, exchanged: its shapes before and after.
    """
    filters, channels, *size = shape
    if channels == 1 or filters == groups:
        same: Tensor = reshaped(emit, w, exchanged, hint="kernels")
        return same
    if groups == 1:
        axes = [1, 0, *range(2, len(shape))]
        kernels = reshaped(emit, w, shape, hint="kernels")
        return emit("transpose", kernels, axes=axes, hint="exchanged")
    # The spatial axes go as one: not all runtimes transpose more than five.
    parts = (groups, filters // groups, channels, prod(size))
    kernels = reshaped(emit, w, parts, hint="kernels")
    moved = emit("transpose", kernels, axes=[0, 2, 1, 3], hint="exchanged")
    turned: Tensor = reshaped(emit, moved, exchanged, hint="filter")
    return turned
