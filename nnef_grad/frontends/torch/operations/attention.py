"""Attention."""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

import numpy as np
import torch

from nnef_grad.frontends.expansions import attention as expansion
from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.random import dropout
from nnef_grad.frontends.values import LARGEST, dtype_of, is_known, shape_of


@aten(
    "scaled_dot_product_attention", "_scaled_dot_product_attention_math",
    "_scaled_dot_product_flash_attention_for_cpu",
)  # fmt: skip
def attention(call: Call, q: Any, k: Any, v: Any, *_: Any) -> Any:
    """softmax(q k^T scale + mask) v, where some weights may be dropped. A row that sees
    nothing is zero. The weights are not returned.
    """
    mask, is_causal, scale = map(call.args.get, ("attn_mask", "is_causal", "scale"))
    is_free = call.args.get("dropout_mask") is None
    call.require(is_free, "a mask for dropout is not supported")
    if call.args.get("enable_gqa", False):
        k, v = (expansion.shared(call, x, shape_of(q)[-3]) for x in (k, v))
    q, k, v = call.aligned(q, k, v)
    rank = len(shape_of(q))
    factor = 1.0 / sqrt(shape_of(q)[-1]) if scale is None else float(scale)
    if is_causal:
        call.require(mask is None, "a causal one has no mask")
        mask = expansion.causal(call, shape_of(q)[-2], shape_of(k)[-2], rank)
    # Infinity is known as long as the mask is as it was given.
    sees = True if mask is None or is_causal else _sees(call, mask)
    seen = False if mask is None else call.of_rank(mask, rank)
    weights = expansion.weights(call, q, k, seen, factor)
    made = call("matmul", dropout(call, weights, call.args["dropout_p"], True), v)
    if sees is not True:
        made = call("select", call.of_rank(sees, rank), made, 0.0)
    return made if isinstance(call.fake, torch.Tensor) else call.alone(made)


def _sees(call: Call, mask: Any) -> Any:
    """Which rows see anything; True if all do. Numbers are added: a row that has nothing
    but negative infinity sees nothing. The largest number stands for it in a graph.
    """
    last = len(shape_of(mask)) - 1
    is_logical = dtype_of(mask) == "logical"
    if is_known(mask):
        array = np.asarray(mask) if is_logical else np.asarray(mask) > -inf
        sees = array.any(axis=last, keepdims=True)
        return True if sees.all() else sees
    if is_logical:
        return call("any_reduce", mask, hint="sees", axes=[last])
    nodes = [call.node.kwargs.get(name) for name in ("attn_mask", "attn_bias")]
    if not call.has_infinity([*call.node.args[3:4], *nodes]):
        return True
    most = call("max_reduce", mask, hint="most", axes=[last])
    return call("gt", most, -LARGEST, hint="sees")
