"""Borders, which extend a tensor indefinitely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from nnef_grad.interpreter.registry import Array

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
    """The elements from begin to end along the last axes of a tensor that is extended
    by its border, or cropped.

    Args:
        x: the tensor; it may be returned itself.
        ranges: for each of the last axes, begin and end; 0 is the first element of x.
        border: a border of the standard.
        outside: the value of a uniform border.
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
