"""The same elements in another shape, or in another order of the axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.interpreter.registry import Array, evaluation
from nnef_grad.ops.shape import reshape_shape


@evaluation("reshape")
def reshape(input: Array, **attributes: Any) -> Array:
    """The elements in row-major order, under other indices."""
    return input.reshape(reshape_shape(input.shape, **attributes))


@evaluation("squeeze")
def squeeze(input: Array, axes: tuple[int, ...]) -> Array:
    """The axes, whose extents are 1, go."""
    return np.squeeze(input, axes)


@evaluation("unsqueeze")
def unsqueeze(input: Array, axes: tuple[int, ...]) -> Array:
    """The axes are those of the output, as numpy has them."""
    return np.expand_dims(input, axes)


@evaluation("transpose")
def transpose(input: Array, axes: tuple[int, ...]) -> Array:
    """Axes beyond the list stay."""
    return input.transpose(*axes, *range(len(axes), input.ndim))
