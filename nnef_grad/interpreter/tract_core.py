"""The operations of tract's own registry that targets emit."""

from __future__ import annotations

from math import erf

import numpy as np
import numpy.typing as npt

from nnef_grad.graph.ir import Shape
from nnef_grad.interpreter.registry import Array, enter_all, evaluation
from nnef_grad.interpreter.repeat import gather
from nnef_grad.interpreter.tensors import cast

_TYPES: dict[str, npt.DTypeLike] = {
    "f32": np.float64,
    "i64": np.int64,
    "bool": np.bool_,
}


@evaluation("tract_core_scatter_nd")
def scatter_nd(input: Array, indices: Array, updates: Array, reduction: str) -> Array:
    """The updates, added to the blocks that the rows of indices name."""
    assert reduction == "add"
    sums = input.copy()
    np.add.at(sums, tuple(np.moveaxis(indices.astype(int), -1, 0)), updates)
    return sums


def _cast(input: Array, to: str) -> Array:
    return cast(input, _TYPES[to])


def _broadcast(input: Array, shape: Shape) -> Array:
    return np.broadcast_to(input, shape)


def _gather(input: Array, indices: Array, axis: int, datum_type: str) -> Array:
    return gather(input, indices, axis)


def _range(start: int, end: int, step: int) -> Array:
    return np.arange(start, end, step)


enter_all(
    {
        "tract_core_range": _range,
        "tract_core_erf": np.vectorize(erf, otypes=[np.float64]),
        "tract_core_cast": _cast,
        "tract_core_broadcast": _broadcast,
        "tract_core_gather": _gather,
    }
)
