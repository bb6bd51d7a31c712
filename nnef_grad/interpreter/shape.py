"""Shape operations: moving elements, joining tensors and taking parts of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from nnef_grad.graph.ir import Shape
from nnef_grad.interpreter.borders import extended
from nnef_grad.interpreter.registry import Array, evaluation, require
from nnef_grad.ops.shape import reshape_shape, slice_positions

# ---- The same elements in another shape ----


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


# ---- Joining and dividing ----


@evaluation("concat")
def concat(values: Sequence[Array], axis: int) -> Array:
    """The tensors, joined along the axis."""
    return np.concatenate(values, axis)


@evaluation("split")
def split(value: Array, axis: int, ratios: tuple[int, ...]) -> list[Array]:
    """Sections in the given ratios."""
    unit = value.shape[axis] // sum(ratios)
    *inner, _ = accumulate(unit * ratio for ratio in ratios)
    return np.split(value, inner, axis)


@evaluation("stack")
def stack(values: Sequence[Array], axis: int) -> Array:
    """The tensors, joined along a new axis."""
    return np.stack(values, axis)


@evaluation("unstack")
def unstack(value: Array, axis: int) -> list[Array]:
    """The parts along the axis, without it."""
    return list(np.moveaxis(value, axis, 0))


# ---- Parts and borders ----


@evaluation("slice")
def slice_(input: Array, **attributes: Any) -> Array:
    """The elements at the positions of each axis."""
    output = input
    for axis, taken in slice_positions(input.shape, **attributes).items():
        output = output.take(np.arange(taken.start, taken.stop, taken.step), axis)
    return output


@evaluation("pad")
def pad(
    input: Array, padding: tuple[tuple[int, int], ...], border: str, value: float
) -> Array:
    """The tensor extended by its border along each axis; negative padding crops. The
    value is also used for the border 'ignore', which has no effect here.
    """
    output = input
    for axis, (before, after) in enumerate(padding):
        end = input.shape[axis] + after
        output = extended(output, axis, -before, end, border, value)
    return output


@evaluation("tile")
def tile(input: Array, repeats: Shape) -> Array:
    """The tensor, repeated along each axis."""
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
