"""Box filters, pooling and sampling: windows that slide along every axis, batch and
channels included.

`box` and `debox` are adjoints, so are `sample` and `desample`. The derivative of a
maximum is taken where `argmax_pool` finds it.
"""

from __future__ import annotations

from functools import partial, reduce
from math import prod
from typing import Any

from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.graph.learning import all_equal, reaches
from nnef_grad.ops.batching import batching_rule, over_windows
from nnef_grad.ops.costs import cost_rule, each_element
from nnef_grad.ops.examples import beside_windows, place_rule
from nnef_grad.ops.linear import in_first, linearity_rule
from nnef_grad.ops.ranges import INF, Range, range_rule
from nnef_grad.ops.registry import Emit, require, shape, vjp
from nnef_grad.ops.shape import line
from nnef_grad.ops.traits import POOLING
from nnef_grad.ops.windows import (
    BORDERS,
    Windows,
    check_choice,
    downscaling,
    is_reverse,
    of_columns,
    still,
    upscaling,
    windows_of,
)

# ---- Shapes ----


@shape(*POOLING)
def pool_shape(
    input: Shape, size: Shape, border: str, normalize: bool = True, **sliding: Any
) -> Shape:
    """[X...] gives [x...]."""
    check_choice("border", border, ("ignore", *BORDERS))
    windows = downscaling(input, size, border=border, **sliding)
    # A sum needs no elements.
    if border == "ignore" and normalize and has_symbols(input):
        _require_elements(windows)
    return windows.down


def _require_elements(windows: Windows) -> None:
    """Learns that no window steps over an open extent: it would have no element."""
    for axis in (a for a in windows.axes if has_symbols(a.up)):
        message = f"a dilation of {axis.dilation} steps over an extent of {axis.up}"
        is_padded = axis.dilation > 1 and axis.padding != (0, 0)
        require(not is_padded or reaches(axis.up, axis.least_without_gaps), message)


@shape("max_pool_with_index")
def max_pool_with_index_shape(input: Shape, **attributes: Any) -> list[Shape]:
    """[X...] gives [x...], twice."""
    return [pool_shape(input, **attributes)] * 2


@shape("debox")
def debox_shape(
    input: Shape,
    size: Shape,
    border: str,
    output_shape: Shape,
    normalize: bool = False,
    **sliding: Any,
) -> Shape:
    """[x...] gives [X...]."""
    check_choice("border", border, ("ignore", *BORDERS))
    sliding["output_shape"] = output_shape
    return upscaling(input, size, border=border, **sliding).up


@shape("sample")
def sample_shape(input: Shape, index: Shape, **attributes: Any) -> Shape:
    """[X...] and [x...] give [x...]."""
    # 'ignore' is not in the specification's list, but the standard's own body of
    # max_pool hands it on to `sample`.
    output = pool_shape(input, **attributes)
    message = f"the index must have the shape {list(output)} of the output, but has {list(index)}"
    require(all_equal(index, output), message)
    return output


@shape("desample")
def desample_shape(input: Shape, index: Shape, border: str, **attributes: Any) -> Shape:
    """[x...] and [x...] give [X...]."""
    check_choice("border", border, ("constant",))
    message = f"the index must have the shape {list(input)} of the input, but has {list(index)}"
    require(all_equal(index, input), message)
    return debox_shape(input, border=border, **attributes)


# ---- Sums and means ----


@vjp("box", "avg_pool")
def box_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor]:
    """dinput = debox(dy); of a mean, debox(dy / volume)"""
    windows = windows_of(op)
    if op.settings.get("normalize", True):
        volume = divisor(emit, windows, op.attributes["border"])
        dy = emit("div", dy, volume, hint="share")
    return [emit("debox", dy, **_adjoint(op))]


