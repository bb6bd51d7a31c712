"""Convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import torch
from torch import nn

from nnef_grad.frontends.expansions import windows
from nnef_grad.frontends.expansions.resizing import apply_along
from nnef_grad.frontends.expansions.windows import Axis
from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.values import shape_of
from nnef_grad.graph.extents import Dimension

Pair = tuple[int, int]


def for_each_axis(values: Any, rank: int) -> list[Any]:
    """A setting for each spatial axis: one number is for all of them."""
    listed = list(values) if isinstance(values, (list, tuple)) else [values]
    return listed * rank if len(listed) == 1 else listed


def batched(call: Call, x: Any, rank: int) -> tuple[Any, bool]:
    """The operand with a batch, and whether one was added."""
    is_single = len(shape_of(x)) == rank + 1
    return (call("unsqueeze", x, axes=[0], hint="batch") if is_single else x), is_single


def unbatched(call: Call, y: Any, is_single: bool) -> Any:
    """The result without the batch that was added."""
    return call("squeeze", y, axes=[0]) if is_single else y


# ---- Convolutions ----


@aten(*(f"conv{kind}{n}d" for n in "123" for kind in ("", "_transpose")),
      "convolution", "_convolution")  # fmt: skip
def conv(call: Call, x: Any, weight: Any, bias: Any, *_: Any) -> Any:
    """A convolution, or its transposition, whose result may have more at the end."""
    args, size = call.args, shape_of(weight)[2:]
    x, is_single = batched(call, x, len(size))
    dilation = for_each_axis(args["dilation"], len(size))
    pads = _pads(args["padding"], size, dilation)
    axes, convolve = (
        _axes(shape_of(x), size, args["stride"], pads, dilation),
        windows.conv,
    )
    if args.get("transposed", "transpose" in call.packet):
        more = for_each_axis(args["output_padding"], len(size))
        axes = [axis.longer(n) for axis, n in zip(axes, more, strict=True)]
        convolve = windows.deconv
    y = convolve(call, x, weight, _row(call, bias), axes, args["groups"])
    return unbatched(call, y, is_single)


def _pads(
    padding: Any, size: Sequence[Dimension], dilation: Sequence[int]
) -> list[Pair]:
    """The same before and after each axis; as much as keeps an extent, of which an odd
    element goes to the end; or none.
    """
    if padding == "same":
        totals = [d * (n - 1) for n, d in zip(size, dilation, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [
        (n, n) for n in for_each_axis(0 if padding == "valid" else padding, len(size))
    ]


def _axes(
    shape: Sequence[Any],
    size: Sequence[Dimension],
    stride: Any,
    pads: Sequence[Pair],
    dilation: Any,
) -> list[Axis]:
    """Windows along the last axes."""
    rank = len(size)
    columns = (
        shape[-rank:],
        size,
        for_each_axis(stride, rank),
        for_each_axis(dilation, rank),
    )
    pairs = zip(zip(*columns, strict=True), pads, strict=True)
    return [Axis._make((*column, *pair)) for column, pair in pairs]


def _row(call: Call, bias: Any) -> Any:
    return 0.0 if bias is None else call("unsqueeze", bias, axes=[0], hint="bias")


@aten("conv_tbc")
def conv_of_steps(call: Call, x: Any, weight: Any, bias: Any, pad: int = 0) -> Any:
    """A convolution of [length, batch, channels]; the filter is [size, in, out]."""
    x = call("transpose", x, axes=[1, 2, 0], hint="channels")
    weight = call("transpose", weight, axes=[2, 1, 0], hint="filter")
    y = call("conv", x, weight, _row(call, bias), padding=[(pad, pad)], hint="sums")
    return call("transpose", y, axes=[2, 0, 1])


# ---- Blocks of images ----


@aten("im2col")
def _blocks(call: Call, x: Any, block: Any, *settings: Any) -> Any:
    x, is_single = batched(call, x, 2)
    y = windows.block_elements(call, x, _blocked(shape_of(x), block, settings))
    return unbatched(call, y, is_single)


@aten("col2im")
def _sum_of_blocks(call: Call, x: Any, image: Any, block: Any, *settings: Any) -> Any:
    x, is_single = batched(call, x, 1)
    y = windows.sum_of_blocks(
        call, x, _blocked(for_each_axis(image, 2), block, settings)
    )
    return unbatched(call, y, is_single)


def _blocked(shape: Sequence[Any], block: Any, settings: Sequence[Any]) -> list[Axis]:
    """Blocks along the axes of an image, from dilation, padding and stride."""
    (dilation, padding, stride), size = settings, for_each_axis(block, 2)
    return _axes(shape, size, stride, _pads(padding, size, dilation), dilation)


# ---- Pools ----


_MAXIMA = tuple(
    f"max_pool{n}d{which}" for n in "123" for which in ("", "_with_indices")
)


@aten(*_MAXIMA)
def max_pool(call: Call, x: Any, *_: Any) -> Any:
    """The maxima of windows, over what is there."""
    axes = _pooled(call, x)
    axes = [axis.rounded_up() for axis in axes] if call.args["ceil_mode"] else axes
    if "indices" in call.name:
        return _with_indices(call, x, axes)
    return windows.pool(call, "max_pool", x, axes, border="ignore")


def _with_indices(call: Call, x: Any, axes: list[Axis]) -> list[Any]:
    """The maxima of windows, and their places in planes, if these are asked for."""
    if not any(part.args[1] == 1 and part.users for part in call.node.users):
        return call.alone(windows.pool(call, "max_pool", x, axes, border="ignore"))
    name = "max_pool_with_index"
    y, index = windows.pool(call, name, x, axes, border="ignore")
    places = _places(call, index, axes)
    call.reading.pools[places] = index, axes
    return [y, places]


def _places(call: Call, index: Any, axes: list[Axis]) -> Any:
    """The numbers of elements in their planes, of which the indices in windows are known."""
    call.require_exact(prod(axis.given for axis in axes) - 1)
    rank, (rest,) = len(shape_of(index)), call.scalars(index)
    place: Any = 0.0
    for n, axis in enumerate(axes, rank - len(axes)):
        inner = float(prod(a.size for a in axes[n + len(axes) - rank + 1 :]))
        step = call("floor", call("div", rest, inner), hint="step")
        rest = call("sub", rest, call("mul", step, inner), hint="rest")
        window = call("mul", call.positions(shape_of(index)[n], n, rank), axis.stride)
        begin = call("sub", window, axis.before, hint="begin")
        along = call("add", call("mul", step, axis.dilation), begin, hint="along")
        place = call("add", call("mul", place, axis.given), along, hint="place")
    return call.whole(place, "integer")


@aten("max_unpool2d", "max_unpool3d")
def max_unpool(call: Call, x: Any, indices: Any, *_: Any) -> Any:
    """Elements at the places of maxima, and zeros elsewhere."""
    # An axis is added to planes of one.
    outer = call.reading.emitter.made_by(indices, "unsqueeze")
    places = outer.inputs[0] if outer is not None else indices
    is_pooled = places in call.reading.pools
    call.require(is_pooled, "the indices must be those of a max_pool of the module")
    index, axes = call.reading.pools[places]
    is_once = all(axis.reach(1) <= axis.stride for axis in axes)
    call.require(is_once, "windows overlap: elements are written twice, in no order")
    y = windows.unpool(call, call.reshaped(x, shape_of(index)), index, axes)
    own = [n for n in shape_of(y) if n != 1]
    is_like = own == [n for n in call.result_shape if n != 1]
    call.require(is_like, "output_size must be the size of what was pooled")
    return call.reshaped(y, call.result_shape)


def _pooled(call: Call, x: Any) -> list[Axis]:
    """The windows of a pool, which follow each other unless there is a stride."""
    args, rank = call.args, _rank_of(call)
    sizes = for_each_axis(args["kernel_size"], rank)
    dilation = for_each_axis(args.get("dilation", 1), rank)
    pads = _pads(args["padding"], sizes, dilation)
    return _axes(shape_of(x), sizes, args["stride"] or sizes, pads, dilation)


def _rank_of(call: Call) -> int:
    """The number of spatial axes, which the name of a pool says."""
    return next(n for n in (1, 2, 3) if f"{n}d" in call.name)


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(call: Call, x: Any, *_: Any) -> Any:
    """The means of windows. Padding may count as zeros, and what a window that is rounded
    up has beyond never counts.
    """
    args, axes = call.args, _pooled(call, x)
    divisor = args.get("divisor_override")
    if divisor is not None:
        axes = [axis.rounded_up() for axis in axes] if args["ceil_mode"] else axes
        sums = windows.pool(call, "box", x, axes, border="constant", hint="sums")
        return call("div", sums, float(divisor))
    counts, rounds_up = args["count_include_pad"], args["ceil_mode"]
    return windows.averages(call, x, axes, counts=counts, rounds_up=rounds_up)


# ---- Pools of a given number of windows ----


@aten(*(f"{space}adaptive_avg_pool{n}d" for n in "123" for space in ("", "_")))
def adaptive_avg_pool(call: Call, x: Any, _counts: Any) -> Any:
    """The means of so many windows: over all there is, by a pool if all are alike, or by a
    product with a matrix along each axis.
    """
    rank = _rank_of(call)
    pairs = [*zip(shape_of(x)[-rank:], call.result_shape[-rank:], strict=True)]
    if all(count == 1 for _, count in pairs):
        first = len(shape_of(x)) - rank
        return call("mean_reduce", x, axes=list(range(first, first + rank)))
    if all(extent % count == 0 for extent, count in pairs):
        sizes = [extent // count for extent, count in pairs]
        return _side_by_side(call, "avg_pool", x, sizes)
    for place, (extent, count) in enumerate(pairs):
        if extent != count:
            units = torch.eye(extent, dtype=torch.float64)[None]
            means = nn.functional.adaptive_avg_pool1d(units, count)[0].T.numpy()
            x = apply_along(call, x, means, len(shape_of(x)) - rank + place)
    return x


def _next_to_each_other(x: Any, sizes: Sequence[int]) -> list[Axis]:
    """Windows that follow each other."""
    return _axes(shape_of(x), sizes, sizes, [(0, 0)] * len(sizes), 1)


def _side_by_side(call: Call, name: str, x: Any, sizes: Sequence[int]) -> Any:
    """A pool whose windows follow each other."""
    axes = _next_to_each_other(x, sizes)
    return windows.pool(call, name, x, axes, border="ignore")


def _windows(extent: Dimension, count: Dimension) -> list[tuple[int, int]]:
    """Where the windows along an axis begin and end."""
    starts = range(0, extent * count, extent)
    return [(n // count, -(-(n + extent) // count)) for n in starts]


@aten(*(f"adaptive_max_pool{n}d" for n in "123"))
def adaptive_max_pool(call: Call, x: Any, _counts: Any) -> Any:
    """The maxima of so many windows: by a pool if all are alike, or each by itself."""
    rank = _rank_of(call)
    pairs = [*zip(shape_of(x)[-rank:], call.result_shapes[0][-rank:], strict=True)]
    if all(extent % count == 0 for extent, count in pairs):
        sizes = [extent // count for extent, count in pairs]
        return _with_indices(call, x, _next_to_each_other(x, sizes))
    first = len(shape_of(x)) - rank
    axes = list(range(first, first + rank))
    maxima = []
    for window in product(*(_windows(*pair) for pair in pairs)):
        begin, end = map(list, zip(*window, strict=True))
        part = call("slice", x, hint="window", axes=axes, begin=begin, end=end)
        sizes = [b - a for a, b in zip(begin, end, strict=True)]
        maxima.append(_side_by_side(call, "max_pool", part, sizes))
    last = len(shape_of(x)) - 1
    row = call("concat", maxima, hint="maxima", axis=last)
    return call.alone(call.reshaped(row, call.result_shapes[0]))
