"""Pooling and box filters: pools of spatial windows with padding inside their reach, as
all runtimes have them, and sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from math import prod
from typing import Any

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.ops import DECOMPOSITIONS
from nnef_grad.ops.pool import basic_windows, divisor, reverse_windows
from nnef_grad.ops.shape import with_extent
from nnef_grad.ops.windows import REPEATING, Windows, basic_outside, counts_inside
from nnef_grad.targets.registry import lowering
from nnef_grad.targets.windows import (
    LOWEST,
    MOST_AXES,
    Layout,
    along,
    are_dilated,
    basic_attributes,
    check_inside,
    cropped,
    have_empty,
    in_parts,
    joined,
    lie_apart,
    lie_side_by_side,
    moving_axes,
    one_by_one,
    repeated,
    stuffed,
    surrounded,
)

# ---- Pools ----


@lowering("max_pool")
def max_pool_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """Over what lies around the data too, unless that is ignored."""
    (x,), windows, border = op.inputs, basic_windows(op), op.attributes["border"]
    check_inside(windows, border)
    if not _is_spatial(windows):
        return [_moved_after(emit, op, windows)]
    least = _least(emit, windows) if border == "constant" else None
    if border in REPEATING or _is_wide(windows) or have_empty(windows):
        x, windows = surrounded(emit, x, windows, border, LOWEST)
    x, windows = _read(emit, x, windows)
    largest = emit("max_pool", x, border="ignore", **basic_attributes(windows))
    return [largest if least is None else emit("max", largest, least)]


def _least(emit: Emitter, windows: Windows) -> Any:
    """What no maximum is less than, to be broadcast: 0 where a window reaches beyond the
    data; None where none does.

    Zeros around the data would say the same. But optimisers of ONNX put them into the
    pool after them, which ignores its border.
    """
    columns = zip(counts_inside(windows), windows.size, strict=True)
    found = [[0.0 if n < f else LOWEST for n in counts] for counts, f in columns]
    if any(set(along) == {0.0} for along in found):
        return 0.0
    edges = [
        _edge(emit, along, with_extent((1,) * len(found), axis, len(along)))
        for axis, along in enumerate(found)
        if 0.0 in along
    ]
    return reduce(partial(emit, "max", hint="least"), edges) if edges else None


def _edge(emit: Emitter, value: Sequence[float], shape: Shape) -> Any:
    return emit("constant", shape=shape, value=value, hint="edge")


@lowering("avg_pool")
def avg_pool_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """Dilated windows are summed first, and those over as many zeros as they have
    elements.
    """
    (x,), windows, border = op.inputs, basic_windows(op), op.attributes["border"]
    check_inside(windows, border)
    if not _is_spatial(windows):
        return [_moved_after(emit, op, windows)]
    if are_dilated(windows) or (border == "constant" and _is_wide(windows)):
        total = emit("box", x, border=border, **basic_attributes(windows), hint="total")
        return [emit("div", total, divisor(emit, windows, border))]
    if border in REPEATING:
        x, windows = surrounded(emit, x, windows, border)
    x, windows = _read(emit, x, windows)
    kept = "ignore" if border == "ignore" else "constant"
    return [emit("avg_pool", x, border=kept, **basic_attributes(windows))]


@lowering("box")
def box_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """A mean times a volume; windows that are dilated, or lie over as many zeros as they
    have elements, are those of a convolution.
    """
    (x,), windows = op.inputs, basic_windows(op)
    border, normalize = op.attributes["border"], op.attributes["normalize"]
    if not _is_spatial(windows):
        return [_moved_after(emit, op, windows)]
    if not normalize and (are_dilated(windows) or _is_wide(windows)):
        return [_convolved(emit, x, windows, border)]
    # Nothing is added where nothing is, nor where zeros are.
    kept = "constant" if border == "ignore" and not normalize else border
    mean = emit("avg_pool", x, border=kept, **basic_attributes(windows), hint="mean")
    return [mean if normalize else emit("mul", mean, float(prod(windows.size)))]


def _convolved(emit: Emitter, x: Tensor, windows: Windows, border: str) -> Any:
    """The sums over windows, by a convolution with ones."""
    axes = moving_axes(windows)
    layout, windows = Layout(x.shape, axes), along(windows, axes)
    planes = layout.apart(emit, x, (1, *windows.up))
    if border in REPEATING:
        planes, windows = surrounded(emit, planes, windows, border)
    sums = emit("conv", planes, _ones(emit, windows), **windows.attributes, hint="sums")
    return layout.together(emit, sums, windows.down)


def _ones(emit: Emitter, windows: Windows) -> Any:
    """The filter of a sum."""
    return emit("constant", shape=[1, 1, *windows.size], value=[1.0], hint="ones")


# ---- Boxes in reverse ----


@lowering("debox")
def debox_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """With everything said, if it is not. Then windows that lie side by side repeat
    elements, and others are those of a deconvolution.
    """
    (x,), windows = op.inputs, reverse_windows(op)
    if DECOMPOSITIONS["debox"].applies(op):
        return DECOMPOSITIONS["debox"].build(emit, op)
    if not _is_plain(op):
        return [_plain(emit, op, windows)]
    if lie_side_by_side(windows):
        return [repeated(emit, x, dict(enumerate(windows.size)))]
    if lie_apart(windows):
        return [stuffed(emit, x, dict(enumerate(windows.stride)))]
    return [_deconvolved(emit, x, windows)]


def _is_plain(op: Operation) -> bool:
    """Whether everything is said, and nothing is divided."""
    attributes = op.attributes
    has_padding = len(attributes["padding"]) > 0
    return (
        attributes["border"] == "constant"
        and has_padding
        and not attributes["normalize"]
    )


def _plain(emit: Emitter, op: Operation, windows: Windows) -> Any:
    (x,) = op.inputs
    volume = prod(windows.size) if op.attributes["normalize"] else 1
    share = emit("div", x, float(volume), hint="share")
    output_shape = () if windows.has_natural_extents else windows.up
    return emit("debox", share, **basic_attributes(windows), output_shape=output_shape)


def _deconvolved(emit: Emitter, x: Tensor, windows: Windows) -> Any:
    """Sums where windows meet, by a deconvolution with ones."""
    axes = moving_axes(windows)
    if len(axes) > MOST_AXES:
        for part in reversed(in_parts(windows)):
            x = emit(
                "debox", x, **basic_attributes(part), output_shape=part.up, hint="part"
            )
        return x
    layout, windows = Layout(x.shape, axes), along(windows, axes)
    planes = layout.apart(emit, x, (1, *windows.down))
    shape = () if windows.has_natural_extents else (planes.shape[0], 1, *windows.up)
    attributes = {**windows.attributes, "output_shape": shape}
    sums = emit("deconv", planes, _ones(emit, windows), **attributes, hint="sums")
    return layout.together(emit, sums, windows.up)


# ---- Windows that all runtimes have ----


def _is_spatial(windows: Windows) -> bool:
    """Whether windows lie in space: in one item of the batch and in one channel."""
    is_still = not {0, 1} & set(moving_axes(windows))
    return is_still and 3 <= len(windows.up) <= 5


def _is_wide(windows: Windows) -> bool:
    """Whether there is as much padding as a window has elements."""
    outside = basic_outside(windows)
    return any(max(sides) >= f for sides, f in zip(outside, windows.size, strict=True))


def _read(emit: Emitter, x: Tensor, windows: Windows) -> tuple[Any, Windows]:
    """The part of the input that windows may lie over, and no more padding than is read."""
    x, windows = cropped(emit, x, windows)
    return x, replace(windows, padding=basic_outside(windows))


def _moved_after(emit: Emitter, op: Operation, windows: Windows) -> Any:
    """The operation with the axes after that its windows slide along."""
    (x,), axes = op.inputs, moving_axes(windows)
    if not axes:
        return x
    if len(axes) > MOST_AXES:
        return _in_parts(emit, op, windows)
    layout, windows = Layout(x.shape, axes), along(windows, axes)
    planes = layout.apart(emit, x, (1, *windows.up))
    spatial = basic_attributes(joined(one_by_one(planes.shape[:2]), windows))
    pooled = emit(op.name, planes, **{**op.attributes, **spatial}, hint="pooled")
    return layout.together(emit, pooled, windows.down)


def _in_parts(emit: Emitter, op: Operation, windows: Windows) -> Any:
    """The operation along some axes, and then along the others."""
    (x,) = op.inputs
    for part in in_parts(windows):
        attributes = {**op.attributes, **basic_attributes(part)}
        x = emit(op.name, x, **attributes, hint="part")
    return x
