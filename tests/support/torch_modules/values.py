"""What depends on the values of tensors: an error with its line, or right for all values."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from support.torch_modules import Case, Cases, of


def branch(x: Any) -> Any:
    if x.sum() > 0:
        return x
    return -x


def loop(x: Any) -> Any:
    while x.norm() > 1:
        x = x / 2
    return x


def early_exit(x: Any) -> Any:
    for _ in range(3):
        if (x > 2).any():
            break
        x = x * 2
    return x


def array(x: Any) -> Any:
    return x * float(x.detach().numpy().max())


def listed(x: Any) -> Any:
    return x * sum(x.tolist())


def counted(x: Any) -> Any:
    n = int((x > 0).sum())
    return x[:n]


def by_cond(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() * 2, (x,))


class ByParameter(nn.Module):  # type: ignore[misc]
    """A branch on a parameter is one on data, too."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Any) -> Any:
        return x * self.gate if self.gate > 0 else x


class BySetting(nn.Module):  # type: ignore[misc]
    """A branch on a number of Python is none."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0

    def forward(self, x: Any) -> Any:
        return x * self.scale if self.scale > 1 else x


class ByShape(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x.sum(0) if x.shape[0] > 2 else x.mean(0)


class ByMode(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x * 2 if self.training else x * 3


DATA = "torch cannot export|data-dependent|depends on"

CASES: Cases = {
    "a branch": of(branch, lambda r: [r(3)]),
    "a while loop": of(loop, lambda r: [r(3)], refused=DATA),
    "an early exit": of(early_exit, lambda r: [r(3)]),
    "numpy": of(array, lambda r: [r(3)], refused=DATA),
    "tolist": of(listed, lambda r: [r(3)]),
    "a number of rows": of(counted, lambda r: [r(3)], refused=DATA),
    "a parameter": Case(ByParameter, lambda r: [r(3)]),
    "nonzero": of(lambda x: x[torch.nonzero(x > 0)].sum(), lambda r: [r(3)], refused=DATA + "|would depend"),
    "masked_select": of(lambda x: x.masked_select(x > 0).sum(), lambda r: [r(3)]),
    "a mask as an index": of(lambda x: x[x > 0].sum(), lambda r: [r(3)]),
    "unique": of(lambda x: x * torch.unique(x).shape[0], lambda r: [r(3)], refused=DATA + "|unique"),
    "bool of a tensor": of(lambda x: x if bool((x > 0).all()) else -x, lambda r: [r(3)]),
    "torch.cond": of(by_cond, lambda r: [r(3)]),
    "torch.where": of(lambda x: torch.where(x.sum() > 0, x, -x), lambda r: [r(3)]),
    "a number that is read": of(lambda x: x * x.max().item(), lambda r: [r(3)]),
    "an output without elements": of(lambda x: (x.new_zeros(0), x * 2), lambda r: [r(3)]),
    "tensors of one shape": of(lambda x: torch.ops.aten.broadcast_tensors([x, x[:1].sin()])[1] * x, lambda r: [r(3, 2)]),
    "a setting": Case(BySetting, lambda r: [r(3)]),
    "a shape": Case(ByShape, lambda r: [r(3, 2)]),
    "the mode, eval": Case(ByMode, lambda r: [r(3)]),
    "the mode, train": Case(ByMode, lambda r: [r(3)], trains=True),
    "random numbers": of(lambda x: x + torch.randn(3), lambda r: [r(3)]),
    "random numbers like": of(lambda x: x * torch.rand_like(x), lambda r: [r(3)]),
    "bernoulli": of(lambda x: x * torch.bernoulli(torch.full((3,), 0.5)), lambda r: [r(3)]),
    "multinomial": of(lambda x: x[torch.multinomial(x.softmax(0), 1)], lambda r: [r(3)]),
    "noise as an input": of(lambda m, s, n: m + s.exp() * n, lambda r: [r(3), r(3), r(3)]),
    "assert of a shape": of(lambda x: (torch._check(x.shape[0] == 3), x * 2)[1], lambda r: [r(3)]),
    "complex numbers": of(lambda x: torch.fft.fft(x).abs(), lambda r: [r(4)]),
    "sparse": of(lambda x: torch.sparse.mm(x.to_sparse(), x), lambda r: [r(3, 3)], refused="sparse|torch cannot export|there is no operation"),
}  # fmt: skip
