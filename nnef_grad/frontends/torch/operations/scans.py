"""Accumulation along an axis.

A sum is that of a window that ends at the element. Otherwise elements are combined with
those 1, 2, 4, ... places before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.reductions import axes_of, log_sum, whole
from nnef_grad.frontends.values import is_known, shape_of, simple

# Nothing is smaller.
LOWEST = -3.4e38


@aten("cumsum")
def sums(call: Call, x: Any, axis: int) -> Any:
    """The sums of the elements up to each one."""
    x = call.typed(x, call.result_dtype)
    if not shape_of(x):
        return x
    (along,) = axes_of(call, x, axis)
    if is_known(x):
        return simple(np.cumsum(np.asarray(x), along))
    axes = range(len(shape_of(x)))
    before = shape_of(x)[along] - 1
    size = [before + 1 if a == along else 1 for a in axes]
    padding = [(before if a == along else 0, 0) for a in axes]
    (given,) = call.scalars(x)
    made = call("box", given, size=size, padding=padding)
    if call.result_dtype == "scalar":
        return made
    # The runtime may compute it as a mean.
    return call("cast", call("round", made, hint="rounded"), dtype="integer")


@aten("cumprod")
def products(call: Call, x: Any, axis: int) -> Any:
    """The products of the elements up to each one."""
    (y,) = call.scalars(call.typed(x, call.result_dtype))
    for padding in _shifts(call, y, axis):
        before = call("pad", y, hint="before", padding=padding, value=1.0)
        y = call("mul", y, before, hint="products")
    return whole(call, y, call.result_dtype)


@aten("cummax", "cummin")
def extrema(call: Call, x: Any, axis: int) -> Sequence[Any]:
    """The largest or the smallest of the elements up to each one, and the index of the last
    one that is, which has the gradient.
    """
    if not shape_of(x):
        return x, 0
    (along,) = axes_of(call, x, axis)
    name, lowest = ("gt", LOWEST) if "max" in call.name else ("lt", -LOWEST)
    (y,) = call.scalars(x)
    indices = call.positions(shape_of(x)[along], along, len(shape_of(x)))
    for padding in _shifts(call, y, axis):
        before = call("pad", y, hint="before", padding=padding, value=lowest)
        is_earlier = call(name, before, y, hint="is_earlier")
        places = call("pad", indices, hint="places", padding=padding)
        indices = call("select", is_earlier, places, indices, hint="indices")
        y = call("select", is_earlier, before, y, hint="values")
    values = whole(call, y, call.result_dtype)
    return values, whole(call, call.broadcast(indices, shape_of(y)))


def _shifts(call: Call, x: Any, axis: int) -> Iterator[list[tuple[int, int]]]:
    """Paddings that move elements by 1, 2, 4, ... places."""
    for along in axes_of(call, x, axis):
        step = 1
        while step < shape_of(x)[along]:
            yield [
                (step, -step) if a == along else (0, 0) for a in range(len(shape_of(x)))
            ]
            step *= 2


@aten("logcumsumexp")
def logarithms(call: Call, x: Any, axis: int) -> Any:
    """The logarithms of the sums of the exponentials up to each one."""
    for along in axes_of(call, x, axis):
        extent, rank = shape_of(x)[along], len(shape_of(x))
        row = call("unsqueeze", x, hint="row", axes=[along])
        last, places = (call.positions(extent, a, rank + 1) for a in (along, along + 1))
        is_before = call("le", places, last, hint="is_before")
        terms = call("select", is_before, row, LOWEST, hint="terms")
        x = log_sum(call, terms, [along + 1])
    return x
