"""How the elements of an array are spread: its norm, and a histogram of magnitudes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from nnef_grad.base.arrays import Array

# The bars of a histogram for each power of ten.
PER_DECADE = 2
# The elements that are looked at together.
PART = 2**16


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
        return self.norm / sqrt(max(self.size, 1))


def spread_of(array: npt.ArrayLike) -> Spread:
    """The spread of the elements of an array."""
    values = np.asarray(array).reshape(-1)
    largest = float(np.max([part.max() for part in _parts(values)], initial=0.0))
    is_scaled = 0.0 < largest < np.inf
    squares, zeros = 0.0, 0
    magnitudes: Counter[int] = Counter()
    for part in _parts(values):
        zeros += int(np.count_nonzero(part == 0.0))
        finite = part[np.isfinite(part) & (part > 0.0)]
        places = np.floor(np.log10(finite) * PER_DECADE).astype(int)
        steps, counts = np.unique(places, return_counts=True)
        magnitudes.update(dict(zip(steps.tolist(), counts.tolist(), strict=True)))
        # Scaled, as squares may be too small or too large for a float.
        squares += float(np.sum((part / largest) ** 2)) if is_scaled else 0.0
    norm = squares**0.5 * largest if is_scaled else largest
    return Spread(values.size, norm, zeros, dict(sorted(magnitudes.items())))


def _parts(values: Array) -> Iterator[Array]:
    """The absolute values, some at a time: all at once would take as much memory again."""
    for start in range(0, values.size, PART):
        yield np.abs(values[start : start + PART].astype(np.float64))
