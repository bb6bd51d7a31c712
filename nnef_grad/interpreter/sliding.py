"""Sliding windows over arrays: the content of each, and sums where they overlap.

Windows slide along the last axes of an array; the axes before them are independent. The
arithmetic of positions is in `nnef_grad.ops.windows`: in its terms the larger side is
up, and the side with an element for each window is down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nnef_grad.interpreter.borders import UNIFORM, extended
from nnef_grad.interpreter.registry import Array
from nnef_grad.ops.windows import AxisWindows, Windows


def contents(x: Array, windows: Windows, border: str, outside: float = 0.0) -> Array:
    """The contents of the windows: [..., X...] gives a view of [..., x..., f...].

    Args:
        x: the up-scaled side.
        windows: an item for each of the last axes.
        border: the border that extends x as far as the windows reach.
        outside: the value of a uniform border.
    """
    axes = _last_axes(x, windows)
    for axis, along in zip(axes, windows.axes, strict=True):
        x = extended(x, axis, along.begin, along.end, border, outside)
    reach = [along.reach for along in windows.axes]
    steps: Any = (..., *_every(windows.stride), *_every(windows.dilation))
    return np.asarray(sliding_window_view(x, reach, axis=axes)[steps])


def summed(x: Array, windows: Windows, border: str) -> Array:
    """The sum over each window: [..., X...] gives [..., x...]."""
    inside = tuple(range(-len(windows.size), 0))
    total: Array = contents(x, windows, border).sum(axis=inside)
    return total


def overlapped(parts: Iterable[Array], windows: Windows) -> Array:
    """The sum of the windows over the up-scaled side: [..., X...].

    Args:
        parts: for each element of a window, in row-major order, its value in all
            windows: [..., x...].
        windows: an item for each of the last axes. Elements outside the up-scaled side
            are left out.
    """
    remaining = iter(parts)
    first = next(remaining)
    total = _canvas(first, windows)
    for offset, part in zip(
        np.ndindex(*windows.size), chain([first], remaining), strict=True
    ):
        total[_places(offset, windows)] += part
    for axis, along in zip(_last_axes(total, windows), windows.axes, strict=True):
        begin, end = -along.begin, along.up - along.begin
        total = extended(total, axis, begin, end, "constant")
    return total


def _canvas(part: Array, windows: Windows) -> Array:
    """Zeros, from the beginning of the first windows to the end of the last ones."""
    extents = (along.end - along.begin for along in windows.axes)
    independent = part.shape[: part.ndim - len(windows.size)]
    return np.zeros((*independent, *extents), part.dtype)


def _places(offset: Sequence[int], windows: Windows) -> tuple[Any, ...]:
    """The positions of an element of each window on the canvas."""
    columns = zip(offset, windows.down, windows.stride, windows.dilation, strict=True)
    slices = (slice(o * d, o * d + (x - 1) * s + 1, s) for o, x, s, d in columns)
    return (..., *slices)


def _every(steps: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(None, None, step) for step in steps)


def _last_axes(x: Array, windows: Windows) -> tuple[int, ...]:
    return tuple(range(x.ndim - len(windows.size), x.ndim))


# ---- The border of a reverse operation ----


def with_border(x: Array, windows: Windows, border: str) -> tuple[Array, Windows]:
    """The down-scaled side of a reverse operation, extended by those elements of its
    border whose windows overlap the up-scaled side; and the windows of all of them.
    """
    if border in UNIFORM:
        return x, windows
    ranges = list(map(_read, windows.axes))
    for axis, (begin, end) in zip(_last_axes(x, windows), ranges, strict=True):
        x = extended(x, axis, begin, end, border)
    down = tuple(end - begin for begin, end in ranges)
    columns = zip(ranges, windows.padding, windows.stride, strict=True)
    padding = tuple((p - begin * s, q) for (begin, _), (p, q), s in columns)
    return x, replace(windows, down=down, padding=padding)


def _read(along: AxisWindows) -> tuple[int, int]:
    """The range of elements along an axis whose windows overlap the up-scaled side;
    that of the input if there are none.
    """
    place = np.arange(along.up)[:, np.newaxis] - along.begin
    start = place - np.arange(along.size) * along.dilation
    element, rest = np.divmod(start, along.stride)
    read = element[rest == 0]
    found = (int(read.min()), int(read.max()) + 1) if read.size else None
    return found or (0, along.down)
