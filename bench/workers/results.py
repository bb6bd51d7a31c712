"""Whether two programs compute the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The largest error of one of our gradients, relative to the largest number of the
    peer's; or to a thousandth of the largest number of all, since some gradients are
    zero but for rounding.
    """
    floor = max(np.abs(array).max() for array in theirs) / 1000
    pairs = zip(ours, theirs, strict=True)
    return max(_relative(a.ravel(), b.ravel(), floor) for a, b in pairs)


def _relative(a: Any, b: Any, floor: float) -> float:
    return float(np.abs(a - b).max() / max(np.abs(b).max(), floor))
