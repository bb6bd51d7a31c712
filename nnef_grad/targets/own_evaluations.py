"""What the operations of own_operations.py compute, for the interpreter."""

from __future__ import annotations

from math import erf

import numpy as np
import numpy.typing as npt

from nnef_grad.base.arrays import Array
from nnef_grad.interpreter.registry import enter
from nnef_grad.interpreter.shape import cast, gather

_TYPES: dict[str, npt.DTypeLike] = {
    "f32": np.float64,
    "i64": np.int64,
    "bool": np.bool_,
}


def _scatter_nd(input: Array, indices: Array, updates: Array, reduction: str) -> Array:
    """The updates, added to the blocks that the rows of indices name."""
    assert reduction == "add"
    sums = input.copy()
    np.add.at(sums, tuple(np.moveaxis(indices.astype(int), -1, 0)), updates)
    return sums


enter(
    {
        "tract_core_range": lambda start, end, step: np.arange(start, end, step),
        "tract_core_erf": np.vectorize(erf, otypes=[np.float64]),
        "tract_core_cast": lambda x, to: cast(x, _TYPES[to]),
        "tract_core_broadcast": lambda x, shape: np.broadcast_to(x, shape),
        "tract_core_gather": lambda x, i, axis, datum_type: gather(x, i, axis),
        "tract_core_scatter_nd": _scatter_nd,
        "tract_core_trilu": lambda x, k, upper: (np.triu if upper else np.tril)(x, k),
    }
)
