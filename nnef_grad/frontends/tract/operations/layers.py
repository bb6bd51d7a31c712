"""Convolutions, pools, products, resizing and attention, as tract has them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod, sqrt
from typing import Any

from nnef_grad.frontends.expansions import products, resizing
from nnef_grad.frontends.expansions.products import contract
from nnef_grad.frontends.tract.evaluation import expansion
from nnef_grad.frontends.values import dtype_of, shape_of
from nnef_grad.frontends.view import View
from nnef_grad.graph.extents import Dimension
from nnef_grad.language.library import STDLIB


def _settings(view: View, values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(STDLIB[view.name].attribute_names, values, strict=True))


@expansion("conv")
def conv(view: View, x: Any, weight: Any, bias: Any, *values: Any) -> Any:
    """A convolution, with the channels of the bias where the standard has them."""
    return view("conv", x, weight, _row(view, bias), **_settings(view, values))


@expansion("deconv")
def deconv(view: View, x: Any, weight: Any, bias: Any, *values: Any) -> Any:
    """A transposed convolution, whose filter is that of the convolution."""
    settings = _settings(view, values)
    shape = list(settings["output_shape"])
    if len(shape) == len(shape_of(x)) - 2:
        settings["output_shape"] = [shape_of(x)[0], shape_of(weight)[0], *shape]
    turned = _turned(view, weight, settings["groups"] or shape_of(weight)[0])
    return view("deconv", x, turned, _row(view, bias), **settings)


def _turned(view: View, weight: Any, groups: Dimension) -> Any:
    """The filter [out, in / groups, ...] as [in, out / groups, ...]."""
    view.require(len(shape_of(weight)) >= 2, "the filter must have rank 2 at least")
    y, given, *size = shape_of(weight)
    view.require(y % groups == 0, f"{groups} groups do not divide {y} channels")
    if groups == 1:
        return view.transposed(weight, [1, 0, *range(2, 2 + len(size))], "filter")
    if given == 1 and y == groups:
        return weight
    # The spatial axes go as one, as where the dialect is written.
    shape = [groups, y // groups, given, prod(size)]
    parts = view.reshaped(weight, shape, "groups")
    moved = view.transposed(parts, [0, 2, 1, 3], "exchanged")
    return view.reshaped(moved, [groups * given, y // groups, *size], "filter")


def _row(view: View, bias: Any) -> Any:
    """The bias as a row of channels; a single number stays."""
    shape = shape_of(bias)
    several = [extent for extent in shape if extent > 1]
    if not shape or (len(shape) == 2 and shape[0] == 1):
        return bias
    view.require(len(several) < 2, f"the bias of shape {list(shape)} is not a row")
    return view.reshaped(bias, [1, *(several or [1])], "bias")


@expansion("max_pool", "max_pool_with_index")
def max_pool(view: View, x: Any, *values: Any) -> Any:
    """A maximum over what is there, whatever the border is called."""
    settings = _settings(view, values)
    if settings["border"] == "constant":
        settings["border"] = "ignore"
    return view(view.name, x, **settings)


@expansion("tract_core_scaled_rms_norm")
def scaled_rms_norm(
    view: View, x: Any, scale: Any, axis: int, eps: float, out_dt: str
) -> Any:
    """x / sqrt(mean(x ^ 2) + eps) along an axis, times a number for each place on it."""
    rank, shape = len(shape_of(x)), shape_of(scale)
    is_one_each = shape == shape_of(x)[axis : axis + 1]
    view.require(
        is_one_each, f"the scale of shape {list(shape)} is not for axis {axis}"
    )
    others = [place for place in range(rank) if place != axis]
    row = view("unsqueeze", scale, hint="scale", axes=others) if others else scale
    normal = view.expand("tract_core_rms_norm", x, axis=axis, eps=eps)
    return view("mul", normal, row)


# ---- Products ----


@expansion("linear")
def linear(view: View, x: Any, weight: Any, bias: Any) -> Any:
    """A linear layer, for operands of more than two axes on one matrix of rows."""
    shape = shape_of(x)
    if len(shape) <= 2 or len(shape_of(weight)) < 2:
        return view("linear", x, weight, bias)
    *batch, out, inner = shape_of(weight)
    bias_shape = shape_of(bias)
    is_row = not bias_shape or bias_shape == (*(1,) * (len(shape) - 1), out)
    is_one = {*batch} <= {1} and is_row and len(shape) == len(batch) + 2
    if not is_one:
        return view("add", view("matmul", x, weight, transposeB=True), bias)
    rows = view.reshaped(x, [prod(shape[:-1]), inner], "rows")
    matrix = view("squeeze", weight, hint="matrix", axes=list(range(len(batch))))
    row = view.reshaped(bias, [1, out], "bias") if bias_shape else bias
    flat = view("linear", rows, matrix, row, hint="flat")
    return view.reshaped(flat, [*shape[:-1], out])


@expansion("tract_core_einsum")
def einsum(
    view: View, operands: Sequence[Any], expr: str, acc: str, output: str
) -> Any:
    """Multiplies the operands from left to right, as batches of matrices. An axis of the
    result alone has extent 1.
    """
    given, arrow, result = expr.partition("->")
    new = [axis for axis, letter in enumerate(result) if letter not in given]
    if not arrow or not new:
        return contract(view, operands, expr)
    kept = "".join(letter for letter in result if letter in given)
    product = contract(view, operands, f"{given}->{kept}")
    return view("unsqueeze", product, axes=new)


# ---- Resizing ----


@expansion("tract_core_resize")
def resize(
    view: View,
    x: Any,
    scales: list[float],
    sizes: list[int],
    places: str,
    mode: str,
    rounding: str,
) -> Any:
    """Standard upsampling or downsampling if possible, otherwise a product with a known
    matrix for each axis.
    """
    how = resizing.Resizing(places, mode, rounding)
    lists: list[Collection[str]] = [resizing.PLACES, resizing.MODES, resizing.ROUNDED]
    for value, choices in zip(how[:3], lists, strict=True):
        names = ", ".join(choices)
        view.require(value in choices, f"there is no '{value}': it is one of {names}")
    axes = resizing.resized_axes(view, shape_of(x), scales, sizes)
    if places == "align_corners":
        is_exact = all(axis.is_exact for axis in axes)
        view.require(is_exact, "corners are aligned by extents, or by exact scales")
    return resizing.resized(view, x, axes, how)


@expansion("tract_onnx_resize")
def onnx_resize(
    view: View, x: Any, scales: list[float], roi: list[float], *settings: Any
) -> Any:
    """The older name, without extents."""
    view.require(not roi, "the coordinates must not be cropped")
    return resize(view, x, scales, [], *settings)


# ---- Attention ----


@expansion("tract_transformers_sdpa")
def attend(
    view: View,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    scale: float,
    datum_type: str,
    acc_datum_type: str,
    is_causal: bool,
) -> Any:
    """softmax(q k^T scale + mask) v. Several heads of q may share a head of k and v."""
    shape = shape_of(q)
    view.require(not (is_causal and mask is not False), "a causal one has no mask")
    if len(shape) >= 4:
        k, v = (products.shared(view, x, shape[-3]) for x in (k, v))
    factor = scale if scale != 0.0 else 1.0 / sqrt(shape[-1])
    if is_causal:
        mask = products.causal(view, shape[-2], shape_of(k)[-2], len(shape))
    return view("matmul", products.weights(view, q, k, mask, factor), v)


@expansion("tract_transformers_scaled_masked_softmax")
def masked_softmax(
    view: View, x: Any, mask: Any, scale: float, post_softmax_mask: bool
) -> Any:
    """softmax(x scale + mask), optionally with zeros where everything is masked."""
    rank = len(shape_of(x))
    scores = view("mul", x, scale, hint="scores")
    chances = view("softmax", products.masked(view, scores, mask), axes=[rank - 1])
    if not post_softmax_mask:
        return chances
    view.require(dtype_of(mask) == "logical", "the mask must be of truth values")
    return view("select", view.of_rank(mask, rank), chances, 0.0)


@expansion("tract_transformers_apply_rope")
def rotary_embedding(view: View, x: Any, cos: Any, sin: Any) -> Any:
    """x cos + (-b, a) sin, where a and b are the halves of x along its last axis."""
    axis = len(shape_of(x)) - 1
    half, rest = divmod(shape_of(x)[axis], 2)
    view.require(rest == 0, "the last extent must be even")
    a = view.piece(x, axis, 0, half, "a")
    b = view.piece(x, axis, half, 2 * half, "b")
    turned = view("concat", [view("neg", b), a], hint="turned", axis=axis)
    cos, sin = (view.of_rank(value, axis + 1) for value in (cos, sin))
    kept = view("mul", x, cos, hint="kept")
    return view("add", kept, view("mul", turned, sin, hint="moved"))
