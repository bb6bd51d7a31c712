"""Batch normalization; other normalizations are evaluated by their bodies."""

from __future__ import annotations

import numpy as np

from nnef_grad.interpreter.elementwise import aligned
from nnef_grad.interpreter.registry import Array, evaluation


@evaluation("batch_normalization")
def batch_normalization(*operands: Array, epsilon: float) -> Array:
    """offset + scale * (input - mean) / sqrt(variance + epsilon), broadcast."""
    x, mean, variance, offset, scale = aligned(*operands)
    normalized: Array = offset + scale * (x - mean) / np.sqrt(variance + epsilon)
    return normalized
