"""Products of matrices, as frameworks define them."""

from __future__ import annotations

from typing import Any

from nnef_grad.frontends.step import Step
from nnef_grad.frontends.values import shape_of


def linear(step: Step, x: Any, weight: Any, bias: Any) -> Any:
    """x weight^T + bias. A weight without rows is a column."""
    is_layer = len(shape_of(x)) == len(shape_of(weight)) == 2
    if bias is not None and is_layer and shape_of(bias) == shape_of(weight)[:1]:
        return step("linear", x, weight, step.of_rank(bias, 2))
    made = matmul(step, x, weight, transposed=len(shape_of(weight)) == 2)
    return made if bias is None else step("add", *step.aligned(made, bias))


def matmul(step: Step, x: Any, y: Any, *, transposed: bool = False) -> Any:
    """x y, of batches that are broadcast; a vector is a row on the left, and a column on
    the right.
    """
    is_row, is_column = len(shape_of(x)) == 1, len(shape_of(y)) == 1
    x = step("unsqueeze", x, axes=[0]) if is_row else x
    if is_column:
        # As a row that enters transposed.
        y, transposed = step("unsqueeze", y, axes=[0]), not transposed
    x, y = step.aligned(x, y)
    hint = "product" if is_row or is_column else None
    made = step("matmul", x, y, transposeB=transposed, hint=hint)
    rank = len(shape_of(made))
    gone = [rank - 2] * is_row + [rank - 1] * is_column
    return step("squeeze", made, axes=gone) if gone else made
