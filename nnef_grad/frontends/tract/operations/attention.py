"""Attention, as products and a softmax."""

from __future__ import annotations

from math import sqrt
from typing import Any

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
    """softmax(q k^T scale + mask) v. Several heads of q may share a head of k and v."""
    shape = shape_of(q)
    step.require(not (is_causal and mask is not False), "a causal one has no mask")
    if len(shape) >= 4:
        k, v = (shared(step, x, shape[-3]) for x in (k, v))
    factor = scale if scale != 0.0 else 1.0 / sqrt(shape[-1])
    if is_causal:
        mask = causal(step, shape[-2], shape_of(k)[-2], len(shape))
    return step("matmul", weights(step, q, k, mask, factor), v)


def weights(step: Step, q: Any, k: Any, mask: Any, factor: float) -> Any:
    """softmax(q k^T factor + mask); the mask is False if there is none."""
    products = step("matmul", q, k, hint="products", transposeB=True)
    scores = step("mul", products, factor, hint="scores")
    if mask is not False:
        scores = _masked(step, scores, mask)
    return step("softmax", scores, hint="weights", axes=[len(shape_of(scores)) - 1])


def causal(step: Step, rows: int, columns: int, rank: int) -> Any:
    """The mask of what each row sees: as many columns as rows before it, and one."""
    places = (rows, rank - 2), (columns, rank - 1)
    return step("ge", *(step.positions(*p, rank) for p in places), hint="mask")


def shared(step: Step, x: Any, heads: int) -> Any:
    """Each head of k or v as often as there are heads of q for it."""
    *batch, own, rows, columns = shape_of(x)
    if own in (1, heads):
        return x
    times, rest = divmod(heads, own)
    step.require(rest == 0, f"{heads} heads cannot share {own}")
    axis = len(batch) + 1
    wide = step("unsqueeze", x, hint="heads", axes=[axis])
    repeats = [times if a == axis else 1 for a in range(axis + 3)]
    tiled = step("tile", wide, hint="shared", repeats=repeats)
    return step.reshaped(tiled, [*batch, heads, rows, columns])


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
    """softmax(x scale + mask), optionally with zeros where everything is masked."""
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
    a = step.piece(x, axis, 0, half, "a")
    b = step.piece(x, axis, half, 2 * half, "b")
    turned = step("concat", [step("neg", b), a], hint="turned", axis=axis)
    cos, sin = (step.of_rank(value, axis + 1) for value in (cos, sin))
    kept = step("mul", x, cos, hint="kept")
    return step("add", kept, step("mul", turned, sin, hint="moved"))
