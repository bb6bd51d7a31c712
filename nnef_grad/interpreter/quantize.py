"""Quantizations, as defined by their bodies: each rounds to a grid, whose points have codes,
and scales back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.graph.ir import Quantization
from nnef_grad.interpreter.elementwise import aligned, clamp, rounded
from nnef_grad.interpreter.registry import evaluation


@evaluation("min_max_linear_quantize")
def min_max_linear_quantize(
    x: Array, min: Array, max: Array, bits: int, signed: bool, symmetric: bool
) -> Array:
    """Even steps from min to max."""
    x, low, high = aligned(x, min, max)
    steps, shift = _steps(bits, signed, symmetric)
    stored = rounded((clamp(x, low, high) - low) / (high - low) * steps) - shift
    quantized: Array = (stored + shift) / steps * (high - low) + low
    return quantized


def _steps(bits: int, signed: bool, symmetric: bool) -> tuple[float, float]:
    """How many there are from min to max, and what is added to codes."""
    steps = np.ldexp(1.0, bits) - 1.0 - (signed and symmetric)
    return steps, np.ldexp(1.0, bits - 1) - symmetric if signed else 0.0


@evaluation("zero_point_linear_quantize")
def zero_point_linear_quantize(
    x: Array, zero_point: Array, scale: Array, bits: int, signed: bool, symmetric: bool
) -> Array:
    """Steps of the scale, one for each number of the given bits."""
    x, zero, scale = aligned(x, zero_point, scale)
    highest = np.ldexp(1.0, bits - 1 if signed else bits) - 1.0
    lowest = -highest - (not symmetric) if signed else 0.0
    shifted = rounded(x / scale) + zero
    stored = clamp(shifted, np.asarray(lowest), np.asarray(highest))
    return (stored - zero) * scale


@evaluation("logarithmic_quantize")
def logarithmic_quantize(x: Array, max: Array, bits: int) -> Array:
    """Powers of two, and zero; the sign is stored separately."""
    x, bound = aligned(x, max)
    highest = np.ceil(np.log2(bound))
    lowest = highest - (np.ldexp(1.0, bits) - 1.0)
    return np.sign(x) * np.exp2(rounded(clamp(np.log2(np.abs(x)), lowest, highest)))


def dequantized(codes: Array, quantization: Quantization) -> Array:
    """The numbers that stored codes mean by a linear quantization, in single precision."""
    settings: dict[str, Any] = dict(quantization.attributes)
    is_scaled = quantization.operation.name == "zero_point_linear_quantize"
    names = ("zero_point", "scale") if is_scaled else ("min", "max")
    pair = (np.asarray(settings[name], np.float64) for name in names)
    x, first, second = aligned(codes, *pair)
    if is_scaled:
        zero_point, scale = first, second
        return ((x - zero_point) * scale).astype(np.float32)
    flags = settings.get("signed", False), settings.get("symmetric", False)
    steps, shift = _steps(settings["bits"], *flags)
    values: Array = (x + shift) / steps * (second - first) + first
    return values.astype(np.float32)
