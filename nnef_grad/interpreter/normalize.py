"""The normalizations of convolutional networks; the others have bodies."""

from __future__ import annotations

import numpy as np

from nnef_grad.graph.ir import Shape
from nnef_grad.interpreter.elementwise import aligned
from nnef_grad.interpreter.pool import box
from nnef_grad.interpreter.registry import Array, evaluation


@evaluation("batch_normalization")
def batch_normalization(*operands: Array, epsilon: float) -> Array:
    """offset + scale * (input - mean) / sqrt(variance + epsilon), broadcast."""
    x, mean, variance, offset, scale = aligned(*operands)
    normalized: Array = offset + scale * (x - mean) / np.sqrt(variance + epsilon)
    return normalized


@evaluation("local_response_normalization")
def local_response_normalization(
    input: Array, size: Shape, alpha: float, beta: float, bias: float
) -> Array:
    """input / (bias + alpha * mean(input^2))^beta, with the local mean."""
    sliding: dict[str, Shape] = {"padding": (), "stride": (), "dilation": ()}
    squares = np.square(input)
    mean = box(squares, "constant", normalize=True, size=size, **sliding)
    return input / np.power(bias + alpha * mean, beta)
