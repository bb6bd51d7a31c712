"""Box filters, pooling and sampling: windows that slide along every axis, batch and
channels included.

`box` and `debox` are adjoints, so are `sample` and `desample`. The derivative of a
maximum is taken where `argmax_pool` finds it.
"""

from __future__ import annotations

from functools import partial, reduce
from math import prod
from typing import Any

from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.ops.registry import Emit, require, shape, vjp
from nnef_grad.ops.traits import POOLING
from nnef_grad.ops.windows import (
    Padding,
    Windows,
    basic_outside,
    check_border,
    check_reach,
    counts_inside,
    downscaling,
    reverse_outside,
    upscaling,
)

BORDERS = ("ignore", "constant", "replicate", "reflect", "reflect-even")


# ---- Shapes ----


@shape(*POOLING)
def pool_shape(
    input: Shape,
    size: Shape,
    border: str,
    padding: Padding,
    stride: Shape,
    dilation: Shape,
    normalize: bool = False,
) -> Shape:
    """[X...] gives [x...]."""
    check_border(border, BORDERS)
    windows = downscaling(input, size, padding, stride, dilation)
    check_reach(border, windows.up, basic_outside(windows))
    return windows.down


@shape("max_pool_with_index")
def max_pool_with_index_shape(input: Shape, **attributes: Any) -> list[Shape]:
    """[X...] gives [x...], twice."""
    return [pool_shape(input, **attributes)] * 2


@shape("debox")
def debox_shape(
    input: Shape,
    size: Shape,
    border: str,
    padding: Padding,
    stride: Shape,
    dilation: Shape,
    output_shape: Shape,
    normalize: bool,
) -> Shape:
    """[x...] gives [X...]."""
    check_border(border, BORDERS)
    windows = upscaling(input, size, padding, stride, dilation, output_shape)
    check_reach(border, windows.down, reverse_outside(windows))
    return windows.up


@shape("sample")
def sample_shape(input: Shape, index: Shape, **attributes: Any) -> Shape:
    """[X...] and [x...] give [x...]."""
    # 'ignore' is not in the specification's list, but the standard's own body of
    # max_pool hands it on to `sample`.
    output = pool_shape(input, **attributes)
    require(
        index == output,
        f"the index must have the shape {list(output)} of the output, but has {list(index)}",
    )
    return output


@shape("desample")
def desample_shape(
    input: Shape,
    index: Shape,
    size: Shape,
    border: str,
    padding: Padding,
    stride: Shape,
    dilation: Shape,
    output_shape: Shape,
) -> Shape:
    """[x...] and [x...] give [X...]."""
    check_border(border, ("constant",))
    require(
        index == input,
        f"the index must have the shape {list(input)} of the input, but has {list(index)}",
    )
    return upscaling(input, size, padding, stride, dilation, output_shape).up


# ---- Sums and means ----


@vjp("box")
def box_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor]:
    """dinput = debox(dy)"""
    return [_box_adjoint(emit, op, dy, op.attributes["normalize"])]


@vjp("avg_pool")
def avg_pool_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor]:
    """dinput = debox(dy / volume)"""
    return [_box_adjoint(emit, op, dy, True)]


def _box_adjoint(emit: Emit, op: Operation, dy: Tensor, normalize: bool) -> Tensor:
    windows = basic_windows(op)
    if normalize:
        volume = divisor(emit, windows, op.attributes["border"])
        dy = emit("div", dy, volume, hint="share")
    return emit("debox", dy, **_reverse(windows))


def divisor(emit: Emit, windows: Windows, border: str) -> Tensor | float:
    """The divisor of a normalized box: the volume of a window or, with border 'ignore',
    of the part of it inside the input.

    That volume is a product over the axes, so it is written as a small constant for
    each axis along which it varies.
    """
    counts = (
        counts_inside(windows)
        if border == "ignore"
        else tuple((extent,) for extent in windows.size)
    )
    varying = [axis for axis, along in enumerate(counts) if len(set(along)) > 1]
    # A window without an element inside has nothing to hand on: any divisor does, but
    # zero.
    uniform = prod(
        max(along[0], 1) for axis, along in enumerate(counts) if axis not in varying
    )
    if not varying:
        return float(uniform)
    factors = [
        _along(emit, axis, counts, uniform if axis == varying[0] else 1)
        for axis in varying
    ]
    return reduce(partial(emit, "mul", hint="valid"), factors)


def _along(emit: Emit, axis: int, counts: tuple[Shape, ...], factor: int) -> Tensor:
    shape = [len(counts[axis]) if i == axis else 1 for i in range(len(counts))]
    value = [float(max(count, 1) * factor) for count in counts[axis]]
    return emit("constant", shape=shape, value=value, hint=f"valid_{axis}")


@vjp("debox")
def debox_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor]:
    """dinput = box(dy), divided by the volume if the operation is"""
    windows = reverse_windows(op)
    total = emit("box", dy, **_basic(windows), hint="total")
    volume = float(prod(windows.size))
    return [emit("div", total, volume) if op.attributes["normalize"] else total]


# ---- Maxima ----


@vjp("max_pool")
def max_pool_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor]:
    """dinput = desample(dy, argmax_pool(input)); a maximum in the border drops out of
    it
    """
    windows = basic_windows(op)
    (x,), border = op.inputs, op.attributes["border"]
    index = emit("argmax_pool", x, border=border, **_basic(windows), hint="index")
    return [emit("desample", dy, index, **_reverse(windows))]


@vjp("max_pool_with_index")
def max_pool_with_index_vjp(
    emit: Emit, op: Operation, dy: Tensor, dindex: None
) -> list[Tensor]:
    """dinput = desample(dy, index)"""
    _, index = op.results
    return [emit("desample", dy, index, **_reverse(basic_windows(op)))]


@vjp("sample")
def sample_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor | None]:
    """dinput = desample(dy, index)"""
    return [emit("desample", dy, op.operands[1], **_reverse(basic_windows(op))), None]


@vjp("desample")
def desample_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor | None]:
    """dinput = sample(dy, index)"""
    return [emit("sample", dy, op.operands[1], **_basic(reverse_windows(op))), None]


# ---- The windows of an operation, and the attributes of its adjoint ----


def basic_windows(op: Operation) -> Windows:
    """The windows of a basic operation over its input."""
    return _windows(op, op.inputs[0].shape)


def reverse_windows(op: Operation) -> Windows:
    """The windows of a reverse operation over its output."""
    return _windows(op, op.outputs[0].shape)


def _windows(op: Operation, up: Shape) -> Windows:
    size, padding = op.attributes["size"], op.attributes["padding"]
    stride, dilation = op.attributes["stride"], op.attributes["dilation"]
    return downscaling(up, size, padding, stride, dilation)


def _basic(windows: Windows) -> dict[str, Any]:
    return {"size": windows.size, **windows.attributes}


def _reverse(windows: Windows) -> dict[str, Any]:
    return {
        **_basic(windows),
        "output_shape": () if windows.has_natural_extents else windows.up,
    }
