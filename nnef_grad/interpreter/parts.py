"""Parts of a tensor, and borders around one."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.interpreter.borders import extended
from nnef_grad.interpreter.registry import Array, evaluation
from nnef_grad.ops.parts import slice_positions
from nnef_grad.ops.windows import Padding


@evaluation("slice")
def slice_(input: Array, **attributes: Any) -> Array:
    """The elements at the positions of each axis."""
    output = input
    for axis, taken in slice_positions(input.shape, **attributes).items():
        output = output.take(np.arange(taken.start, taken.stop, taken.step), axis)
    return output


@evaluation("pad")
def pad(input: Array, padding: Padding, border: str, value: float) -> Array:
    """The tensor extended by its border along each axis; negative padding crops. The
    value is also used for the border 'ignore', which has no effect here.
    """
    columns = zip(padding, input.shape, strict=True)
    ranges = [(-before, extent + after) for (before, after), extent in columns]
    return extended(input, ranges, border, value)
