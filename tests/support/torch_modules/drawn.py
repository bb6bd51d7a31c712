"""Training mode: dropout of all kinds, of which the graph gets what is kept, and normalizations
that move their statistics.
"""

from __future__ import annotations

import random
from random import uniform
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from support.torch_modules import Case, Cases, of


def train(module: Any, *shape: int, **settings: Any) -> Case:
    return Case(module, lambda r: [r(*shape)], trains=True, **settings)


def same(function: Any, *shape: int, **settings: Any) -> Case:
    return of(function, lambda r: [r(*shape)], trains=True, **settings)


def attention(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)


class Drop(nn.Module):  # type: ignore[misc]
    """Stochastic depth, as in timm: an item of the batch is dropped as a whole."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Any) -> Any:
        if self.rate == 0.0 or not self.training:
            return x
        keep = 1 - self.rate
        shape = (x.shape[0],) + (1,) * (x.ndim - 1)
        mask = x.new_empty(shape).bernoulli_(keep)
        return x * mask.div_(keep)


class Rand(Drop):
    """The same, as it was written before."""

    def forward(self, x: Any) -> Any:
        keep = 1 - self.rate
        shape = (x.shape[0],) + (1,) * (x.ndim - 1)
        mask = keep + torch.rand(shape, dtype=x.dtype)
        return x.div(keep) * mask.floor_()


class Twice(nn.Module):  # type: ignore[misc]
    """One dropout that is called twice keeps others each time (R-Drop)."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.linear = nn.Dropout(0.3), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        a, b = self.linear(self.drop(x)), self.linear(self.drop(x))
        return F.kl_div(a.log_softmax(-1), b.softmax(-1), reduction="batchmean")


class Frozen(nn.Module):  # type: ignore[misc]
    """A normalization in evaluation mode in a network that trains."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(3), nn.Linear(3, 3)

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: Any) -> Any:
        return self.norm(self.linear(x))


class Siamese(nn.Module):  # type: ignore[misc]
    """Statistics that are moved twice in one call."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())

    def forward(self, a: Any, b: Any) -> Any:
        return (self.net(a) - self.net(b)).pow(2).sum(1)


class Whitened(nn.Module):  # type: ignore[misc]
    """A normalization by hand, with statistics in buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("variance", torch.ones(3), persistent=False)
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Any) -> Any:
        if self.training:
            mean, variance = x.mean(0), x.var(0, unbiased=False)
            with torch.no_grad():
                self.mean += 0.1 * (mean - self.mean)
                self.variance.lerp_(variance, 0.1)
        else:
            mean, variance = self.mean, self.variance
        return (x - mean) / (variance + 1e-5).sqrt() * self.weight


class Renorm(nn.Module):  # type: ignore[misc]
    """Batch renormalization: corrections without gradients, and moved statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("deviation", torch.ones(3))

    def forward(self, x: Any) -> Any:
        mean, deviation = x.mean(0), x.std(0, unbiased=False) + 1e-3
        r = (deviation.detach() / self.deviation).clamp(0.5, 2)
        d = ((mean.detach() - self.mean) / self.deviation).clamp(-1, 1)
        y = (x - mean) / deviation * r + d
        self.mean.copy_(self.mean * 0.9 + mean.detach() * 0.1)
        self.deviation.mul_(0.9).add_(deviation.detach() * 0.1)
        return y