def divisor(emit: Emit, windows: Windows, border: str) -> Tensor | float:
    """The volume of a window or, with border 'ignore', of the part of it inside the input:
    a product over the axes, so a small constant for each axis along which it varies.
    """
    if border != "ignore":
        return float(prod(windows.size))
    if has_symbols(windows.up):
        return _counted(emit, windows)
    # A window without an element inside has nothing to hand on: any divisor does, but
    # zero.
    inside = [axis.counts_inside for axis in windows.axes]
    counts = [[max(count, 1) for count in along] for along in inside]
    varying = {axis: along for axis, along in enumerate(counts) if len({*along}) > 1}
    uniform = prod(along[0] for axis, along in enumerate(counts) if axis not in varying)
    if not varying:
        return float(uniform)
    first = min(varying)
    varying[first] = [count * uniform for count in varying[first]]
    factors = [
        line(emit, along, f"valid_{axis}", axis, rank=len(counts))
        for axis, along in varying.items()
    ]
    return reduce(partial(emit, "mul", hint="valid"), factors)


def _counted(emit: Emit, windows: Windows) -> Tensor | float:
    """The same where extents have symbols: the elements of windows over ones are added."""
    factors: list[Tensor | float] = []
    for axis, along in enumerate(windows.axes):
        if along.is_still:
            continue
        rank = len(windows.axes)
        line = of_columns(along if i == axis else still(1) for i in range(rank))
        ones = emit("constant", shape=line.up, value=(1.0,), hint=f"ones_{axis}")
        count = emit(
            "box", ones, size=line.size, **line.attributes, hint=f"inside_{axis}"
        )
        factors.append(emit("max", count, 1.0, hint=f"valid_{axis}"))
    # Windows of one element each have nothing to count.
    return reduce(partial(emit, "mul", hint="valid"), factors) if factors else 1.0


@vjp("debox")
def debox_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor]:
    """dinput = box(dy), divided by the volume if the operation is"""
    total = emit("box", dy, **_adjoint(op), hint="total")
    volume = float(prod(windows_of(op).size))
    return [emit("div", total, volume) if op.attributes["normalize"] else total]


# ---- Maxima ----


@vjp("max_pool")
def max_pool_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor]:
    """dinput = desample(dy, argmax_pool(input)); a maximum in the border drops out."""
    (x,), windows, border = op.inputs, windows_of(op), op.attributes["border"]
    if prod(windows.size) == 1:
        return [emit("debox", dy, **_adjoint(op))]
    size, sliding = windows.size, windows.attributes
    index = emit("argmax_pool", x, size=size, border=border, **sliding, hint="index")
    return [emit("desample", dy, index, **_adjoint(op))]


@vjp("max_pool_with_index")
def max_pool_with_index_vjp(
    emit: Emit, op: Operation, dy: Tensor, dindex: None
) -> list[Tensor]:
    """dinput = desample(dy, index)"""
    return [emit("desample", dy, op.outputs[1], **_adjoint(op))]


@vjp("sample")
def sample_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor | None]:
    """dinput = desample(dy, index)"""
    return [emit("desample", dy, op.operands[1], **_adjoint(op)), None]


@vjp("desample")
def desample_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor | None]:
    """dinput = sample(dy, index)"""
    return [emit("sample", dy, op.operands[1], **_adjoint(op)), None]


def _adjoint(op: Operation) -> dict[str, Any]:
    """The attributes of the operation that goes back through the same windows."""
    windows = windows_of(op)
    basic = {"size": windows.size, **windows.attributes}
    return (
        basic if is_reverse(op) else {**basic, "output_shape": windows.output_shape()}
    )


# ---- Batching, linearity, ranges, costs ----

# All operations with windows over all axes.
_SLIDING = (*POOLING, "debox", "sample", "desample", "max_pool_with_index")
batching_rule(*_SLIDING)(over_windows)
place_rule(*_SLIDING)(beside_windows)
linearity_rule("box", "avg_pool")(in_first)
# Elements that meet are added.
cost_rule("desample")(each_element)


@range_rule("box", "debox", "avg_pool", "max_pool")
def window_range(x: Range, **attributes: Any) -> Range:
    """Sums and means of elements, with zeros among them, and maxima."""
    return Range(0.0 if x.lower >= 0.0 else -INF, 0.0 if x.upper <= 0.0 else INF)


@cost_rule("box", "debox", "avg_pool", "rms_pool")
def window_cost(op: Operation) -> Any:
    """Each window, times all of its elements."""
    windows = windows_of(op)
    return prod(windows.down) * prod(windows.size)
