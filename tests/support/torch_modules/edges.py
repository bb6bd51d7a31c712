"""Kinks, ties and edges, where PyTorch has conventions of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from support.torch_modules import Cases, of

HALVES = torch.tensor([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0, -3.0])
TIES = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.0, -1.0, 0.0]])
ZEROS = torch.zeros(3, 4)


def at(function: Any, x: Any, *others: Any) -> Any:
    """The case of a function at some values."""
    return of(function, lambda r: [x.clone(), *(y.clone() for y in others)])


CASES: Cases = {
    "relu": at(F.relu, HALVES), "relu6": at(F.relu6, HALVES), "abs": at(torch.abs, HALVES),
    "leaky_relu": at(F.leaky_relu, HALVES), "elu": at(F.elu, HALVES), "selu": at(F.selu, HALVES),
    "celu": at(F.celu, HALVES), "hardtanh": at(F.hardtanh, HALVES),
    "hardswish": at(F.hardswish, HALVES), "hardsigmoid": at(F.hardsigmoid, HALVES),
    "softshrink": at(F.softshrink, HALVES), "hardshrink": at(F.hardshrink, HALVES),
    "threshold": at(lambda x: F.threshold(x, 0.5, -1.0), HALVES),
    "clamp": at(lambda x: x.clamp(-1, 2), HALVES), "clamp_min": at(lambda x: x.clamp(min=0), HALVES),
    "clamp_max": at(lambda x: x.clamp_max(1.0), HALVES),
    "clamp by tensors": at(lambda x, a, b: torch.clamp(x, a, b), HALVES, torch.full((10,), -1.0), torch.full((10,), 2.0)),
    "sign": at(lambda x: x * x.sign(), HALVES), "floor": at(lambda x: x - x.floor(), HALVES),
    "round": at(lambda x: x * x.round(), HALVES), "trunc": at(lambda x: x * x.trunc(), HALVES),
    "frac": at(torch.frac, HALVES), "remainder": at(lambda x: torch.remainder(x, 1.5), HALVES + 0.1),
    "fmod": at(lambda x: torch.fmod(x, 1.5), HALVES + 0.1),
    "max": at(lambda x: x.max(), TIES), "min": at(lambda x: x.min(), TIES),
    "amax": at(lambda x: x.amax(1), TIES), "amin": at(lambda x: x.amin(0), TIES),
    "max along": at(lambda x: x.max(1).values, TIES), "min along": at(lambda x: x.min(0)[0], TIES),
    "argmax": at(lambda x: x.argmax(1) * x.sum(1), TIES),
    "maximum": at(torch.maximum, TIES, TIES.flip(1)), "minimum": at(torch.minimum, TIES, TIES.flip(1)),
    "fmax": at(torch.fmax, TIES, TIES.flip(1)),
    "max_pool": at(lambda x: F.max_pool1d(x[None], 2), TIES), "topk": at(lambda x: x.topk(1, 1).values, TIES + torch.arange(3) * 0.1),
    "median of ties": at(lambda x: x.sort(1).values[:, 1], torch.tensor([[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]])),
    "norm": at(lambda x: x.norm(dim=1), ZEROS), "norm of all": at(lambda x: torch.linalg.vector_norm(x), ZEROS),
    "norm, p = 1": at(lambda x: x.norm(p=1, dim=1), ZEROS), "norm, p = inf": at(lambda x: x.norm(p=float("inf"), dim=1), TIES),
    "norm, p = 3": at(lambda x: x.norm(p=3, dim=1), ZEROS),
    "normalize": at(lambda x: F.normalize(x, dim=1), ZEROS),
    "cdist": at(lambda x: torch.cdist(x, x), TIES), "cdist, p = 1": at(lambda x: torch.cdist(x, x + 1, p=1), TIES),
    "pairwise": at(lambda x: F.pairwise_distance(x, x), TIES),
    "prod with a zero": at(lambda x: x.prod(1), torch.tensor([[1.0, 0.0, 3.0], [0.0, 0.0, 2.0], [1.0, 2.0, 3.0]])),
    "prod of all": at(lambda x: x.prod(), torch.tensor([1.0, 0.0, 3.0])),
    "x ** 0": at(lambda x: x**0, HALVES), "x ** 1": at(lambda x: x**1, HALVES), "x ** 2": at(lambda x: x**2, HALVES),
    "x ** 3": at(lambda x: x**3, HALVES), "negative base": at(lambda x: x**3 + x**-2, HALVES + 0.25),
    "softmax of large numbers": at(lambda x: x.softmax(0), HALVES * 1000),
    "log_softmax of large numbers": at(lambda x: x.log_softmax(0), HALVES * 1000),
    "logsumexp of large numbers": at(lambda x: x.logsumexp(0), HALVES * 1000),
    "sigmoid of large numbers": at(torch.sigmoid, HALVES * 500),
    "softplus of large numbers": at(F.softplus, HALVES * 100),
    "logsigmoid of large numbers": at(F.logsigmoid, HALVES * 100),
    "tanh of large numbers": at(torch.tanh, HALVES * 100),
    "silu of large numbers": at(F.silu, HALVES * 100), "mish of large numbers": at(F.mish, HALVES * 100),
    "bce of large logits": at(lambda x: F.binary_cross_entropy_with_logits(x, (x > 0).to(x.dtype)), HALVES * 500),
    "cross entropy of large logits": at(lambda x: F.cross_entropy(x[None], torch.tensor([3])), HALVES * 500),
    "where with a log": at(lambda x: torch.where(x > 0, x, -x).clamp(min=0.1).log(), HALVES),
    "masked log": at(lambda x: torch.where(x > 0, x.clamp(min=1e-3).log(), torch.zeros_like(x)), HALVES),
    "smooth_l1": at(lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none"), HALVES),
    "huber": at(lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none"), HALVES),
    "l1": at(lambda x: F.l1_loss(x, torch.zeros_like(x), reduction="none"), HALVES),
    "hinge": at(lambda x: torch.relu(1 - x), HALVES),
    "atan2": at(lambda x: torch.atan2(x, x * 0 + 1), HALVES),
    "hypot": at(lambda x: torch.hypot(x, torch.ones_like(x)), HALVES),
    "logaddexp": at(lambda x: torch.logaddexp(x * 100, -x * 100), HALVES),
    "xlogy": at(lambda x: torch.xlogy(x.abs(), x.abs() + 1), HALVES),
    "nan_to_num": at(lambda x: torch.nan_to_num(x) * 2, HALVES),
    "copysign": at(lambda x: torch.copysign(x, -torch.ones_like(x)), HALVES + 0.25),
    "heaviside": at(lambda x: x * torch.heaviside(x.detach(), torch.full((), 0.5, dtype=x.dtype)), HALVES),
    "median along a row": at(lambda x: x.median(1).values, torch.tensor([[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]])),
    "std of a row": at(lambda x: x.std(1), TIES + torch.arange(3) * 0.3),
    "logit": at(lambda x: torch.logit(x), torch.tensor([0.1, 0.5, 0.9])),
    "expm1, log1p": at(lambda x: torch.expm1(x) + torch.log1p(x.abs()), HALVES),
    "erf": at(lambda x: torch.erf(x), HALVES / 3),
    "gelu": at(lambda x: F.gelu(x), HALVES), "gelu, tanh": at(lambda x: F.gelu(x, approximate="tanh"), HALVES),
}  # fmt: skip
