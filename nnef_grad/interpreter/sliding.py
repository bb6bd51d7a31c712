"""Sliding windows over arrays: the content of each, and sums where they overlap; and
borders, which extend a tensor indefinitely.

Windows slide along the last axes of an array; the axes before them are independent. The
arithmetic of positions is in `nnef_grad.ops.windows`: in its terms the larger side is
up, and the side with an element for each window is down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nnef_grad.base.arrays import Array
from nnef_grad.graph.extents import as_number
from nnef_grad.ops.windows import Windows

# Borders of one value everywhere; for 'ignore' each operation chooses a neutral value.
UNIFORM = ("constant", "ignore")
# The names of the others in numpy. Shapes are checked, so that there is one reflection.
_MODES: dict[str, Literal["edge", "reflect", "symmetric"]] = {
    "replicate": "edge",
    "reflect": "reflect",
    "reflect-even": "symmetric",
}


def extended(
    x: Array, ranges: Sequence[tuple[int, int]], border: str, outside: float = 0.0
) -> Array:
    """The elements from begin to end, the ranges along the last axes, of a tensor that is
    extended by its border, or cropped. `outside` is the value of a uniform border.
    """
    whole = [(0, extent) for extent in x.shape]
    ranges = [*whole[: x.ndim - len(ranges)], *ranges]
    if ranges == whole:
        return x
    columns = zip(ranges, x.shape, strict=True)
    widths = [(max(-begin, 0), max(end - n, 0)) for (begin, end), n in columns]
    if border in UNIFORM:
        # Faster than np.pad, where x is small.
        extents = [p + n + q for n, (p, q) in zip(x.shape, widths, strict=True)]
        padded = np.full(extents, outside, x.dtype)
        inside = zip(x.shape, widths, strict=True)
        padded[tuple(slice(p, p + n) for n, (p, _) in inside)] = x
    else:
        padded = np.pad(x, widths, _MODES[border])
    columns = zip(ranges, widths, strict=True)
    return padded[tuple(slice(begin + p, end + p) for (begin, end), (p, _) in columns)]


def window_contents(
    x: Array, windows: Windows, border: str, outside: float = 0.0
) -> Array:
    """The contents of windows over [..., X...], extended: a view [..., x..., f...]."""
    ranges = [(as_number(axis.begin), as_number(axis.end)) for axis in windows.axes]
    return _view(extended(x, ranges, border, outside), windows)


def overlapped(parts: Iterable[Array], windows: Windows) -> Array:
    """The sum of the windows over the up-scaled side, [..., X...], without the elements
    outside of it, from the values in all windows, [..., x...], of each element of a
    window, in row-major order.
    """
    canvas: Any = None
    for offset, part in zip(np.ndindex(*windows.size), parts, strict=True):
        if canvas is None:
            # From the beginning of the first windows to the end of the last ones.
            independent = part.shape[: part.ndim - len(windows.size)]
            extents = (axis.end - axis.begin for axis in windows.axes)
            canvas = np.zeros((*independent, *extents), part.dtype)
            places = _view(canvas, windows)
        places[(..., *offset)] += part
    ranges = [(-axis.begin, axis.up - axis.begin) for axis in windows.axes]
    return extended(canvas, ranges, "constant")


def _view(x: Array, windows: Windows) -> Array:
    """A view of the contents of windows from the beginning of x to its end."""
    axes = tuple(range(x.ndim - len(windows.size), x.ndim))
    reach = [as_number(axis.reach) for axis in windows.axes]
    steps = (slice(None, None, step) for step in windows.stride + windows.dilation)
    places: Any = (..., *steps)
    return np.asarray(sliding_window_view(x, reach, axis=axes, writeable=True)[places])


def bordered(x: Array, windows: Windows, border: str) -> tuple[Array, Windows]:
    """The side down of a reverse operation, with its border, and all its windows."""
    if border in UNIFORM:
        return x, windows
    outside = windows.outside_down
    columns = zip(outside, windows.down, strict=True)
    ranges = [(-before, extent + after) for (before, after), extent in columns]
    steps = zip(outside, windows.padding, windows.stride, strict=True)
    padding = tuple((p + before * s, q) for (before, _), (p, q), s in steps)
    down = tuple(end - begin for begin, end in ranges)
    return extended(x, ranges, border), replace(windows, down=down, padding=padding)
