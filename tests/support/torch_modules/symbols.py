"""Axes that stay open: one graph for several sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from support.torch_modules import Case, Cases
from support.torch_modules import networks as nets

B, S = Dim("B"), Dim("S")


class Applied(nn.Module):  # type: ignore[misc]
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def open_batch(module: Any, *shape: int) -> Case:
    """The first axis is open: the examples have 3, fresh inputs 3 + seed."""
    return Case(module, lambda r: [r(3 + r.generator.initial_seed() % 5, *shape)],
                options={"dynamic_shapes": ({0: B},)})  # fmt: skip


def open_function(function: Any, *shape: int) -> Case:
    return Case(lambda: Applied(function), lambda r: [r(3 + r.generator.initial_seed() % 5, *shape)],
                options={"dynamic_shapes": {"x": {0: B}}})  # fmt: skip


def open_length(function: Any, *shape: int) -> Case:
    """Batch and length are open."""

    def inputs(r: Any) -> Any:
        more = r.generator.initial_seed() % 4
        return [r(2 + more, 5 - more % 2, *shape)]

    return Case(
        lambda: Applied(function),
        inputs,
        options={"dynamic_shapes": {"x": {0: B, 1: S}}},
    )


def closed(function: Any, *shape: int) -> Case:
    return replace(open_length(function, *shape), refused="the extents must be known")


CASES: Cases = {
    "mlp": open_batch(lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)), 4),
    "cnn": open_batch(lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)), 2, 6, 6),
    "pools": open_batch(lambda: nn.Sequential(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()), 2, 6, 6),
    "layer norm": open_batch(lambda: nn.LayerNorm(4), 3, 4),
    "group norm": open_batch(lambda: nn.GroupNorm(2, 4), 4, 3),
    "a mean over the batch": open_function(lambda x: x - x.mean(0), 4),
    "a loss": open_function(lambda x: (x**2).mean(), 4),
    "reshape": open_function(lambda x: x.reshape(x.shape[0], 2, -1).transpose(1, 2).reshape(-1, 2), 4),
    "flattened": open_function(lambda x: x.view(-1, 2).exp(), 4),
    "the batch as a number": open_function(lambda x: x.sum() / x.shape[0], 4),
    "zeros of the batch": open_function(lambda x: torch.cat([x, x.new_zeros(x.shape[0], 2)], 1), 4),
    "nothing beside what is open": open_function(lambda x: torch.cat([x[:, :0], x[:, :4] * 2, x[:, 4:]], 1), 4),
    "parts without elements": open_function(lambda x: x.split([0, 4], 1)[0].sum(1) + x[:, 0], 4),
    "products of nothing": open_function(lambda x: x @ x.t() + torch.stack([x[:, :0].sum(1)] * 2, 1).sum() + (x[:, :0] @ x[:, :0].t()).sum(0), 4),
    "padded nothing": open_function(lambda x: F.pad(x[:, :0].exp(), (1, 2), value=0.5) * x[:, :3], 4),
    "expanded": open_function(lambda x: torch.arange(4.0).expand(x.shape[0], 4) * x, 4),
    "softmax over the batch": open_function(lambda x: x.softmax(0) * x, 4),
    "pairs": open_function(lambda x: x @ x.t(), 4),
    "slices": open_function(lambda x: x[:, 1:3] * x[:, :2], 4),
    "first row": open_function(lambda x: x[0] * x, 4),
    "concatenation": open_function(lambda x: torch.cat([x, x * 2]), 4),
    "sequence": open_length(lambda x: (x * torch.sigmoid(x)).mean(1), 4),
    "attention": open_length(lambda x: F.scaled_dot_product_attention(x, x, x), 4),
    "heads": open_length(lambda x: F.scaled_dot_product_attention(*[x.view(x.shape[0], x.shape[1], 2, 2).transpose(1, 2)] * 3).transpose(1, 2).reshape(x.shape), 4),
    "softmax of a length": open_length(lambda x: (x.mean(-1).softmax(1).unsqueeze(-1) * x).sum(1), 4),
    "norm over a length": open_length(lambda x: (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True, correction=0) + 1), 4),
    "transposed": open_length(lambda x: (x.transpose(1, 2) @ x).tanh(), 3),
    "encoder layer": Case(lambda: nets.block(8), lambda r: [r(2 + r.generator.initial_seed() % 3, 5, 8)], options={"dynamic_shapes": {"x": {0: B}}}),
    "views in memory": closed(lambda x: x.as_strided((2, 3), (1, 2)), 4),
    "an antialiased length": closed(lambda x: F.interpolate(x[:, None], size=(3, 3), mode="bilinear", antialias=True), 4),
}  # fmt: skip
