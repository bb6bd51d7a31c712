"""Tensors that are joined along an axis, and divided along one."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from nnef_grad.interpreter.registry import Array, enter_all, evaluation

enter_all({"concat": np.concatenate, "stack": np.stack})


@evaluation("split")
def split(value: Array, axis: int, ratios: tuple[int, ...]) -> list[Array]:
    """Sections in the given ratios."""
    unit = value.shape[axis] // sum(ratios)
    *inner, _ = accumulate(unit * ratio for ratio in ratios)
    return np.split(value, inner, axis)


@evaluation("unstack")
def unstack(value: Array, axis: int) -> list[Array]:
    """The parts along the axis, without it."""
    return list(np.moveaxis(value, axis, 0))
