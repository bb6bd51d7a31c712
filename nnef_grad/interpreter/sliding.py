"""Sliding windows over arrays: the content of each, and sums where they overlap.

Windows slide along the last axes of an array; the axes before them are independent. The
arithmetic of positions is in `nnef_grad.ops.windows`: in its terms the larger side is
up, and the side with an element for each window is down.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nnef_grad.interpreter.borders import UNIFORM, extended
from nnef_grad.interpreter.registry import Array
from nnef_grad.ops.windows import Windows, reverse_outside


def contents(x: Array, windows: Windows, border: str, outside: float = 0.0) -> Array:
    """The contents of the windows: [..., X...] gives a view of [..., x..., f...].

    Args:
        x: the up-scaled side.
        windows: an item for each of the last axes.
        border: the border that extends x as far as the windows reach.
        outside: the value of a uniform border.
    """
    ranges = [(axis.begin, axis.end) for axis in windows.axes]
    return _view(extended(x, ranges, border, outside), windows)


def overlapped(parts: Iterable[Array], windows: Windows) -> Array:
    """The sum of the windows over the up-scaled side: [..., X...].

    Args:
        parts: for each element of a window, in row-major order, its value in all
            windows: [..., x...].
        windows: an item for each of the last axes. Elements outside the up-scaled side
            are left out.
    """
    canvas: Any = None
    for offset, part in zip(np.ndindex(*windows.size), parts, strict=True):
        if canvas is None:
            canvas = _canvas(part, windows)
            places = _view(canvas, windows)
        places[(..., *offset)] += part
    ranges = [(-axis.begin, axis.up - axis.begin) for axis in windows.axes]
    return extended(canvas, ranges, "constant")


def _canvas(part: Array, windows: Windows) -> Array:
    """Zeros, from the beginning of the first windows to the end of the last ones."""
    independent = part.shape[: part.ndim - len(windows.size)]
    extents = (axis.end - axis.begin for axis in windows.axes)
    return np.zeros((*independent, *extents), part.dtype)


def _view(x: Array, windows: Windows) -> Array:
    """A view of the contents of windows from the beginning of x to its end."""
    axes = tuple(range(x.ndim - len(windows.size), x.ndim))
    reach = [axis.reach for axis in windows.axes]
    steps = (slice(None, None, step) for step in windows.stride + windows.dilation)
    places: Any = (..., *steps)
    view = sliding_window_view(x, reach, axis=axes, writeable=True)
    return np.asarray(view[places])


def with_border(x: Array, windows: Windows, border: str) -> tuple[Array, Windows]:
    """The down-scaled side of a reverse operation, extended by those elements of its
    border whose windows overlap the up-scaled side; and the windows of all of them.
    """
    if border in UNIFORM:
        return x, windows
    outside = reverse_outside(windows)
    columns = zip(outside, windows.down, strict=True)
    ranges = [(-before, extent + after) for (before, after), extent in columns]
    steps = zip(outside, windows.padding, windows.stride, strict=True)
    padding = tuple((p + before * s, q) for (before, _), (p, q), s in steps)
    down = tuple(end - begin for begin, end in ranges)
    return extended(x, ranges, border), replace(windows, down=down, padding=padding)