class Spectral(nn.Module):  # type: ignore[misc]
    """A step of the power iteration in training, with the vector in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(12.0).view(3, 4) / 10)
        self.register_buffer("u", F.normalize(torch.ones(3), dim=0))

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            v = F.normalize(self.weight.t() @ self.u, dim=0)
            self.u.copy_(F.normalize(self.weight @ v, dim=0))
        u = self.u.clone()
        return x @ (self.weight / (u @ self.weight @ v)).t()


def encoder(**options: Any) -> Any:
    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.2, **options)
    return nn.TransformerEncoder(layer, 1)


class Attended(nn.Module):  # type: ignore[misc]
    def __init__(self, needs: bool) -> None:
        super().__init__()
        self.needs = needs
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.25, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x, need_weights=self.needs)[0]


def seq(*layers: Any) -> Any:
    return lambda: nn.Sequential(*layers)


RANDOM = "make (it|them) an input"
NUMBERS = np.random.default_rng(0)


def closed(make: Any) -> Any:
    """Draws from a generator that no attribute leads to."""
    generator = make(0)
    return lambda _: generator.random()


class Layers(nn.Module):  # type: ignore[misc]
    """Layers that are left out at random, or in an order at random."""

    def __init__(self, draw: Any) -> None:
        super().__init__()
        self.draw, self.layers = draw, nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
        self.own, self.legacy = random.Random(0), np.random.RandomState(0)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x) if self.draw(self) > 0.3 else x
        return x


def shuffled(x: Any) -> Any:
    order = [0, 1, 2]
    random.shuffle(order)
    return x[order]


PYTHON = {
    "random": lambda _: random.random(), "uniform": lambda _: uniform(0, 1),
    "numpy": lambda _: np.random.rand(), "a new generator": lambda _: np.random.default_rng().random(),
    "a generator of the file": lambda _: NUMBERS.random(),
    "a closure": closed(random.Random), "a closure, numpy": closed(np.random.default_rng),
    "no seed": lambda _: random.Random().random(), "no seed, numpy": lambda _: np.random.RandomState().rand(),
    "no seed, bits": lambda _: np.random.Generator(np.random.PCG64()).random(),
    "the system": lambda _: random.SystemRandom().random(),
    "an own generator": lambda m: m.own.random(), "an old generator": lambda m: m.legacy.rand(),
}  # fmt: skip

CASES: Cases = {
    "dropout": train(seq(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)), 2, 3),
    "dropout in place": train(seq(nn.Linear(3, 4), nn.GELU(), nn.Dropout(0.5, inplace=True), nn.Linear(4, 2)), 2, 3),
    "dropout of nothing": train(seq(nn.Dropout(0.0), nn.Linear(3, 2)), 2, 3), "dropout of all": train(seq(nn.Linear(3, 3), nn.Dropout(1.0)), 2, 3),
    "dropout of channels": train(seq(nn.Conv2d(2, 4, 3), nn.Dropout2d(0.3)), 2, 2, 5, 5),
        "dropout of channels, 1d": train(seq(nn.Dropout1d(0.3)), 2, 3, 5), "dropout of channels, 3d": train(
        seq(nn.Dropout3d(0.3)), 2, 3, 2, 2, 2),
    "alpha dropout": train(seq(nn.Linear(3, 4), nn.SELU(), nn.AlphaDropout(0.2)), 2, 3), "alpha dropout of channels": train(seq(nn.FeatureAlphaDropout(0.2)), 2, 3, 2, 2),
    "dropout, always": Case(lambda: Always(), lambda r: [r(2, 3)]), "dropout, never": train(lambda: Never(), 2, 3), "dropout in a block": same(lambda x: without(x) * x, 2, 3),
    "one dropout twice": train(Twice, 3, 4), "dropout in a loop": same(lambda x: sum(F.dropout(x * i, 0.4) for i in range(1, 4)), 2, 3),
    "attention with dropout": Case(lambda: Function(attention), lambda r: [r(1, 2, 3, 4), r(1, 2, 3, 4), r(1, 2, 3, 4)], trains=True),
    "attention, weights": train(lambda: Attended(True), 2, 3, 8), "attention, no weights": train(lambda: Attended(False), 2, 3, 8),
    "encoder": train(lambda: encoder(batch_first=True), 2, 3, 8), "encoder, norm first": train(lambda: encoder(norm_first=True, activation="gelu"), 3, 2, 8),
    "transformer": Case(lambda: nn.Transformer(8, 2, 1, 1, 12, dropout=0.1), lambda r: [r(3, 2, 8), r(2, 2, 8)], trains=True),
    "lstm": Case(lambda: nn.LSTM(3, 4, 2, dropout=0.3), lambda r: [r(3, 2, 3)], trains=True), "gru": Case(
        lambda: nn.GRU(3, 4, 2, dropout=0.3, bidirectional=True), lambda r: [r(3, 2, 3)], trains=True),
    "stochastic depth": train(lambda: Drop(0.3), 4, 3), "stochastic depth, eval": Case(lambda: Drop(0.3), lambda r: [r(4, 3)]), "stochastic depth, by rand": train(lambda: Rand(0.3), 4, 3),
    "rrelu": train(nn.RReLU, 3, 4), "noise": same(lambda x: x + torch.randn_like(x) * 0.1, 3),
        "noise in place": same(lambda x: x + torch.empty(3).normal_(), 3), "uniform noise": same(lambda x: x +
        torch.empty_like(x).uniform_(-1, 1), 3), "a permutation": same(lambda x: x[torch.randperm(3)], 3),
        "a number": same(lambda x: x * torch.rand(1), 3), "a distribution": same(lambda x: torch.distributions.Normal(
        x, 1.0).rsample(), 3), "a seed": same(lambda x: x + torch.randn(3, generator=torch.Generator().manual_seed(
        1)), 3), "a normal of parameters": same(lambda x: torch.normal(x, 1.0), 3), "fractional pooling": same(
        lambda x: F.fractional_max_pool2d(x, 2, output_size=3), 1, 1, 7, 7, refused="random|max_pool"),
        "poisson": same(lambda x: torch.poisson(x.abs()) * x, 3, refused="has no formula"), "exponential": same(
        lambda x: x * torch.empty(3).exponential_(), 3), "random integers": same(lambda x: x[torch.randint(0,
        3, (2,))], 3),
    **{f"numbers of Python, {name}": train(lambda draw=draw: Layers(draw), 2, 3, refused=RANDOM) for name,
        draw in PYTHON.items()}, "numbers of Python, shuffled": same(shuffled, 3, refused=RANDOM),
        "numbers of Python, the same each time": same(lambda x: x * random.Random(3).random() + np.random.default_rng(
        3).random(), 3), "numbers of Python, in evaluation mode": of(shuffled, lambda r: [r(3)], refused=RANDOM),
    "batch norm": train(seq(nn.Linear(3, 4), nn.BatchNorm1d(4)), 5, 3), "batch norm of images": train(seq(nn.Conv2d(
        2, 3, 3, bias=False), nn.BatchNorm2d(3, momentum=0.4), nn.ReLU()), 2, 2, 5, 5),
        "batch norm of volumes": train(lambda: nn.BatchNorm3d(2), 2, 2, 2, 3, 2), "batch norm of sequences": train(
        lambda: nn.BatchNorm1d(3, eps=0.1), 2, 3, 4), "batch norm, not affine": train(lambda: nn.BatchNorm1d(3,
        affine=False), 4, 3), "batch norm, no running": train(lambda: nn.BatchNorm1d(3, track_running_stats=False),
        4, 3), "batch norm, momentum 0": train(lambda: nn.BatchNorm1d(3, momentum=0.0), 4, 3),
        "batch norm, frozen": train(Frozen, 4, 3), "batch norm, twice": Case(Siamese, lambda r: [r(4, 3), r(4,
        3)], trains=True), "batch norm, one row": train(lambda: nn.BatchNorm1d(3), 1, 3, refused=
        "more than 1 value"), "synchronized": train(lambda: nn.SyncBatchNorm(3), 4, 3),
    "instance norm": train(lambda: nn.InstanceNorm1d(3, track_running_stats=True, affine=True), 2, 3, 4),
        "group norm": train(lambda: nn.GroupNorm(1, 4), 2, 4, 3), "by hand": train(Whitened, 4, 3),
        "by hand, eval": Case(Whitened, lambda r: [r(4, 3)]), "renormalized": train(Renorm, 5, 3),
        "power iteration": train(Spectral, 2, 4), "spectral norm": train(lambda: nn.utils.parametrizations.spectral_norm(
        nn.Linear(4, 3)), 2, 4), "spectral norm, old": train(lambda: nn.utils.spectral_norm(nn.Linear(4, 3)),
        2, 4), "batch norm in a block": Case(lambda: Block(), lambda r: [r(4, 3)], trains=True),
}  # fmt: skip


class Function(nn.Module):  # type: ignore[misc]
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


class Always(nn.Module):  # type: ignore[misc]
    """Dropout of a function is on by default, in evaluation mode, too."""

    def forward(self, x: Any) -> Any:
        return F.dropout(x, 0.5) * x


class Never(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return F.dropout(x, 0.5, training=False) * x


def without(x: Any) -> Any:
    with torch.no_grad():
        return F.dropout(x, 0.5)


class Block(nn.Module):  # type: ignore[misc]
    """A normalization that trains where gradients are disabled: its statistics move."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(3), nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            h = self.norm(x)
        return self.linear(h)
