"""Slopes by extrapolated differences, and how far they may be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from nnef_grad.interpreter.extrapolation import extrapolated

STEPS = [10.0 ** (-k / 2) for k in range(2, 17)]
EPS = float(np.finfo(np.float64).eps)


def central(function: Callable[[float], float], x: float) -> dict[float, float]:
    return {h: (function(x + h) - function(x - h)) / (2 * h) for h in STEPS}


@pytest.mark.parametrize(
    ("function", "x", "slope", "size"),
    [
        (math.exp, 1.0, math.e, math.e),
        (math.sin, 1e3, math.cos(1e3), 1e3),
        (lambda x: math.log(x * x + 1e-10), 1e-5, 1e5, 23.0),
        (lambda x: 1e6 + x * x, 0.5, 1.0, 1e6),
        (abs, 0.25, 1.0, 1.0),
    ],
)
def test_the_error_is_within_the_bound(
    function: Callable[[float], float], x: float, slope: float, size: float
) -> None:
    found = extrapolated(central(function, x), EPS * size)
    assert abs(found.value - slope) <= found.bound <= 1e-6 * size * max(1.0, abs(slope))


def test_it_is_nearer_than_any_difference() -> None:
    """By the square of the step, and then by its powers."""
    differences = {h: central(math.exp, 1.0)[h] for h in STEPS[:4]}
    best = min(abs(slope - math.e) for slope in differences.values())
    assert abs(extrapolated(differences, EPS).value - math.e) < 1e-6 * best


def test_rounding_bounds_what_agrees_by_chance() -> None:
    assert extrapolated(dict.fromkeys(STEPS, 1.0), 1e-9).bound == 1e-9 / STEPS[1]


def test_differences_that_are_no_numbers_do_not_count() -> None:
    """As of a logarithm whose steps reach below zero."""
    differences = central(math.exp, 1.0)
    outside = {h: slope if h < 1e-3 else math.nan for h, slope in differences.items()}
    assert abs(extrapolated(outside, EPS).value - math.e) < 1e-9
    assert extrapolated(dict.fromkeys(STEPS, math.inf), EPS).bound == math.inf
    assert extrapolated({STEPS[0]: 1.0}, EPS).bound == math.inf
