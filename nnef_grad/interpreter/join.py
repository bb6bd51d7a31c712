"""Tensors that are joined along an axis, and divided along one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from nnef_grad.interpreter.registry import Array, evaluation


@evaluation("concat")
def concat(values: Sequence[Array], axis: int) -> Array:
    """One after the other along the axis."""
    return np.concatenate(values, axis)


@evaluation("split")
def split(value: Array, axis: int, ratios: tuple[int, ...]) -> list[Array]:
    """Sections in the given ratios."""
    unit = value.shape[axis] // sum(ratios)
    *inner, _ = accumulate(unit * ratio for ratio in ratios)
    return np.split(value, inner, axis)


@evaluation("stack")
def stack(values: Sequence[Array], axis: int) -> Array:
    """One after the other along a new axis."""
    return np.stack(values, axis)


@evaluation("unstack")
def unstack(value: Array, axis: int) -> list[Array]:
    """The parts along the axis, without it."""
    return list(np.moveaxis(value, axis, 0))
