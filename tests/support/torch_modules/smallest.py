"""The smallest number, by which many mask, and what is infinite: chosen, ordered, compared."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from support.torch_modules import Case, Cases, of

INF, MIN = float("inf"), torch.finfo(torch.float32).min
MASK = torch.tensor([[True, False, True, True], [True] * 4, [False, True, False, True]])
MIXED = torch.tensor(
    [[1.0, MIN, -INF, 3.0], [-INF, 2.0, MIN, -4.0], [MIN, 0.0, 1.0, 0.5]]
)
STARTS = torch.tensor([[MIN, MIN, 1.0, 0.5], [-INF, -INF, MIN, 2.0], [-INF] * 4])


def masked(function: Any, value: float = MIN, **settings: Any) -> Case:
    """The case of scores, some of which are masked by a number, and rows by it alone."""
    return of(
        lambda x: function(x.masked_fill(MASK, value)), lambda r: [r(3, 4)], **settings
    )


def at(function: Any, *values: Any) -> Case:
    return of(function, lambda r: [x.clone() for x in values])


def where(name: str, *operands: float) -> Any:
    """A choice by a function of torch."""
    asked = getattr(torch, name)
    return lambda x: torch.where(asked(x, *operands), 2.0, x.clamp(-9, 9))


def all_of(x: Any, largest: bool = True) -> Any:
    """Each element is chosen once."""
    values, places = x.topk(4, 1, largest=largest)
    return torch.zeros_like(x).scatter_add(1, places, values.clamp(-9, 9) * 2 + 1)


def attention(mask: Any) -> Case:
    """Attention with a mask that is an input."""
    return of(
        F.scaled_dot_product_attention,
        lambda r: [r(1, 2, 3, 4), r(1, 2, 4, 4), r(1, 2, 4, 4), mask.clone()],
    )


class Stored(nn.Module):  # type: ignore[misc]
    """Infinity is in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.zeros(3, 4).masked_fill(MASK, -INF))

    def forward(self, x: Any) -> Any:
        return torch.where(torch.isinf(x + self.mask), 0.0, x)


class Nan(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return torch.where(torch.isnan(x), 0.0, x)


def in_block(x: Any) -> Any:
    with torch.no_grad():
        mask = torch.isneginf(x)
    return torch.where(mask, 0.0, x.clamp(min=-9))


def after_block(x: Any) -> Any:
    with torch.no_grad():
        mask = torch.zeros_like(x).masked_fill(MASK, -INF)
    return torch.where(torch.isinf(mask), 0.0, x)


def attention_after_block(q: Any) -> Any:
    with torch.no_grad():
        mask = torch.zeros(3, 4).masked_fill(MASK & (q[:, :1] < 9), -INF)
    return F.scaled_dot_product_attention(
        q, torch.ones(4, 4) * q[:1], q.new_ones(4, 4).cumsum(0), mask
    )


CASES: Cases = {
    "topk of all": masked(all_of), "topk of all, infinite": masked(all_of, -INF), "topk of all, smallest": masked(
        lambda x: all_of(x, False), -MIN), "topk, mixed": at(lambda x: x.topk(4, 1), MIXED),
        "topk, mixed, smallest": at(lambda x: x.topk(4, 1, largest=False), -MIXED), "topk, 3 of mixed": at(
        lambda x: x.topk(3, 1)[1] * x.sum(0).clamp(-1, 1)[:3], MIXED), "topk, one": at(lambda x: x.topk(1, 1),
        MIXED),
    "sorted": at(lambda x: x.sort(dim=1, stable=True), MIXED), "sorted, descending": at(lambda x: x.sort(dim=1,
        stable=True, descending=True), MIXED), "argsort": at(lambda x: x.argsort(1) * torch.arange(4.0), MIXED),
        "kthvalue": at(lambda x: x.kthvalue(3, 1), MIXED), "median": at(lambda x: x.median(1), MIXED),
        "max along": at(lambda x: x.max(1), MIXED), "max_pool": at(lambda x: F.max_pool1d(x[None], 2, 1),
        MIXED), "norm": at(lambda x: x.norm(p=INF, dim=1), torch.randn(3, 4)),
    "cummax": at(lambda x: x.cummax(1), STARTS), "cummin": at(lambda x: x.cummin(1), -STARTS),
        "cummax along the first axis": at(lambda x: x.cummax(0), STARTS), "cummax of masked": masked(lambda x: x.cummax(
        1)), "logcumsumexp": at(lambda x: x.logcumsumexp(1), torch.tensor([[1.0, MIN, MIN, 2.0], [2.0, -1.0, -INF,
        MIN]])),
    **{f"{name} of {kind}": masked(where(name), value) for name in ("isinf", "isfinite", "isneginf", "isposinf") for kind, value in (("masked", MIN), ("infinite", -INF))},
    **{f"{name} {limit}, {kind}": at(where(name, limit), x * (1 if limit < 0 else -1)) for name in ("eq", "ne",
        "lt", "le", "gt", "ge") for limit in (INF, -INF) for kind, x in (("met", MIXED), ("not met", -MIXED))},
    "eq of written": masked(lambda x: torch.where(x == -INF, 0.0, x), -INF), "isinf of a buffer": Case(Stored,
        lambda r: [r(3, 4)]), "isinf in a block": at(in_block, MIXED), "isinf after a block": of(after_block,
        lambda r: [r(3, 4)]), "attention after a block": of(attention_after_block, lambda r: [r(3, 4)]),
        "isnan of a buffer": Case(lambda: nn.Sequential(Stored(), Nan()), lambda r: [r(3, 4)], refused=
        "infinity"),
    "attention, a masked row": attention(torch.tensor([[0.0, -INF, 1.0, 2.0], [-INF] * 4, [0.5, -1.0, 0.0, 2.0]])),
        "attention, a row of the smallest": attention(torch.tensor([[0.0, MIN, 1.0, -INF], [MIN] * 4, [-INF,
        MIN, -INF, -INF]])), "attention, no masked row": attention(torch.randn(3, 4)),
        "attention, a mask of each head": attention(torch.randn(1, 2, 3, 4).masked_fill(MASK, -INF)),
        "attention, written": of(lambda q, m: F.scaled_dot_product_attention(q, q, q, torch.zeros(3, 3).masked_fill(
        m > 0, -INF)), lambda r: [r(1, 3, 4), r(3, 3)]),
}  # fmt: skip
