"""A mixture of experts: layers of which each row takes some."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from nnef_grad.frontends.expansions import orders, selection
from nnef_grad.frontends.expansions.products import masked
from nnef_grad.frontends.tract.evaluation import expansion
from nnef_grad.frontends.values import shape_of
from nnef_grad.frontends.view import View


@expansion("tract_moe_ffn")
def mixture(
    view: View,
    x: Any,
    wg: Any,
    w1: Any,
    w2: Any,
    w3: Any,
    wg_bias: Any,
    w1_bias: Any,
    w3_bias: Any,
    w2_bias: Any,
    k: int,
    activation: str,
    gate: str,
    act_alpha: float,
    act_limit: float,
    expert_layout: str,
) -> Any:
    """The results of the k experts of each row that its products with wg choose, times weights
    from these. All experts are computed for all rows.
    """
    view.require(gate in _GATES, f"there is no gate '{gate}'")
    view.require(activation in _ACTIVATIONS, f"there is no activation '{activation}'")
    view.require(expert_layout in _IS_TURNED, f"there is no layout '{expert_layout}'")
    layer = partial(_layer, view, is_turned=_IS_TURNED[expert_layout])
    *batch, width = shape_of(x)
    rows = view.reshaped(x, [prod(batch), width], "rows")
    router = view.reshaped(wg, shape_of(wg)[-2:], "router")
    scores = view("matmul", rows, router, hint="scores", transposeB=True)
    if wg_bias is not False:
        row = view("unsqueeze", wg_bias, hint="bias", axes=[0])
        scores = view("add", scores, row, hint="scores")
    chosen = _chosen(view, scores, k)
    shares = view(
        "select", chosen, _GATES[gate](view, scores, chosen), 0.0, hint="shares"
    )
    each = view("unsqueeze", rows, hint="each", axes=[0])
    hidden, up = layer(each, w1, w1_bias), None
    if w3 is not False:
        up = layer(each, w3, w3_bias)
    hidden = _activated(view, activation, hidden, up, act_alpha, act_limit)
    made = layer(hidden, w2, w2_bias)
    # What is not chosen may be infinite.
    taken, parts = (
        view("unsqueeze", view.transposed(x, [1, 0]), hint="part", axes=[2])
        for x in (chosen, shares)
    )
    kept = view("select", taken, made, 0.0, hint="kept")
    terms = view("mul", kept, parts, hint="terms")
    total = view("sum_reduce", terms, hint="sum", axes=[0])
    return view.reshaped(view("squeeze", total, axes=[0]), shape_of(x))


def _layer(view: View, x: Any, weight: Any, bias: Any, *, is_turned: bool) -> Any:
    """The products of all rows with the matrix of each expert."""
    product = view("matmul", x, weight, hint="products", transposeB=is_turned)
    if bias is False:
        return product
    row = view("unsqueeze", bias, hint="bias", axes=[1])
    return view("add", product, row, hint="products")


def _chosen(view: View, scores: Any, k: int) -> Any:
    """[rows, experts]: whether an expert is one of the k with the largest scores."""
    _, places = orders.largest(view, scores, k, 1, True)
    hits = selection.one_hot(view, places, 2, shape_of(scores)[1], 0.0, 1.0)
    count = view("squeeze", view("sum_reduce", hits, axes=[1]), axes=[1])
    return view("gt", count, 0.5, hint="chosen")


def _activated(
    view: View, name: str, x: Any, up: Any, alpha: float, limit: float
) -> Any:
    if limit:
        view.require(up is not None, "a limit is of two products, and w3 is not there")
        settings = {"alpha": alpha, "limit": limit}
        return view.expand("tract_core_clamped_swiglu", x, up, **settings)
    view.require(name != "swiglu" or up is not None, "swiglu needs w3")
    made = _ACTIVATIONS[name](view, x)
    return made if up is None else view("mul", made, up, hint="gated")


# The weights of experts from their scores.
_GATES: dict[str, Callable[[View, Any, Any], Any]] = {
    "softmax_topk": lambda view, scores, chosen: view(
        "softmax", masked(view, scores, chosen), axes=[1]
    ),
    "softmax_all": lambda view, scores, chosen: view("softmax", scores, axes=[1]),
    "sigmoid": lambda view, scores, chosen: view("sigmoid", scores),
    "raw": lambda view, scores, chosen: scores,
}
_ACTIVATIONS: dict[str, Callable[[View, Any], Any]] = {
    "silu": lambda view, x: view("silu", x),
    "swiglu": lambda view, x: view("silu", x),
    "gelu": lambda view, x: view.expand("tract_core_gelu_approx", x),
    "relu": lambda view, x: view("relu", x),
}
_IS_TURNED = {"canonical": False, "linear": True}
