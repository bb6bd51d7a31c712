"""Attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.tract.operations import attention as expansion
from nnef_grad.frontends.values import dtype_of, is_known, shape_of


@aten("scaled_dot_product_attention", "_scaled_dot_product_attention_math")
def attention(
    call: Call,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    dropout: float,
    is_causal: bool,
    *settings: Any,
) -> Any:
    """softmax(q k^T scale + mask) v. A row that may see nothing is zero."""
    call.require(dropout == 0.0, "dropout of attention is not supported: set it to 0")
    scale = next((s for s in settings if isinstance(s, float)), 0.0)
    made = expansion.attention(
        call, q, k, v, False if mask is None else mask, scale, "", "", is_causal
    )
    if mask is None or dtype_of(mask) != "logical":
        return made
    wide = call.of_rank(mask, len(shape_of(made)))
    last = len(shape_of(wide)) - 1
    if is_known(wide):
        sees = np.asarray(wide).any(axis=last, keepdims=True)
        return made if sees.all() else call("select", sees, made, 0.0)
    sees = call("any_reduce", wide, hint="sees", axes=[last])
    return call("select", sees, made, 0.0)
