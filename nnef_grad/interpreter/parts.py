"""Parts of a tensor, and borders around one."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.interpreter.borders import extended
from nnef_grad.interpreter.registry import Array, evaluation
from nnef_grad.ops.parts import slice_positions


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
