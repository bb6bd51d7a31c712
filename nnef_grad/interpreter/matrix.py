"""Matrix products: the last two axes are the matrix, the axes before them are
batches.
"""

from __future__ import annotations

import numpy as np

from nnef_grad.interpreter.elementwise import add
from nnef_grad.interpreter.registry import Array, evaluation


@evaluation("matmul")
def matmul(
    A: Array, B: Array, transposeA: bool = False, transposeB: bool = False
) -> Array:
    """The matrix product; ranks are equal, so numpy broadcasts batches as NNEF does."""
    left = A.swapaxes(-1, -2) if transposeA else A
    right = B.swapaxes(-1, -2) if transposeB else B
    product: Array = np.matmul(left, right)
    return product


@evaluation("linear")
def linear(input: Array, filter: Array, bias: Array) -> Array:
    """The product with the transposed filter, plus the bias."""
    output: Array = add(matmul(input, filter, transposeB=True), bias)
    return output
