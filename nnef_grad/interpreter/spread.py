"""How the elements of an array are spread: its norm, and a histogram of magnitudes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# The bars of a histogram for each power of ten.
PER_DECADE = 2


@dataclass(frozen=True)
class Spread:
    """How the elements of an array are spread.

    Attributes:
        size: the number of elements.
        norm: the Euclidean norm; infinite or NaN if an element is.
        zeros: how many elements are zero.
        magnitudes: how many of the others, by magnitude: those under k have an absolute
            value from 10^(k/2) up to 10^((k+1)/2).
    """

    size: int
    norm: float
    zeros: int
    magnitudes: dict[int, int]

    @property
    def mean(self) -> float:
        """The root of the mean square; 0 of nothing."""
        return self.norm / max(self.size, 1) ** 0.5


def spread_of(array: npt.ArrayLike) -> Spread:
    """The spread of the elements of an array."""
    sizes: npt.NDArray[Any] = np.abs(np.asarray(array, np.float64)).ravel()
    counted = sizes[np.isfinite(sizes) & (sizes > 0.0)]
    steps = np.floor(np.log10(counted) * PER_DECADE).astype(int)
    found, counts = np.unique(steps, return_counts=True)
    return Spread(
        sizes.size,
        _norm(sizes),
        int(np.count_nonzero(sizes == 0.0)),
        {int(step): int(count) for step, count in zip(found, counts, strict=True)},
    )


def _norm(sizes: npt.NDArray[Any]) -> float:
    """The norm of elements whose squares may be too small or too large for a float."""
    largest = float(np.max(sizes, initial=0.0))
    if largest == 0.0 or not np.isfinite(largest):
        return largest
    return float(np.linalg.norm(sizes / largest)) * largest
