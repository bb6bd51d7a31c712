"""The same elements in another shape, or in another order of the axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.interpreter.registry import Array, evaluation
from nnef_grad.ops.shape import reshape_shape


@evaluation("reshape")
def reshape(input: Array, **attributes: Any) -> Array:
    """The elements in row-major order, in another shape."""
    return input.reshape(reshape_shape(input.shape, **attributes))


@evaluation("squeeze")
def squeeze(input: Array, axes: tuple[int, ...]) -> Array:
    """The tensor without some axes of extent 1."""
    return np.squeeze(input, axes)


@evaluation("unsqueeze")
def unsqueeze(input: Array, axes: tuple[int, ...]) -> Array:
    """The tensor with new axes, which count in the output, as in numpy."""
    return np.expand_dims(input, axes)


@evaluation("transpose")
def transpose(input: Array, axes: tuple[int, ...]) -> Array:
    """The tensor with permuted axes; axes beyond the list stay."""
    return input.transpose(*axes, *range(len(axes), input.ndim))
