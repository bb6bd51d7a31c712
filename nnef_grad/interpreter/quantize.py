"""Quantizations, as defined by their bodies: each rounds to a grid and scales back."""

from __future__ import annotations

import numpy as np

from nnef_grad.interpreter.elementwise import aligned, clamp, rounded
from nnef_grad.interpreter.registry import Array, evaluation


@evaluation("min_max_linear_quantize")
def min_max_linear_quantize(
    x: Array, min: Array, max: Array, bits: int, signed: bool, symmetric: bool
) -> Array:
    """Even steps from min to max."""
    x, low, high = aligned(x, min, max)
    steps = _power_of_two(bits) - 1.0 - (signed and symmetric)
    shift = _power_of_two(bits - 1) - symmetric if signed else 0.0
    stored = rounded((clamp(x, low, high) - low) / (high - low) * steps) - shift
    quantized: Array = (stored + shift) / steps * (high - low) + low
    return quantized


@evaluation("zero_point_linear_quantize")
def zero_point_linear_quantize(
    x: Array, zero_point: Array, scale: Array, bits: int, signed: bool, symmetric: bool
) -> Array:
    """Steps of the scale, one for each number of the given bits."""
    x, zero, scale = aligned(x, zero_point, scale)
    highest = _power_of_two(bits - 1 if signed else bits) - 1.0
    lowest = -highest - (not symmetric) if signed else 0.0
    shifted = rounded(x / scale) + zero
    stored = clamp(shifted, np.asarray(lowest), np.asarray(highest))
    return (stored - zero) * scale


@evaluation("logarithmic_quantize")
def logarithmic_quantize(x: Array, max: Array, bits: int) -> Array:
    """Powers of two, and zero; the sign is stored separately."""
    x, bound = aligned(x, max)
    highest = np.ceil(np.log2(bound))
    lowest = highest - (_power_of_two(bits) - 1.0)
    stored = rounded(clamp(np.log2(np.abs(x)), lowest, highest))
    return np.sign(x) * np.exp2(stored)


def _power_of_two(exponent: int) -> float:
    return float(np.ldexp(1.0, exponent))
