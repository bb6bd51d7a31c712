"""Sorting: the largest, the smallest, in order.

The rank of an element is the number of those before it, which all pairs are compared for:

    [.., i, j, ..]   whether element j is before element i, in the place of the axis
    [.., i, k, ..]   whether element i has rank k
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nnef_grad.frontends.expansions.selection import largest
from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.reductions import asked, axes_of, without
from nnef_grad.frontends.values import dtype_of, shape_of

# There is a comparison for each pair of elements.
MOST = 1024


@aten("topk", "max.dim", "min.dim")
def extrema_along(call: Call, x: Any, *_: Any) -> Sequence[Any]:
    """Extrema along an axis, and their places: of equal ones the first has the gradient."""
    if not shape_of(x):
        return x, 0
    (x,), count = call.scalars(x), call.args.get("k", 1)
    along, is_kept = asked(call, x)
    is_largest = call.args.get("largest", call.packet == "max")
    results = largest(call, x, count, along[0], is_largest)
    is_several = "k" in call.args
    values, places = (without(call, y, along, is_kept or is_several) for y in results)
    return call.whole(values), places


def ranked(
    call: Call, x: Any, axis: int, ranks: Sequence[int], *, is_descending: bool = False
) -> tuple[Any, Any]:
    """The elements with some ranks, and their indices; of equal ones the first is lower."""
    dtype = dtype_of(x)
    (x,) = call.scalars(x)
    shape = shape_of(x)
    rank, extent = len(shape), shape[axis]
    is_small = isinstance(extent, int) and extent <= MOST
    call.require(is_small, f"at most {MOST} elements are sorted: take topk of them")

    key = call("neg", x, hint="key") if is_descending else x
    own = call("unsqueeze", key, hint="own", axes=[axis + 1])
    other = call("unsqueeze", key, hint="other", axes=[axis])
    values = call("unsqueeze", x, hint="wide", axes=[axis + 1]) if key is not x else own
    numbers, others = (call.positions(extent, a, rank + 1) for a in (axis, axis + 1))
    is_earlier = call("lt", others, numbers, hint="is_earlier")
    wanted = np.reshape(np.array(ranks, float), [-1, *(1,) * (rank - axis - 1)])
    places = call.of_rank(wanted, rank + 1)
    hit = call.expand("has_rank", own, other, is_earlier, places, axis=axis + 1)

    def chosen(choices: Any, hint: str) -> Any:
        taken = call("select", hit, choices, 0.0, hint="taken")
        sums = call("sum_reduce", taken, hint="sums", axes=[axis])
        return call("squeeze", sums, hint=hint, axes=[axis])

    taken = call.whole(chosen(values, "values"), dtype)
    return taken, call.whole(chosen(numbers, "indices"), "integer")


@aten("sort", "argsort")
def in_order(call: Call, x: Any, *_: Any) -> Any:
    """All elements along an axis in order, and their indices; equal ones keep their order."""
    result = x, 0
    if shape_of(x):
        (along,) = axes_of(call, x, call.args["dim"])
        ranks, falls = range(shape_of(x)[along]), call.args["descending"]
        result = ranked(call, x, along, ranks, is_descending=falls)
    return result[1] if call.packet == "argsort" else result


@aten("kthvalue", "median.dim")
def kth(call: Call, x: Any, *_: Any) -> Sequence[Any]:
    """The k-th smallest element along an axis, or the lower middle one, and its index."""
    if not shape_of(x):
        return x, 0
    along, is_kept = asked(call, x)
    number = call.args.get("k", (shape_of(x)[along[0]] + 1) // 2)
    result = ranked(call, x, along[0], [number - 1])
    return [without(call, y, along, is_kept) for y in result]


@aten("median")
def median_of_all(call: Call, x: Any) -> Any:
    """The lower one of the middle elements; equal ones share the gradient."""
    if not shape_of(x):
        return x
    (row,) = call.scalars(call.reshaped(x, [prod(shape_of(x))], "row"))
    middle, _ = ranked(call, row, 0, [(shape_of(row)[0] - 1) // 2])
    return call.expand("mean_of_equals", row, call.stopped(middle))


@aten("quantile", "quantile.scalar")
def quantile(
    call: Call,
    x: Any,
    q: Any,
    axis: int | None = None,
    is_kept: bool = False,
    interpolation: str = "linear",
) -> Any:
    """The value below which a share of the elements lies, between its two neighbours."""
    shape = shape_of(x)
    shares = np.asarray(call.known(q, "q"), float)
    row = x if axis is not None else call.reshaped(x, [prod(shape)], "row")
    (along,) = axes_of(call, row, axis or 0)
    last = shape_of(row)[along] - 1
    low, high, part = _between(shares.reshape(-1) * last, interpolation)
    own = [1] * along + [-1] + [1] * (len(shape_of(row)) - along - 1)
    lower, _ = ranked(call, row, along, low)
    if np.any(part):
        upper, _ = ranked(call, row, along, high)
        lower = call.expand("mixed", lower, upper, np.reshape(part, own))
    if shares.ndim:
        order = [along, *(a for a in range(len(own)) if a != along)]
        lower = call.transposed(lower, order, "shares")
    return call.reshaped(lower, call.result_shape)


def _between(places: Any, interpolation: str) -> tuple[list[int], list[int], Any]:
    """The ranks below and above places, and where between these the places are."""
    roundings: dict[str, Any] = {"nearest": np.round, "higher": np.ceil}
    low, high = roundings.get(interpolation, np.floor)(places), np.ceil(places)
    parts = {"linear": places - low, "midpoint": 0.5 * (high - low)}
    part = parts.get(interpolation, np.zeros_like(low))
    return low.astype(int).tolist(), high.astype(int).tolist(), part


@aten("histc")
def _histogram(
    call: Call, x: Any, bins: int = 100, low: float = 0, high: float = 0
) -> Any:
    call.require(low < high, "give min and max: they must not depend on the inputs")
    row = call.reshaped(x, [1, prod(shape_of(x))], "row")
    numbers = np.arange(float(bins)).reshape(bins, 1)
    settings = {"low": float(low), "high": float(high), "bins": float(bins)}
    return call.expand("counts", *call.scalars(row, numbers), **settings)
