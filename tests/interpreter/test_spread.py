"""The norm and the magnitudes of the elements of an array, against numpy's own."""

from __future__ import annotations

import numpy as np
import pytest

from nnef_grad.interpreter.spread import PART, spread_of


def test_the_spread_of_many_elements() -> None:
    values = np.random.default_rng(0).standard_normal((3, PART))
    values[0, :7] = 0.0
    found = spread_of(values)
    assert found.norm == pytest.approx(np.linalg.norm(values))
    assert found.mean == pytest.approx(np.sqrt(np.mean(values**2)))
    assert (found.size, found.zeros) == (values.size, 7)
    assert sum(found.magnitudes.values()) == values.size - 7
    between = (np.abs(values) >= 0.1) & (np.abs(values) < 10**-0.5)
    assert found.magnitudes[-2] == np.count_nonzero(between)


@pytest.mark.parametrize(
    ("values", "norm"),
    [([3e-200, 4e-200], 5e-200), ([3e200, -4e200], 5e200), ([], 0.0), ([0.0], 0.0)],
)
def test_norms_whose_squares_are_no_floats(values: list[float], norm: float) -> None:
    assert spread_of(values).norm == pytest.approx(norm, rel=1e-12)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_the_norm_of_what_is_not_finite_is_none(value: float) -> None:
    assert not np.isfinite(spread_of([1.0, value]).norm)
    assert not np.isfinite(spread_of([value, 1.0]).norm)
