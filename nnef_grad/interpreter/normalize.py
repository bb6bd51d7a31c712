"""Normalizations, as defined by their bodies."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.graph.ir import Shape
from nnef_grad.interpreter.elementwise import broadcasting, maximum
from nnef_grad.interpreter.pool import box
from nnef_grad.interpreter.reduce import Axes, sum_reduce
from nnef_grad.interpreter.registry import Array, evaluation

# ---- By neighbours ----


@evaluation("local_response_normalization")
def local_response_normalization(
    input: Array, size: Shape, alpha: float, beta: float, bias: float
) -> Array:
    """input / (bias + alpha * mean(input^2))^beta, with the local mean."""
    sigma = bias + alpha * _local_mean(np.square(input), size)
    return input / np.power(sigma, beta)


@evaluation("local_mean_normalization")
def local_mean_normalization(input: Array, size: Shape) -> Array:
    """input - mean(input), with the local mean."""
    return input - _local_mean(input, size)


@evaluation("local_variance_normalization")
def local_variance_normalization(
    input: Array, size: Shape, bias: float, epsilon: float
) -> Array:
    """input / sqrt(mean(input^2)), with the local mean."""
    deviation = np.sqrt(_local_mean(np.square(input), size))
    return input / _at_least(deviation + bias, epsilon)


@evaluation("local_contrast_normalization")
def local_contrast_normalization(input: Array, size: Shape, **attributes: Any) -> Array:
    """Local mean, then local variance normalization."""
    centered = local_mean_normalization(input, size)
    return local_variance_normalization(centered, size, **attributes)


def _local_mean(x: Array, size: Shape) -> Array:
    """The mean around each element, including zeros outside the input."""
    return box(x, size, normalize=True)


# ---- By a norm ----


@evaluation("l1_normalization")
def l1_normalization(input: Array, axes: Axes, bias: float, epsilon: float) -> Array:
    """input / sum(|input|)"""
    norm = sum_reduce(np.abs(input), axes)
    return input / _at_least(norm + bias, epsilon)


@evaluation("l2_normalization")
def l2_normalization(input: Array, axes: Axes, bias: float, epsilon: float) -> Array:
    """input / sqrt(sum(input^2))"""
    norm = np.sqrt(sum_reduce(np.square(input), axes))
    return input / _at_least(norm + bias, epsilon)


def _at_least(x: Array, bound: float) -> Array:
    greater: Array = maximum(x, np.asarray(bound))
    return greater


# ---- By given moments ----


@evaluation("batch_normalization")
def batch_normalization(*operands: Array, epsilon: float) -> Array:
    """offset + scale * (input - mean) / sqrt(variance + epsilon), broadcast."""
    normalized: Array = _normalize(*operands, np.asarray(epsilon))
    return normalized


@broadcasting
def _normalize(
    x: Array,
    mean: Array,
    variance: Array,
    offset: Array,
    scale: Array,
    epsilon: Array,
) -> Array:
    normalized: Array = offset + scale * (x - mean) / np.sqrt(variance + epsilon)
    return normalized
