"""Borders, which extend a tensor indefinitely."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnef_grad.interpreter.registry import Array, require

# Borders of one value everywhere; for 'ignore' each operation chooses a neutral value.
UNIFORM = ("constant", "ignore")


def extended(
    x: Array, axis: int, begin: int, end: int, border: str, outside: float = 0.0
) -> Array:
    """The elements from begin to end along an axis of a tensor extended by its border.

    Args:
        x: the tensor.
        axis: the axis along which it is extended, or cropped.
        begin, end: positions; 0 is the first element of the tensor.
        border: a border of the standard.
        outside: the value of a uniform border.

    Raises:
        UndefinedError: the positions are beyond a reflecting border.
    """
    if (begin, end) == (0, x.shape[axis]):
        return x
    if border in UNIFORM:
        return _among(x, axis, begin, end, outside)
    return x.take(_sources(begin, end, x.shape[axis], border), axis)


def _among(x: Array, axis: int, begin: int, end: int, outside: float) -> Array:
    """The part of the tensor between begin and end, padded with outside values."""
    first = max(begin, 0)
    last = max(min(end, x.shape[axis]), first)
    shape = (*x.shape[:axis], end - begin, *x.shape[axis + 1 :])
    result = np.full(shape, outside, x.dtype)
    kept = (slice(None),) * axis
    result[(*kept, slice(first - begin, last - begin))] = x[(*kept, slice(first, last))]
    return result


def _sources(begin: int, end: int, extent: int, border: str) -> Array:
    """The positions in the tensor from which the border takes its values."""
    sources = _REPEATED[border](np.arange(begin, end), extent)
    inside = (sources >= 0) & (sources < extent)
    require(
        inside.all(),
        f"there is no border '{border}' from {begin} to {end} around an extent of {extent}",
    )
    return sources


def _replicate(position: Array, extent: int) -> Array:
    return position.clip(0, extent - 1)


def _reflect(position: Array, extent: int) -> Array:
    """Reflects positions at the edge, which is not repeated."""
    after = 2 * (extent - 1) - position
    return np.where(position < extent, np.abs(position), after)


def _reflect_even(position: Array, extent: int) -> Array:
    """Reflects positions outside the edge, which is repeated."""
    before, after = -1 - position, 2 * extent - 1 - position
    return np.where(position < extent, np.maximum(position, before), after)


_REPEATED: dict[str, Callable[[Array, int], Array]] = {
    "replicate": _replicate,
    "reflect": _reflect,
    "reflect-even": _reflect_even,
}
