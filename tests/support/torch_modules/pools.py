"""The places of maxima, and what is put back there."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from support.torch_modules import Case, Cases, of


class Segmented(nn.Module):  # type: ignore[misc]
    """An encoder, and a decoder that puts features where the maxima were (SegNet)."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2)
        self.encode, self.decode = (nn.Conv2d(2, 2, 3, padding=1) for _ in "ed")
        self.inner = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x: Any) -> Any:
        h = torch.tanh(self.encode(x))
        first, places = self.pool(h)
        second, inner = self.pool(self.inner(first))
        y = self.unpool(torch.tanh(second), inner, output_size=first.size())
        return self.decode(self.unpool(y * first, places, output_size=h.size()))


def back(x: Any, n: int, size: Any = 2, **settings: Any) -> Any:
    """Pools along so many axes, and puts twice of what is left back to its places."""
    pool, unpool = (getattr(F, f"{name}{n}d") for name in ("max_pool", "max_unpool"))
    y, places = pool(x, size, return_indices=True, **settings)
    del settings["ceil_mode"]
    return unpool(y * 2, places, size, output_size=x.shape[-n:], **settings)


def full(x: Any, n: int, **settings: Any) -> Any:
    return back(x, n, ceil_mode=False, **settings)


def steps(r: Any) -> Any:
    """Few different numbers: many maxima are there several times."""
    return [r.ints(3, 2, 5, 7).float()]


def apart(x: Any, places: Any) -> Any:
    return F.max_unpool2d(x, places, 2)


CASES: Cases = {
    "a segmentation": Case(Segmented, lambda r: [r(1, 2, 7, 8)]),
    "steps": of(lambda x: full(x, 1), lambda r: [r(2, 3, 7)]),
    "planes": of(lambda x: full(x, 2), lambda r: [r(2, 3, 4, 6)]),
    "one plane": of(lambda x: full(x, 2, size=(1, 3)), lambda r: [r(3, 4, 7)]),
    "volumes": of(lambda x: full(x, 3), lambda r: [r(1, 2, 4, 5, 2)]),
    "rounded up": of(lambda x: back(x, 2, ceil_mode=True), lambda r: [r(1, 2, 5, 7)]),
    "padded": of(lambda x: full(x, 2, size=3, padding=1), lambda r: [r(1, 2, 6, 6)]),
    "gaps": of(lambda x: full(x, 2, stride=3), lambda r: [r(1, 2, 6, 8)]),
    "equal maxima": of(lambda x: full(x, 2), steps),
    "places": of(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), lambda r: [r(1, 2, 5, 7)]),
    "places, dilated": of(lambda x: F.max_pool2d(x, 2, 1, 1, 2, True, return_indices=True), steps),
    "places, adaptive": of(lambda x: F.adaptive_max_pool2d(x, (2, 3), return_indices=True), lambda r: [r(1, 2, 4, 6)]),
    "gathered at places": of(lambda x, y: y.flatten(2).gather(2, F.max_pool2d(x, 2, return_indices=True)[1].flatten(2)), lambda r: [r(1, 2, 4, 6), r(1, 2, 4, 6)]),
    "overlap": of(lambda x: full(x, 2, size=3, stride=2), lambda r: [r(1, 2, 7, 7)], refused="windows overlap"),
    "another size": of(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), lambda r: [r(1, 2, 5, 7)], refused="output_size must be"),
    "places from outside": of(apart, lambda r: [r(1, 1, 2, 2), torch.tensor([[[[0, 2], [9, 15]]]])], refused="those of a max_pool"),
}  # fmt: skip
