"""How windows lie, and steps of their lowerings: tensors with the axes last that windows
slide along, the elements of windows beside each other, and elements that move apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.extents import Dimension, may_exceed
from nnef_grad.graph.ir import Integers, Shape, Tensor
from nnef_grad.ops.shape import reshaped
from nnef_grad.ops.windows import REPEATING, Windows


def window_attributes(windows: Windows) -> dict[str, Any]:
    """The attributes of a pool; there are no gaps in a window of one element."""
    dilation = tuple(c.dilation if c.size > 1 else 1 for c in windows.axes)
    return {"size": windows.size, **replace(windows, dilation=dilation).attributes}


def moving_axes(windows: Windows) -> Integers:
    """The axes along which windows are more than the elements one by one."""
    return tuple(a for a, c in enumerate(windows.axes) if not c.is_still)


def skipping_axes(windows: Windows) -> Integers:
    """The axes along which windows take no elements but those from stride to stride."""
    return tuple(
        axis
        for axis, c in enumerate(windows.axes)
        if c.stride > 1 and c.padding == (0, 0)
        if c.size == 1 or c.dilation % c.stride == 0
    )


def are_dilated(windows: Windows) -> bool:
    """Whether there are gaps in the windows."""
    return any(c.dilation > 1 and may_exceed(c.size, 1) for c in windows.axes)


def are_side_by_side(windows: Windows) -> bool:
    """Whether each element of the up-scaled side is in one window."""
    return not are_dilated(windows) and all(
        c.padding[0] == 0
        and c.up == c.down * c.size
        and (c.size == c.stride or c.down == 1)
        for c in windows.axes
    )


def are_single(windows: Windows) -> bool:
    """Whether each window is one element, the first of as many as the stride says."""
    return all(
        c.padding[0] == 0 and c.up == c.down * c.stride and c.size == 1
        for c in windows.axes
    )


def without_needless_strides(windows: Windows) -> Windows:
    """The same windows, without a stride where there is one along an axis."""
    axes = windows.axes
    is_single = [c.down == 1 and c.stride > 1 for c in axes]
    pairs = [*zip(axes, is_single, strict=True)]
    stride = tuple(1 if single else c.stride for c, single in pairs)
    ends = [c.reach - c.up - c.padding[0] for c in axes]
    padding = tuple(
        (c.padding[0], end) if single else c.padding
        for (c, single), end in zip(pairs, ends, strict=True)
    )
    return replace(windows, stride=stride, padding=padding)


def form_blocks(windows: Windows) -> bool:
    """Whether windows lie side by side along two axes at most: each axis makes two of
    [others, x1, f1, x2, f2], and a rank of 7 is too much for most runtimes.
    """
    return len(moving_axes(windows)) <= 2 and are_side_by_side(windows)


def surrounded(
    emit: Emitter, x: Tensor, windows: Windows, border: str, value: float = 0.0
) -> tuple[Tensor, Windows]:
    """A tensor with the border that windows read, and the windows over that."""
    first, outside = x.rank - len(windows.up), windows.outside
    if windows.read_outside:
        around = (*((0, 0),) * first, *outside)
        x = emit("pad", x, padding=around, **filling_of(border, value), hint="padded")
    padding = ((0, 0),) * len(windows.up)
    return x, replace(windows, up=x.shape[first:], padding=padding)


def filling_of(border: str, value: float) -> dict[str, Any]:
    """Where a border repeats something, no value is given."""
    return {"border": border} if border in REPEATING else {"value": value}


# ---- Elements that move apart ----


def spread(
    emit: Emitter, x: Tensor, factors: Sequence[Dimension], *, zeros: bool = False
) -> Tensor:
    """The tensor with each element repeated along its axes or, with zeros, followed by
    them: by two for a factor of 3.

    Each element gets an axis of its own, which is filled. Two axes at once make rank 5,
    the most that all runtimes pad and tile; and what they pad are axes from the third on.
    """
    axes = [axis for axis, factor in enumerate(factors) if factor > 1]
    while axes:
        chosen = axes[-2:] if axes[-1] == x.rank - 1 else axes[-1:]
        axes = axes[: -len(chosen)]
        elements = reshaped(emit, x, _elements(x.shape, chosen), hint="elements")
        counts: list[Dimension] = [1] * elements.rank
        counts[2 : 2 + 2 * len(chosen) : 2] = [factors[axis] for axis in chosen]
        if zeros:
            padding = [(0, count - 1) for count in counts]
            filled = emit("pad", elements, padding=padding, hint="padded")
        else:
            filled = emit("tile", elements, repeats=counts, hint="repeated")
        extents = (n * factors[a] if a in chosen else n for a, n in enumerate(x.shape))
        x = reshaped(emit, filled, tuple(extents), hint="spread")
    return x


def _elements(shape: Shape, chosen: Sequence[int]) -> Shape:
    """The shape with an axis of extent 1 after each chosen one: third, or fifth."""
    first, after = chosen[0], prod(shape[chosen[0] + 1 :])
    before = (prod(shape[:first]), shape[first], 1)
    if len(chosen) == 2:
        return (*before, after, 1)
    return (*before, after) if after != 1 else before
