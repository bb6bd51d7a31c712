"""Attention, as products and a softmax."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from nnef_grad.frontends.step import Step, expansion
from nnef_grad.frontends.values import LARGEST, dtype_of, shape_of


@expansion("tract_transformers_sdpa")
def attention(
    step: Step,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    scale: float,
    datum_type: str,
    acc_datum_type: str,
    is_causal: bool,
) -> Any:
    """softmax(q k^T scale + mask) v. Several heads of q may share one of k and v."""
    shape = shape_of(q)
    step.require(not (is_causal and mask is not False), "a causal one has no mask")
    k, v = (_shared(step, x, shape) for x in (k, v))
    factor = scale if scale != 0.0 else 1.0 / sqrt(shape[-1])
    products = step("matmul", q, k, hint="products", transposeB=True)
    scores = step("mul", products, factor, hint="scores")
    if is_causal:
        rows, columns = np.indices(shape_of(scores)[-2:])
        mask = (columns <= rows).reshape((1,) * (len(shape) - 2) + rows.shape)
    if mask is not False:
        scores = _masked(step, scores, mask)
    weights = step("softmax", scores, hint="weights", axes=[len(shape) - 1])
    return step("matmul", weights, v)


def _shared(step: Step, x: Any, shape: tuple[int, ...]) -> Any:
    """Each head of k or v as often as there are heads of q for it."""
    rank = len(shape)
    *batch, heads, rows, columns = 1, *shape_of(x)
    if rank < 4 or heads == shape[-3]:
        return x
    times, rest = divmod(shape[-3], heads)
    step.require(rest == 0, f"{shape[-3]} heads cannot share {heads}")
    wide = step("unsqueeze", x, hint="heads", axes=[rank - 2])
    repeats = [times if axis == rank - 2 else 1 for axis in range(rank + 1)]
    tiled = step("tile", wide, hint="shared", repeats=repeats)
    return step.reshaped(tiled, [*batch[1:], shape[-3], rows, columns])


def _masked(step: Step, scores: Any, mask: Any) -> Any:
    """Scores with a mask: truth values say what is seen, numbers are added."""
    mask = step.of_rank(mask, len(shape_of(scores)))
    if dtype_of(mask) == "logical":
        return step("select", mask, scores, -LARGEST, hint="masked")
    return step("add", scores, mask, hint="masked")


@expansion("tract_transformers_scaled_masked_softmax")
def masked_softmax(
    step: Step, x: Any, mask: Any, scale: float, post_softmax_mask: bool
) -> Any:
    """softmax(x scale + mask), with zeros where nothing is seen if that is wanted."""
    rank = len(shape_of(x))
    scores = step("mul", x, scale, hint="scores")
    made = step("softmax", _masked(step, scores, mask), axes=[rank - 1])
    if not post_softmax_mask:
        return made
    step.require(dtype_of(mask) == "logical", "the mask must be of truth values")
    return step("select", step.of_rank(mask, rank), made, 0.0)


@expansion("tract_transformers_apply_rope")
def rotary_embedding(step: Step, x: Any, cos: Any, sin: Any) -> Any:
    """x cos + (-b, a) sin, where a and b are the halves of x along its last axis."""
    axis = len(shape_of(x)) - 1
    half, rest = divmod(shape_of(x)[axis], 2)
    step.require(rest == 0, "the last extent must be even")
    a = step("slice", x, hint="a", axes=[axis], begin=[0], end=[half])
    b = step("slice", x, hint="b", axes=[axis], begin=[half], end=[2 * half])
    turned = step("concat", [step("neg", b), a], hint="turned", axis=axis)
    cos, sin = (step.of_rank(value, axis + 1) for value in (cos, sin))
    kept = step("mul", x, cos, hint="kept")
    return step("add", kept, step("mul", turned, sin, hint="moved"))
