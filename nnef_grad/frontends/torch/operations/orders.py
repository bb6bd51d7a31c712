"""Sorting: the largest, the smallest, in order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nnef_grad.frontends.expansions import orders
from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.reductions import asked, reduced_axes, without
from nnef_grad.frontends.values import dtype_of, shape_of


@aten("topk", "max.dim", "min.dim")
def extrema_along(call: Call, x: Any, *_: Any) -> Sequence[Any]:
    """Extrema along an axis, and their places: of equal ones the first has the gradient."""
    if not shape_of(x):
        return x, 0
    (x,), count = call.scalars(x), call.args.get("k", 1)
    along, is_kept = asked(call, x)
    is_largest = call.args.get("largest", call.packet == "max")
    results = orders.largest(call, x, count, along[0], is_largest)
    is_several = "k" in call.args
    values, places = (without(call, y, along, is_kept or is_several) for y in results)
    return call.whole(values), places


def ranked(
    call: Call, x: Any, axis: int, ranks: Any, *, is_descending: bool = False
) -> tuple[Any, Any]:
    """As in expansions, with whole elements of whole ones, and whole indices."""
    (given,) = call.scalars(x)
    taken, places = orders.ranked(call, given, axis, ranks, is_descending=is_descending)
    return call.whole(taken, dtype_of(x)), call.whole(places, "integer")


@aten("sort", "argsort")
def in_order(call: Call, x: Any, *_: Any) -> Any:
    """All elements along an axis in order, and their indices; equal ones keep their order."""
    result = x, 0
    if shape_of(x):
        (along,) = reduced_axes(call, x, call.args["dim"])
        ranks, falls = shape_of(x)[along], call.args["descending"]
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
    (along,) = reduced_axes(call, row, axis or 0)
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
