"""Diagonals of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.shapes import (
    move_axes,
    section,
)
from nnef_grad.frontends.values import shape_of
from nnef_grad.graph.ir import Shape


@aten("diagonal", "diagonal_copy")
def diagonal(
    call: Call, x: Any, offset: int = 0, first: int = 0, second: int = 1
) -> Any:
    """A diagonal of matrices, as a last axis: elements at equal distances."""
    last = move_axes(call, x, [first, second], [-2, -1])
    *outer, height, width = shape_of(last)
    count = call.result_shape[-1]
    rows_flat = call.reshaped(last, [*outer, height * width], "rows")
    begin = offset if offset > 0 else -offset * width
    end = begin + (count - 1) * (width + 1) + 1
    return section(call, rows_flat, len(outer), begin, end, width + 1)


def on_diagonal(call: Call, row: Any, other: Any, shape: Shape, offset: int) -> Any:
    """Matrices with a row on a diagonal, and something else elsewhere."""
    *outer, height, width = shape
    before = max(-offset, 0)
    after = height - before - shape_of(row)[-1]
    rank = len(shape)
    column = call("unsqueeze", row, hint="column", axes=[rank - 1])
    if before or after:
        sides = [*[(0, 0)] * len(outer), (before, after), (0, 0)]
        column = call("pad", column, hint="column", padding=sides)
    mask = np.eye(int(height), int(width), offset, bool)
    inside = mask.reshape([*[1] * len(outer), *mask.shape])
    return call("select", inside, column, other)
