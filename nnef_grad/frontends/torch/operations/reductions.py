"""Sums, means, extrema, norms, along axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

import numpy as np

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.tract.operations.reductions import product as product_along
from nnef_grad.frontends.tract.operations.selection import largest
from nnef_grad.frontends.values import dtype_of, is_known, shape_of

# Between more rows than these PyTorch finds distances by a product of matrices.
FEW = 25


def axes_of(call: Call, x: Any, axes: Any) -> list[int]:
    """The axes of a reduction; what has no axes is not reduced."""
    rank = len(shape_of(x))
    return call.axes(axes, rank) if rank else []


def without(call: Call, x: Any, axes: Sequence[int], is_kept: bool) -> Any:
    """A reduced tensor, without the axes along which it was reduced."""
    return x if is_kept or not axes else call("squeeze", x, axes=list(axes))


def reduced(
    call: Call, name: str, x: Any, axes: Sequence[int], is_kept: bool = False
) -> Any:
    """A reduction of the standard."""
    if not axes:
        return x
    hint = None if is_kept else "wide"
    made = call(name, x, hint=hint, axes=list(axes))
    return without(call, made, axes, is_kept)


def _of_result(call: Call, x: Any) -> Any:
    """The operand as numbers of the data type that a reduction is asked to compute in."""
    is_truncated = dtype_of(x) == "scalar" and call.result_dtype == "integer"
    return call.typed(x, "integer") if is_truncated else call.typed(x, "scalar")


def whole(call: Call, x: Any, dtype: str = "integer") -> Any:
    """A whole number that was computed in scalars as an integer, if it should be one."""
    is_other = not is_known(x) and (dtype_of(x), dtype) == ("scalar", "integer")
    return call("cast", x, dtype="integer") if is_other else x


# ---- Sums, means and products ----


@aten("sum.dim_IntList")
def total(call: Call, x: Any, axes: Any = None, is_kept: bool = False) -> Any:
    """The sum along axes, or of all."""
    x = _of_result(call, x)
    made = reduced(call, "sum_reduce", x, axes_of(call, x, axes), is_kept)
    return whole(call, made, call.result_dtype)


@aten("mean.dim")
def mean(call: Call, x: Any, axes: Any = None, is_kept: bool = False) -> Any:
    """The mean along axes, or of all."""
    (x,) = call.scalars(x)
    return reduced(call, "mean_reduce", x, axes_of(call, x, axes), is_kept)


@aten("sum")
def total_of_all(call: Call, x: Any) -> Any:
    """The sum of all elements."""
    return total(call, x)


@aten("mean")
def mean_of_all(call: Call, x: Any) -> Any:
    """The mean of all elements."""
    return mean(call, x)


@aten("prod")
def product_of_all(call: Call, x: Any) -> Any:
    """The product of all elements."""
    return product(call, call.reshaped(x, [prod(shape_of(x))], "row"), 0)


@aten("prod.dim_int")
def product(call: Call, x: Any, axis: int, is_kept: bool = False) -> Any:
    """The product along an axis."""
    (x,) = call.scalars(_of_result(call, x))
    along = axes_of(call, x, axis)
    made = without(call, product_along(call, x, along), along, is_kept)
    return whole(call, made, call.result_dtype)


# ---- Extrema: equal ones share the gradient, unless there is an index ----


@aten("amax", "max")
def maximum(call: Call, x: Any, axes: Any = None, is_kept: bool = False) -> Any:
    """The largest elements along axes, or of all."""
    return reduced(call, "max_reduce", x, axes_of(call, x, axes), is_kept)


@aten("amin", "min")
def minimum(call: Call, x: Any, axes: Any = None, is_kept: bool = False) -> Any:
    """The smallest elements along axes, or of all."""
    return reduced(call, "min_reduce", x, axes_of(call, x, axes), is_kept)


@aten("max.dim", "min.dim")
def extremum_along(
    call: Call, x: Any, axis: int, is_kept: bool = False
) -> Sequence[Any]:
    """The largest or the smallest elements along an axis, and where the first of them is,
    which has the gradient.
    """
    if not shape_of(x):
        return x, 0
    (x,) = call.scalars(x)
    along = axes_of(call, x, axis)
    found = largest(call, x, 1, along[0], "max" in call.name)
    values, indices = (without(call, y, along, is_kept) for y in found)
    return whole(call, values, call.result_dtype), indices


@aten("argmax", "argmin")
def place(call: Call, x: Any, axis: int | None = None, is_kept: bool = False) -> Any:
    """Where the first one of the largest or the smallest elements is."""
    shape = shape_of(x)
    if not shape:
        return 0
    name = f"{call.node.target.overloadpacket.__name__}_reduce"
    if axis is None:
        row = call.reshaped(x, [prod(shape)], "row")
        made = call(name, row, axes=[0])
        return call.reshaped(made, [1] * len(shape) if is_kept else [])
    return reduced(call, name, x, axes_of(call, x, axis), is_kept)


# ---- Variances ----


@aten("var", "std", "var_mean", "std_mean")
def deviation_of_all(call: Call, x: Any, is_unbiased: bool = True) -> Any:
    """The variance of all elements, or its root, and perhaps their mean."""
    return _deviation(call, x, None, float(is_unbiased), is_kept=False)


@aten("var.dim", "std.dim", "var_mean.dim", "std_mean.dim")
def deviation(
    call: Call, x: Any, axes: Any, is_unbiased: bool = True, is_kept: bool = False
) -> Any:
    """The same along axes."""
    return _deviation(call, x, axes, float(is_unbiased), is_kept)


@aten("var.correction", "std.correction", "var_mean.correction", "std_mean.correction")
def corrected_deviation(
    call: Call,
    x: Any,
    axes: Any = None,
    correction: float | None = None,
    is_kept: bool = False,
) -> Any:
    """The same, of n numbers as if there were fewer."""
    return _deviation(call, x, axes, 1.0 if correction is None else correction, is_kept)


def _deviation(call: Call, x: Any, axes: Any, correction: float, is_kept: bool) -> Any:
    along = axes_of(call, x, axes)
    average, variance = call("moments", x, axes=along)
    if correction:
        size = prod(shape_of(x)[axis] for axis in along)
        call.require(size != correction, f"there is no variance of {size} elements")
        whole = int(correction) if correction == int(correction) else correction
        ratio = call.ratio(size, size - whole)
        variance = call("mul", variance, ratio, hint="unbiased")
    if call.name.startswith("aten.std"):
        variance = call.expand("root", variance)
    y = without(call, variance, along, is_kept)
    if "_mean" not in call.name:
        return y
    return [y, without(call, average, along, is_kept)]


# ---- Norms: their derivative is 0 at 0 ----


@aten("linalg_vector_norm")
def vector_norm(
    call: Call, x: Any, p: float = 2, axes: Any = None, is_kept: bool = False
) -> Any:
    """The root of the sum of powers of sizes."""
    return norm(call, x, p, axes_of(call, x, axes), is_kept)


@aten("norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype")
def old_norm(
    call: Call, x: Any, p: float | None, axes: Any = None, is_kept: bool = False
) -> Any:
    """The same by its old name."""
    return vector_norm(call, x, 2 if p is None else p, axes, is_kept)


@aten("norm")
def norm_of_all(call: Call, x: Any, p: float | None = 2) -> Any:
    """The norm of all elements."""
    return old_norm(call, x, p)


def norm(
    call: Call, x: Any, p: float, axes: Sequence[int], is_kept: bool = False
) -> Any:
    """The norm along axes that are known."""
    if p in _EXTREMA:
        made = call(_EXTREMA[p], call("abs", x, hint="size"), axes=list(axes))
    elif p in _NORMS:
        made = call.expand(_NORMS[p], x, axes=list(axes))
    else:
        call.require(p > 0, f"there is no norm with the exponent {p}")
        made = call.expand("norm", x, axes=list(axes), p=float(p))
    return without(call, made, axes, is_kept)


_NORMS: dict[float, str] = {0: "nonzeros", 1: "norm_1", 2: "norm_2"}
_EXTREMA = {inf: "max_reduce", -inf: "min_reduce"}


@aten("frobenius_norm.dim")
def frobenius_norm(call: Call, x: Any, axes: Any, is_kept: bool = False) -> Any:
    """The root of the sum of squares."""
    return vector_norm(call, x, 2, axes, is_kept)


# ---- Distances ----


@aten("dist")
def distance(call: Call, x: Any, y: Any, p: float = 2) -> Any:
    """The norm of the difference of all elements."""
    difference = call("sub", *call.aligned(x, y), hint="difference")
    return vector_norm(call, difference, p)


@aten("cdist", "_cdist_forward")
def distances(call: Call, x: Any, y: Any, p: float = 2, mode: int | None = None) -> Any:
    """The distances between all rows of two matrices."""
    x, y = call.aligned(x, y)
    rank = len(shape_of(x))
    is_small = all(
        isinstance(n, int) and n <= FEW for n in (shape_of(x)[-2], shape_of(y)[-2])
    )
    if p == 2 and (mode == 1 or (mode != 2 and not is_small)):
        order = [*range(rank - 2), rank - 1, rank - 2]
        return call.expand("distances", x, y, axis=rank - 1, order=order)
    rows = call("unsqueeze", x, hint="rows", axes=[rank - 1])
    columns = call("unsqueeze", y, hint="columns", axes=[rank - 2])
    difference = call("sub", rows, columns, hint="difference")
    return norm(call, difference, p, [rank])


@aten("pdist", "_pdist_forward")
def distances_of_pairs(call: Call, x: Any, p: float = 2) -> Any:
    """The distances between each row of a matrix and those after it."""
    first, second = np.triu_indices(int(shape_of(x)[0]), 1)
    rows, others = (call("gather", x, i, hint="rows", axis=0) for i in (first, second))
    return norm(call, call("sub", rows, others, hint="difference"), p, [1])


@aten("cosine_similarity")
def cosine_similarity(
    call: Call, x: Any, y: Any, axis: int = 1, epsilon: float = 1e-8
) -> Any:
    """The product of x and y, each divided by its norm or by epsilon, if that is more."""
    x, y = call.aligned(x, y)
    along = axes_of(call, x, axis)
    shape = np.broadcast_shapes(*((shape_of(v)[along[0]],) for v in (x, y)))
    wide = [
        call.broadcast(v, (*(n for n in shape_of(v)[: along[0]]), *shape,
                           *shape_of(v)[along[0] + 1 :]))
        for v in (x, y)
    ]  # fmt: skip
    normal = [
        call(
            "l2_normalization",
            call.tensor(v),
            hint="normal",
            axes=along,
            epsilon=epsilon,
        )
        for v in wide
    ]
    return reduced(call, "sum_reduce", call("mul", *normal, hint="product"), along)


# ---- Sums of exponentials ----


@aten("logsumexp")
def log_of_sum(call: Call, x: Any, axes: Any, is_kept: bool = False) -> Any:
    """log(sum(exp(x))), without overflow."""
    (x,) = call.scalars(x)
    return log_sum(call, x, axes_of(call, x, axes), is_kept)


def log_sum(call: Call, x: Any, axes: list[int], is_kept: bool = False) -> Any:
    """The same along axes that are known."""
    made = call.expand("log_sum_exp", x, _peak(call, x, axes), axes=axes)
    return without(call, made, axes, is_kept)


def _peak(call: Call, x: Any, axes: list[int]) -> Any:
    """The largest elements: what is subtracted, and has no gradient of its own."""
    return call.stopped(call("max_reduce", x, hint="peak", axes=axes))


@aten("softmax", "_softmax")
def softmax(call: Call, x: Any, axis: int, *_: Any) -> Any:
    """Exponentials, divided by their sum."""
    (x,) = call.scalars(x)
    return call("softmax", x, axes=axes_of(call, x, axis))


@aten("log_softmax", "_log_softmax")
def log_softmax(call: Call, x: Any, axis: int, *_: Any) -> Any:
    """The logarithm of that."""
    (x,) = call.scalars(x)
    along = axes_of(call, x, axis)
    return call.expand("logarithms", x, _peak(call, x, along), axes=along)
