"""Sums, means, extrema, norms, along axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, prod
from typing import Any

import numpy as np

from nnef_grad.frontends.expansions.reductions import product as product_along
from nnef_grad.frontends.expansions.reductions import running_sums
from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.masks import count_of, only_where, selected
from nnef_grad.frontends.torch.selections import OF_DATA, Selection
from nnef_grad.frontends.values import (
    broadcast_shapes,
    dtype_of,
    is_known,
    shape_of,
    simple,
)
from nnef_grad.graph.extents import as_number
from nnef_grad.graph.learning import reaches
from nnef_grad.language.types import LARGEST

# Between more rows than these PyTorch finds distances by a product of matrices.
FEW = 25


def reduced_axes(call: Call, x: Any, axes: Any) -> list[int]:
    """The axes of a reduction; what has no axes is not reduced."""
    rank = len(shape_of(x))
    return call.axes(axes, rank) if rank else []


def asked(call: Call, x: Any) -> tuple[list[int], bool]:
    """The axes of a reduction, all if it names none, and whether they are kept."""
    return reduced_axes(call, x, call.args.get("dim")), call.args.get("keepdim", False)


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
    y = call(name, x, hint=hint, axes=list(axes))
    return without(call, y, axes, is_kept)


def _of_result(call: Call, x: Any) -> Any:
    """The operand as numbers of the data type that a reduction is asked to compute in."""
    is_truncated = dtype_of(x) == "scalar" and call.result_dtype == "integer"
    return call.typed(x, "integer") if is_truncated else call.typed(x, "scalar")


# ---- Sums, products, extrema ----


_REDUCTIONS = {
    "sum": "sum_reduce", "mean": "mean_reduce", "all": "all_reduce", "any": "any_reduce",
    "amax": "max_reduce", "max": "max_reduce", "amin": "min_reduce", "min": "min_reduce",
}  # fmt: skip


@aten(*_REDUCTIONS)
def reduction(call: Call, x: Any, *_: Any) -> Any:
    """A reduction along axes, or of all elements; equal extrema share the gradient."""
    name = _REDUCTIONS[call.packet]
    if name in ("sum_reduce", "mean_reduce"):
        x = _of_result(call, x)
    if name in ("all_reduce", "any_reduce"):
        x = call.typed(x, "logical")
    along, is_kept = asked(call, x)
    if (found := selected(call, along)) is not None:
        return _of_rows(call, x, *found)
    return call.whole(reduced(call, name, x, along, is_kept))


def _of_rows(call: Call, x: Any, selection: Selection, axis: int) -> Any:
    """The sum or the mean along the rows that a mask has taken, and other axes."""
    along, is_kept = asked(call, x)
    call.require(call.packet in ("sum", "mean"), OF_DATA)
    part = only_where(call, x, selection, axis)
    total = reduced(call, "sum_reduce", part, along, is_kept)
    if call.packet == "sum":
        return call.whole(total)
    others = prod(shape_of(x)[other] for other in along if other != axis)
    count = call("mul", count_of(call, selection), float(others), hint="count")
    return call("div", *call.aligned(total, count))


@aten("prod")
def _product(call: Call, x: Any, *_: Any) -> Any:
    if "dim" not in call.args:
        x = call.reshaped(x, [prod(shape_of(x))], "row")
    (x,) = call.scalars(_of_result(call, x))
    along, is_kept = asked(call, x)
    return call.whole(without(call, product_along(call, x, along), along, is_kept))


@aten("argmax", "argmin")
def place(call: Call, x: Any, axis: int | None = None, is_kept: bool = False) -> Any:
    """Where the first one of the largest or the smallest elements is."""
    if not shape_of(x):
        return 0
    if axis is None:
        x, axis = call.reshaped(x, [prod(shape_of(x))], "row"), 0
    name = f"{call.packet}_reduce"
    y = reduced(call, name, x, reduced_axes(call, x, axis), is_kept)
    return call.reshaped(y, call.result_shape)


# ---- Variances ----


@aten("var", "std", "var_mean", "std_mean")
def deviation(call: Call, x: Any, *_: Any) -> Any:
    """The variance, as if there were so many elements less, or its root; and the mean."""
    along, is_kept = asked(call, x)
    correction = call.args.get("correction", call.args.get("unbiased"))
    correction = 1.0 if correction is None else float(correction)
    average, variance = call("moments", x, axes=along)
    if correction:
        size = prod(shape_of(x)[axis] for axis in along)
        is_enough = reaches(size, int(correction) + 1)
        call.require(is_enough, f"there is no variance of {size} elements")
        whole = int(correction) if correction == int(correction) else correction
        ratio = call.ratio(size, size - whole)
        variance = call("mul", variance, ratio, hint="unbiased")
    if call.packet.startswith("std"):
        variance = call.expand("root", variance)
    y = without(call, variance, along, is_kept)
    if not call.packet.endswith("_mean"):
        return y
    return [y, without(call, average, along, is_kept)]


# ---- Norms: their derivative is 0 at 0 ----


@aten("linalg_vector_norm", "norm", "frobenius_norm.dim")
def vector_norm(call: Call, x: Any, *_: Any) -> Any:
    """The root of the sum of powers of sizes: of squares, if there is no exponent."""
    p = call.args.get("ord", call.args.get("p"))
    return norm(call, x, 2 if p is None else p, *asked(call, x))


def norm(
    call: Call, x: Any, p: float, axes: Sequence[int], is_kept: bool = False
) -> Any:
    """The norm along axes that are known."""
    call.require(p >= 0 or p == -inf, f"there is no norm with the exponent {p}")
    y = call.expand("norm", x, axes=list(axes), p=float(p))
    return without(call, y, axes, is_kept)


# ---- Distances ----


@aten("dist")
def _distance(call: Call, x: Any, y: Any, p: float = 2) -> Any:
    difference = call("sub", *call.aligned(x, y), hint="difference")
    return norm(call, difference, p, reduced_axes(call, difference, None))


@aten("cdist", "_cdist_forward")
def _distances(
    call: Call, x: Any, y: Any, p: float = 2, mode: int | None = None
) -> Any:
    x, y = call.aligned(x, y)
    rank, counts = len(shape_of(x)), (shape_of(x)[-2], shape_of(y)[-2])
    is_small = all(isinstance(n, int) and n <= FEW for n in counts)
    if p == 2 and (mode == 1 or (mode != 2 and not is_small)):
        order = [*range(rank - 2), rank - 1, rank - 2]
        return call.expand("distances", x, y, axis=rank - 1, order=order)
    rows = call("unsqueeze", x, hint="rows", axes=[rank - 1])
    columns = call("unsqueeze", y, hint="columns", axes=[rank - 2])
    difference = call("sub", rows, columns, hint="difference")
    return norm(call, difference, p, [rank])


@aten("pdist", "_pdist_forward")
def _distances_of_pairs(call: Call, x: Any, p: float = 2) -> Any:
    first, second = np.triu_indices(int(shape_of(x)[0]), 1)
    rows, others = (call("gather", x, i, hint="rows", axis=0) for i in (first, second))
    return norm(call, call("sub", rows, others, hint="difference"), p, [1])


@aten("cosine_similarity")
def cosine_similarity(
    call: Call, x: Any, y: Any, axis: int = 1, epsilon: float = 1e-8
) -> Any:
    """The product of x and y, each divided by its norm or by epsilon, if that is more."""
    x, y = (call.reshaped(v, shape_of(v) or [1]) for v in call.aligned(x, y))
    along = reduced_axes(call, x, axis)
    (extent,) = broadcast_shapes(*((shape_of(v)[along[0]],) for v in (x, y)))
    normal = []
    for v in (x, y):
        shape = [extent if [a] == along else n for a, n in enumerate(shape_of(v))]
        wide = call.tensor(call.broadcast(v, tuple(shape)))
        settings: dict[str, Any] = {"axes": along, "epsilon": epsilon}
        normal.append(call("l2_normalization", wide, hint="normal", **settings))
    return reduced(call, "sum_reduce", call("mul", *normal, hint="product"), along)


# ---- Sums of exponentials ----


@aten("logsumexp")
def _log_of_sum(call: Call, x: Any, *_: Any) -> Any:
    (x,) = call.scalars(x)
    return log_sum(call, x, *asked(call, x))


def log_sum(call: Call, x: Any, axes: list[int], is_kept: bool = False) -> Any:
    """log(sum(exp(x))) along axes, without overflow."""
    y = call.expand("log_sum_exp", x, _peak(call, x, axes), axes=axes)
    return without(call, y, axes, is_kept)


def _peak(call: Call, x: Any, axes: list[int]) -> Any:
    """The largest elements: what is subtracted, and has no gradient of its own."""
    return call.stopped(call("max_reduce", x, hint="peak", axes=axes))


@aten("softmax", "_softmax")
def _softmax(call: Call, x: Any, axis: int, *_: Any) -> Any:
    (x,) = call.scalars(x)
    return call("softmax", x, axes=reduced_axes(call, x, axis))


@aten("log_softmax", "_log_softmax")
def _log_softmax(call: Call, x: Any, axis: int, *_: Any) -> Any:
    (x,) = call.scalars(x)
    along = reduced_axes(call, x, axis)
    return call.expand("logarithms", x, _peak(call, x, along), axes=along)


# ---- Accumulation along an axis ----
#
# A sum is that of a window that ends at the element. Otherwise elements are combined with
# those 1, 2, 4, ... places before them.


@aten("cumsum")
def _sums(call: Call, x: Any, axis: int) -> Any:
    x = call.typed(x, call.result_dtype)
    if not shape_of(x):
        return x
    (along,) = reduced_axes(call, x, axis)
    if is_known(x):
        return simple(np.cumsum(np.asarray(x), along))
    (scalars,) = call.scalars(x)
    return running_sums(call, scalars, along, call.result_dtype)


@aten("cumprod")
def _products(call: Call, x: Any, axis: int) -> Any:
    (y,) = call.scalars(call.typed(x, call.result_dtype))
    for padding in _shifts(call, y, axis):
        before = call("pad", y, hint="before", padding=padding, value=1.0)
        y = call("mul", y, before, hint="products")
    return call.whole(y)


@aten("cummax", "cummin")
def extrema(call: Call, x: Any, axis: int) -> Sequence[Any]:
    """The extrema of the elements up to each one; the last of equal ones counts."""
    if not shape_of(x):
        return x, 0
    (along,) = reduced_axes(call, x, axis)
    (y,) = call.scalars(x)
    indices = call.positions(shape_of(x)[along], along, len(shape_of(x)))
    row = [-1 if a == along else 1 for a in range(len(shape_of(x)))]
    for padding in _shifts(call, y, axis):
        settings = {"padding": padding, "is_largest": "max" in call.name}
        places = np.arange(as_number(shape_of(x)[along])).reshape(row)
        has_before = places >= padding[along][0]
        indices, y = call.expand("extrema_so_far", y, indices, has_before, **settings)
    values = call.whole(y)
    return values, call.whole(call.broadcast(indices, shape_of(y)), "integer")


def _shifts(call: Call, x: Any, axis: int) -> Iterator[list[tuple[int, int]]]:
    """Paddings that move elements by 1, 2, 4, ... places."""
    for along in reduced_axes(call, x, axis):
        step = 1
        while step < shape_of(x)[along]:
            axes = range(len(shape_of(x)))
            yield [(step, -step) if a == along else (0, 0) for a in axes]
            step *= 2


@aten("logcumsumexp")
def _logarithms(call: Call, x: Any, axis: int) -> Any:
    for along in reduced_axes(call, x, axis):
        extent, rank = shape_of(x)[along], len(shape_of(x))
        row = call("unsqueeze", x, hint="row", axes=[along])
        last, places = (call.positions(extent, a, rank + 1) for a in (along, along + 1))
        is_before = call("le", places, last, hint="is_before")
        terms = call("select", is_before, row, -LARGEST, hint="terms")
        peak, axes = _peak(call, terms, [along + 1]), [along + 1]
        x = call.expand("log_sum_exp_before", terms, is_before, peak, axes=axes)
        x = without(call, x, axes, False)
    return x


# ---- Losses: those of classes and pairs are read as PyTorch decomposes them ----

# How PyTorch numbers what becomes of losses.
_OF_LOSSES = {1: "mean_reduce", 2: "sum_reduce"}


@aten("soft_margin_loss", "binary_cross_entropy")
def loss(call: Call, x: Any, target: Any, *settings: Any) -> Any:
    """A loss, with a weight for the elements of some. The logarithms of probabilities are
    at least -100: where one is less, it has no gradient.
    """
    *weights, reduction = settings or (1,)
    y = call.expand(call.packet, *call.aligned(*call.scalars(x, target)))
    if weights and weights[0] is not None:
        y = call("mul", *call.aligned(y, weights[0]), hint="weighted")
    if not reduction:
        return y
    return reduced(call, _OF_LOSSES[reduction], y, reduced_axes(call, y, None))
