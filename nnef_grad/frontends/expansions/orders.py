"""Elements in order. The rank of an element is the number of those before it, which all pairs
are compared for:

    [.., i, j, ..]   whether element j is before element i, in the place of the axis
    [.., i, k, ..]   whether element i has rank k
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnef_grad.frontends.values import shape_of
from nnef_grad.frontends.view import View
from nnef_grad.graph.extents import Dimension

# There is a comparison for each pair of elements.
MOST = 1024


def ranked(
    view: View,
    x: Any,
    axis: int,
    ranks: Sequence[int] | Dimension,
    *,
    is_descending: bool = False,
) -> tuple[Any, Any]:
    """The scalars with some ranks, or so many of the first, and their indices, as scalars; of
    equal ones the first is lower.
    """
    shape = shape_of(x)
    rank, extent = len(shape), shape[axis]
    is_small = not isinstance(extent, int) or extent <= MOST
    view.require(is_small, f"at most {MOST} elements are sorted: take topk of them")

    key = view("neg", x, hint="key") if is_descending else x
    own = view("unsqueeze", key, hint="own", axes=[axis + 1])
    other = view("unsqueeze", key, hint="other", axes=[axis])
    values = view("unsqueeze", x, hint="wide", axes=[axis + 1]) if key is not x else own
    numbers, others = (view.positions(extent, a, rank + 1) for a in (axis, axis + 1))
    is_earlier = view("lt", others, numbers, hint="is_earlier")
    if isinstance(ranks, Sequence):
        wanted = np.reshape(np.array(ranks, float), [-1, *(1,) * (rank - axis - 1)])
        places = view.of_rank(wanted, rank + 1)
    else:
        places = view.positions(ranks, axis + 1, rank + 1)
    hit = view.expand("has_rank", own, other, is_earlier, places, axis=axis + 1)

    def chosen(choices: Any, hint: str) -> Any:
        taken = view("select", hit, choices, 0.0, hint="taken")
        sums = view("sum_reduce", taken, hint="sums", axes=[axis])
        return view("squeeze", sums, hint=hint, axes=[axis])

    return chosen(values, "values"), chosen(numbers, "indices")
