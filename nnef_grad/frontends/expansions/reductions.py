"""Reductions that the standard does not have."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.frontends.values import is_known, shape_of, simple
from nnef_grad.frontends.view import View


def product(view: View, x: Any, axes: list[int]) -> Any:
    """The product along axes, by halves: the derivative of a factor is the product of the
    others, even if one is zero.
    """
    axes = [view.axis(axis, len(shape_of(x))) for axis in axes]
    if is_known(x):
        return simple(np.prod(np.asarray(x), axis=tuple(axes), keepdims=True))
    for axis in axes:
        while (extent := shape_of(x)[axis]) > 1:
            half = extent // 2
            first = view.piece(x, axis, 0, half, "part")
            second = view.piece(x, axis, half, 2 * half, "part")
            products = view("mul", first, second, hint="product")
            if extent % 2:
                last = view.piece(x, axis, extent - 1, extent, "part")
                products = view("concat", [products, last], axis=axis)
            x = products
    return x


def running_sums(
    view: View,
    x: Any,
    axis: int,
    dtype: str,
    *,
    is_back: bool = False,
    excludes: bool = False,
) -> Any:
    """Sums up to each scalar along an axis, or from it on: those of windows that end there."""
    before = shape_of(x)[axis] - 1
    size: list[Any] = [1] * len(shape_of(x))
    padding: list[Any] = [(0, 0)] * len(size)
    size[axis] = before + 1
    padding[axis] = (0, before) if is_back else (before, 0)
    sums = view("box", x, size=size, padding=padding)
    sums = view("sub", sums, x) if excludes else sums
    if dtype == "scalar":
        return sums
    # The runtime may compute it as a mean.
    return view("cast", view("round", sums, hint="rounded"), dtype="integer")


def local_response(
    view: View, x: Any, alpha: float, beta: float, bias: float, size: int
) -> Any:
    """Normalization across channels."""
    window = [size if axis == 1 else 1 for axis in range(len(shape_of(x)))]
    settings: dict[str, Any] = {"alpha": alpha, "beta": beta, "bias": bias}
    return view("local_response_normalization", x, size=window, **settings)
