"""Elements that are taken several times."""

from __future__ import annotations

import numpy as np

from nnef_grad.graph.ir import Shape
from nnef_grad.interpreter.registry import Array, evaluation, require


@evaluation("tile")
def tile(input: Array, repeats: Shape) -> Array:
    """The whole, several times along each axis."""
    return np.tile(input, repeats)


@evaluation("gather")
def gather(input: Array, indices: Array, axis: int) -> Array:
    """The elements at the indices, whose shape takes the place of the axis."""
    extent = input.shape[axis]
    require(
        np.all((indices >= 0) & (indices < extent)),
        f"the items of 'indices' must be in 0..{extent - 1}, the positions on axis {axis}",
    )
    return input.take(indices, axis)
