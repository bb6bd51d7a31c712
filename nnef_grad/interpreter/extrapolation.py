"""Slopes at a point from central differences of several steps, by Richardson extrapolation.

The error of a central difference is a series in the square of its step, so two steps give
a slope without its first term, three one without its first two, and so on. How much the
extrapolated slopes differ tells how far to trust them. Source: C. J. F. Ridders, "Accurate
computation of F'(x) and F'(x) F''(x)", Advances in Engineering Software 4 (1982), 75-76.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class Slope(NamedTuple):
    """A slope, and a bound of its error: by curvature, kinks and rounding together."""

    value: float
    bound: float


def extrapolated(differences: Mapping[float, float], noise: float) -> Slope:
    """The slope that is known best; of infinite bound if nothing is known.

    Args:
        differences: the central difference for each step. Those that are not numbers do
            not count: a step may leave the domain of the function.
        noise: the rounding error of an evaluation of the function.
    """
    steps = sorted(differences, reverse=True)
    best = Slope(np.nan, np.inf)
    previous: list[float] = []
    for place, step in enumerate(steps):
        row = [differences[step]]
        for coarser, old in zip(reversed(steps[:place]), previous, strict=True):
            factor = (coarser / step) ** 2
            value = row[-1] + (row[-1] - old) / (factor - 1.0)
            # Whatever is not a number is less than nothing, and is never the best.
            spread = max(abs(value - row[-1]), abs(value - old))
            if (bound := spread + noise / step) < best.bound:
                best = Slope(value, bound)
            row.append(value)
        previous = row
    return best
