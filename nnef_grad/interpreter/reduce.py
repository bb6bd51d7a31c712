"""Reductions: the reduced axes stay, with extent 1."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.interpreter.registry import enter, require

Axes = tuple[int, ...]


def sum_reduce(input: Array, axes: Axes, normalize: bool = False) -> Array:
    """The sum, or the mean."""
    total: Array = input.sum(axis=axes, keepdims=True)
    return total / _volume(input, axes) if normalize else total


def mean_reduce(input: Array, axes: Axes) -> Array:
    """The sum, divided by the number of its terms."""
    return sum_reduce(input, axes, normalize=True)


def _moments(input: Array, axes: Axes) -> list[Array]:
    """Mean and population variance."""
    mean = mean_reduce(input, axes)
    return [mean, mean_reduce(np.square(input - mean), axes)]


def _reduction(function: Callable[..., Any], **start: float) -> Callable[..., Array]:
    """A reduction of numpy; start is the result for nothing, if numpy has none."""
    return lambda x, axes: np.asarray(function(x, axis=axes, keepdims=True, **start))


max_reduce = _reduction(np.max, initial=-np.inf)
min_reduce = _reduction(np.min, initial=np.inf)


def _position(find: Callable[..., Array]) -> Callable[[Array, Axes], Array]:
    """The index of the first extremum, in row-major order over the reduced axes."""

    def reduce(input: Array, axes: Axes) -> Array:
        volume = _volume(input, axes)
        require(volume > 0, "there is no extremum of nothing")
        kept = [axis for axis in range(input.ndim) if axis not in axes]
        rows = input.transpose(*kept, *sorted(axes))
        rows = rows.reshape(*rows.shape[: len(kept)], volume)
        return np.expand_dims(find(rows, axis=-1), axes)

    return reduce


def _volume(input: Array, axes: Axes) -> int:
    """The number of elements reduced to one."""
    return prod(input.shape[axis] for axis in axes)


enter(
    {
        "sum_reduce": sum_reduce,
        "mean_reduce": mean_reduce,
        "moments": _moments,
        "max_reduce": max_reduce,
        "min_reduce": min_reduce,
        "all_reduce": _reduction(np.all),
        "any_reduce": _reduction(np.any),
        "argmax_reduce": _position(np.argmax),
        "argmin_reduce": _position(np.argmin),
    }
)
