"""Attention, as products and a softmax."""

from __future__ import annotations

from typing import Any

from nnef_grad.frontends.step import Step
from nnef_grad.frontends.values import LARGEST, dtype_of, shape_of


def weights(step: Step, q: Any, k: Any, mask: Any, factor: float) -> Any:
    """softmax(q k^T factor + mask); the mask is False if there is none."""
    products = step("matmul", q, k, hint="products", transposeB=True)
    scores = step("mul", products, factor, hint="scores")
    if mask is not False:
        scores = masked(step, scores, mask)
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


def masked(step: Step, scores: Any, mask: Any) -> Any:
    """Scores with a mask: truth values say what is seen, numbers are added."""
    mask = step.of_rank(mask, len(shape_of(scores)))
    if dtype_of(mask) == "logical":
        return step("select", mask, scores, -LARGEST, hint="masked")
    return step("add", scores, mask, hint="masked")
