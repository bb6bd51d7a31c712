"""Corners: infinities, zeros, ties and bounds that `edges` has not."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from support.torch_modules import Case, Cases, of

INF = float("inf")
STEPS = torch.tensor([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0])
ROWS = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.0, -1.0, 0.0]])
ZERO = torch.zeros(2, 3)
OTHER = torch.tensor([0.3, -1.2, 0.8, 1.1, -0.7, 2.2, -0.1])


def at(function: Any, *values: Any, **settings: Any) -> Case:
    """The case of a function at some values."""
    return of(function, lambda r: [x.clone() for x in values], **settings)


def masked(function: Any, **settings: Any) -> Case:
    """The case of scores, of which those of one row are all masked."""
    mask = torch.tensor(
        [[True, False, True], [True, True, True], [False, False, False]]
    )
    return of(lambda x: function(x, mask), lambda r: [r(3, 3)], **settings)


def filled(x: Any, mask: Any) -> Any:
    return torch.nan_to_num(x.masked_fill(mask, -INF).softmax(-1))


def filled_and_chosen(x: Any, mask: Any) -> Any:
    w = x.masked_fill(mask, -INF).softmax(-1)
    return torch.where(mask.all(-1, keepdim=True), torch.zeros_like(w), w)


def filled_finite(x: Any, mask: Any) -> Any:
    return x.masked_fill(mask, torch.finfo(torch.float32).min).softmax(-1)


def renormalized(x: Any, mask: Any) -> Any:
    w = x.softmax(-1) * ~mask
    return w / w.sum(-1, keepdim=True).clamp(min=1e-6)


def log_of_mask(x: Any, mask: Any) -> Any:
    return (x + (~mask).float().clamp(min=1e-10).log()).logsumexp(-1)


def largest_of_masked(x: Any, mask: Any) -> Any:
    best = x.masked_fill(mask, -INF).amax(1)
    return best.masked_fill(mask.all(1), 0.0)


def mean_of_masked(x: Any, mask: Any) -> Any:
    return (x * ~mask).sum(1) / (~mask).sum(1).clamp(min=1)


def entropy(p: Any) -> Any:
    return -torch.where(p > 0, p * p.log(), 0.0).sum(-1)


def entropy_safe(p: Any) -> Any:
    return -(p * torch.where(p > 0, p, 1.0).log()).sum(-1)


def safe_norm(x: Any) -> Any:
    squares = (x * x).sum(-1)
    return torch.where(squares > 0, squares.clamp(min=1e-12).sqrt(), 0.0)


def sine_ratio(x: Any) -> Any:
    small = x.abs() < 1e-3
    y = torch.where(small, torch.ones_like(x), x)
    return torch.where(small, 1 - x**2 / 6, y.sin() / y)


CASES: Cases = {
    "sqrt": at(torch.sqrt, torch.tensor([0.0, 1.0, 4.0])), "rsqrt": at(torch.rsqrt, torch.tensor([0.25, 1.0,
        4.0])), "log": at(torch.log, torch.tensor([0.0, 1.0, 4.0])), "reciprocal": at(torch.reciprocal, torch.tensor
        ([0.5, -1.0, 4.0])), "reciprocal of zero": at(lambda x: 1 / x, torch.tensor([0.0, 2.0])),
        "pow of a half": at(lambda x: x**0.5, torch.tensor([0.0, 1.0, 4.0])), "pow of fractions": at(lambda x: x**1.5,
        torch.tensor([0.0, 1.0, 4.0])), "pow of zero to a tensor": at(lambda x, y: x**y, torch.tensor([0.0,
        1.0, 2.0]), torch.tensor([2.0, 0.0, 3.0])), "pow of negatives to a tensor": at(lambda x, y: x ** y.detach(
        ), torch.tensor([-1.0, -2.0, -0.5]), torch.tensor([2.0, 3.0, 1.0])), "0 ** x": at(lambda x: 0.0**x,
        torch.tensor([1.0, 2.0])), "0 ** 0": at(lambda x, y: x**y, torch.tensor([0.0, 2.0]), torch.tensor([0.0,
        0.0])), "square root of a square": at(lambda x: (x**2).sqrt(), torch.tensor([1.0, -2.0])), "cube root": at(
        lambda x: x.abs() ** (1 / 3) * x.sign(), torch.tensor([1.0, -8.0])), "exp": at(torch.exp, torch.tensor
        ([-1000.0, 0.0, 1000.0])), "expm1": at(torch.expm1, torch.tensor([-1e-9, 0.0, 1e-9, 30.0])), "log1p": at(
        torch.log1p, torch.tensor([-1e-9, 0.0, 1e-9, 30.0])), "atan2 at zero": at(torch.atan2, torch.tensor([
        0.0, 1.0, 0.0]), torch.tensor([1.0, 0.0, -1.0])), "asin at one": at(lambda x: torch.asin(x.clamp(-1 +
        1e-7, 1 - 1e-7)), torch.tensor([-1.0, 0.0, 1.0])), "acos": at(torch.acos, torch.tensor([-0.5, 0.0, 0.5])),
        "hypot at zero": at(torch.hypot, torch.tensor([3.0, 1.0]), torch.tensor([4.0, 0.0])), "sinc at zero": at(
        torch.sinc, torch.tensor([0.0, 0.5, 1.0])), "xlogy at zero": at(torch.xlogy, torch.tensor([0.0, 1.0]),
        torch.tensor([2.0, 3.0])), "special.entr": at(torch.special.entr, torch.tensor([0.2, 1.0, 2.0])),
        "logit with a bound": at(lambda x: torch.logit(x, eps=0.1), torch.tensor([0.0, 0.1, 0.5, 1.0])),
        "remainder": at(lambda x: x.remainder(0.75), STEPS + 0.1), "remainder of negatives": at(lambda x: x.remainder(
        -0.75), STEPS + 0.1), "fmod of tensors": at(torch.fmod, OTHER * 5, STEPS + 0.1), "fmod by infinity": at(
        torch.fmod, OTHER * 5, torch.full_like(OTHER, torch.inf)), "remainder of tensors": at(torch.remainder,
        OTHER * 5, STEPS + 0.1), "round of halves": at(lambda x: x.round() * x, STEPS), "round to digits": at(
        lambda x: x.round(decimals=1) * x, OTHER), "floor, ceil": at(lambda x: x.floor() * x + x.ceil() * x,
        STEPS),
    "maximum of itself": at(lambda x: torch.maximum(x, x), STEPS), "maximum with zero": at(lambda x: torch.maximum(
        x, torch.zeros(())), STEPS), "min of three": at(lambda x: torch.min(torch.min(x, x * 1.0), torch.zeros_like(
        x)), STEPS), "fmin": at(torch.fmin, ROWS, ROWS.flip(1)), "max of all": at(torch.max, ROWS),
        "max along, places": at(lambda x: (lambda m: m[0] * m[1])(x.max(0)), ROWS), "amax of all axes": at(
        lambda x: x.amax((0, 1)), ROWS), "amin, kept": at(lambda x: x - x.amin(1, keepdim=True), ROWS),
        "aminmax": at(lambda x: (lambda m: m[1] - m[0])(torch.aminmax(x)), ROWS), "softmax by hand": at(lambda x: (
        x - x.amax(-1, keepdim=True)).exp(), ROWS), "range": at(lambda x: (x - x.min()) / (x.max() - x.min()),
        ROWS), "cummax": at(lambda x: x.cummax(1)[0], ROWS), "cummin": at(lambda x: x.cummin(1)[0], ROWS),
        "sort of ties": at(lambda x: x.sort(dim=1, stable=True)[0] * torch.arange(3), ROWS),
        "sort of ties, descending": at(lambda x: x.sort(dim=1, descending=True, stable=True)[0] * torch.arange(
        3), ROWS), "topk of ties": at(lambda x: x.topk(2, 1)[0].sum(1), ROWS), "median of ties": at(lambda x: x.median(
        1)[0] * 2, torch.tensor([[1.0, 3.0, 2.0], [4.0, 6.0, 5.0]])), "median of all": at(lambda x: x.median(),
        torch.tensor([1.0, 5.0, 2.0])), "quantile between": at(lambda x: x.quantile(0.3), OTHER), "quantiles": at(
        lambda x: torch.quantile(x, torch.tensor([0.25, 0.5, 0.75])), OTHER), "mode": of(lambda x: x.mode(1)[0],
        lambda r: [r(3, 3)], refused="mode"), "argmin of ties": at(lambda x: F.one_hot(x.argmin(1), 3) * x,
        ROWS), "max_pool of ties": at(lambda x: F.max_pool2d(x[None, None], 2, 1), ROWS), "max_pool of -inf": at(
        lambda x: F.max_pool1d(x[None], 3, 2, 1), ROWS - 100), "adaptive maximum of ties": at(lambda x: F.adaptive_max_pool1d(
        x[None], 2), ROWS), "dilation by max_pool": at(lambda x: F.max_pool2d(x[None, None], 3, 1, 1) * x,
        ROWS), "erosion": at(lambda x: -F.max_pool2d(-x[None, None], 3, 1, 1), ROWS),
    "clamp of nothing": at(lambda x: x.clamp(min=-INF), STEPS), "clamp, crossed": at(lambda x: x.clamp(1.0, -1.0),
        STEPS), "clamp, a tensor": at(lambda x: torch.clamp(x, min=torch.tensor(0.5)), STEPS),
        "clamp, tensors with ties": at(lambda x, y: torch.clamp(x, max=y), STEPS, STEPS.clone()), "clip": at(
        lambda x: x.clip(max=1), STEPS), "relu of relu": at(lambda x: F.relu(F.relu(x)), STEPS),
        "relu by clamp": at(lambda x: x.clamp_min(0.0), STEPS), "relu by max": at(lambda x: torch.max(x, torch.tensor
        (0.0)), STEPS), "relu by where": at(lambda x: torch.where(x > 0, x, torch.zeros(())), STEPS),
        "relu by a product": at(lambda x: x * (x > 0), STEPS), "relu squared": at(lambda x: F.relu(x).square(),
        STEPS), "abs by sqrt": at(lambda x: (x * x + 1e-12).sqrt(), STEPS), "sign by abs": at(lambda x: x / (x.abs(
        ) + 1e-6), STEPS), "sgn": at(lambda x: x * torch.sgn(x), STEPS), "prelu at zero": Case(lambda: nn.PReLU(
        ), lambda r: [STEPS.clone()]), "softplus of large": at(lambda x: F.softplus(x, 5.0, 2.0), STEPS),
        "softsign at zero": at(F.softsign, STEPS), "logsigmoid of large": at(F.logsigmoid, STEPS * 500),
        "elu of large": at(F.elu, STEPS * 500), "elu, alpha": at(lambda x: F.elu(x, 0.5), STEPS),
        "celu of large": at(lambda x: F.celu(x, 0.5), STEPS * 500), "glu of large": at(lambda x: F.glu(x[:6]),
        STEPS * 500), "hardtanh": at(lambda x: F.hardtanh(x, -0.5, 1.0), STEPS), "tanhshrink": at(F.tanhshrink,
        STEPS), "leaky, negative": at(lambda x: F.leaky_relu(x, -0.5), STEPS), "gelu of large": at(F.gelu,
        STEPS * 100), "gelu, tanh, of large": at(lambda x: F.gelu(x, approximate="tanh"), STEPS * 100),
        "erf of large": at(torch.erf, STEPS * 10), "sigmoid of a large sum": at(lambda x: torch.sigmoid(x * 1e4),
        STEPS), "swish of -inf": at(lambda x: x * torch.sigmoid(x), STEPS * 1e4),
    "a masked row": masked(filled_and_chosen), "a masked row of finite": masked(filled_finite),
        "a masked row, renormalized": masked(renormalized), "logarithm of a mask": masked(log_of_mask),
        "the largest of a masked row": masked(largest_of_masked), "the mean of a masked row": masked(
        mean_of_masked), "nan_to_num of a masked row": masked(filled, refused="infinity"), "-inf, added": at(
        lambda x: (x + torch.tensor([0.0, -INF, 0.0])).softmax(-1), ROWS), "-inf in log_softmax": at(lambda x: x.masked_fill(
        torch.eye(3).bool(), -INF).log_softmax(-1)[:, 1:].exp(), ROWS), "-inf in logsumexp": at(lambda x: x.masked_fill(
        torch.eye(3).bool(), -INF).logsumexp(-1), ROWS), "logsumexp of -inf": at(lambda x: torch.logsumexp(
        torch.stack([x, torch.full_like(x, -INF)]), 0), STEPS), "logaddexp of ties": at(lambda x: torch.logaddexp(
        x, x), STEPS), "logaddexp of large": at(lambda x: torch.logaddexp(x * 1e3, -x * 1e3), STEPS),
        "logcumsumexp of large": at(lambda x: torch.logcumsumexp(x * 1e3, 0), STEPS), "cross entropy of -inf": at(
        lambda x: F.cross_entropy(x.masked_fill(torch.tensor([True, False, False]), -INF), torch.tensor([1, 2,
        1])), ROWS), "cross entropy, all ignored but one": at(lambda x: F.cross_entropy(x, torch.tensor([-100,
        -100, 1])), ROWS), "focal": at(lambda x: (-(1 - x.sigmoid()) ** 2 * F.logsigmoid(x)).mean(), STEPS * 100),
        "bce of zero and one": at(lambda x: F.binary_cross_entropy(x, torch.tensor([1.0, 0.0, 0.5])), torch.tensor
        ([0.999, 0.001, 0.5])), "bce with logits of 1000": at(lambda x: F.binary_cross_entropy_with_logits(x * 1000,
        (STEPS > 0).to(x.dtype)), STEPS), "bce with logits, wrong by 1000": at(lambda x: F.binary_cross_entropy_with_logits(
        x * 1000, (STEPS < 0).to(x.dtype), reduction="none"), STEPS), "kl of zero": at(lambda x: F.kl_div(x.log_softmax(
        -1), torch.tensor([[0.0, 1.0, 0.0]] * 3), reduction="sum"), ROWS), "mse of itself": at(lambda x: F.mse_loss(
        x, x), STEPS), "l1 of itself": at(lambda x: F.l1_loss(x, x.flip(0)), STEPS), "smooth l1 at beta": at(
        lambda x: F.smooth_l1_loss(x, torch.zeros(7), beta=0.5, reduction="sum"), STEPS), "smooth l1, beta 0": at(
        lambda x: F.smooth_l1_loss(x, torch.zeros(7), beta=0.0, reduction="sum"), STEPS), "huber at delta": at(
        lambda x: F.huber_loss(x, torch.zeros(7), delta=0.5, reduction="sum"), STEPS), "hinge at one": at(
        lambda x: (1 - x).clamp(min=0).sum(), STEPS), "triplet at margin": at(lambda x: F.relu(x[:3] - x[4:] +
        1.5), STEPS), "cosine of zero": at(lambda x: F.cosine_similarity(x, torch.ones(2, 3)), ZERO),
        "cosine of itself": at(lambda x: F.cosine_similarity(x, x), ROWS), "distance of itself": at(lambda x: (
        x[:, None] - x[None]).norm(dim=-1), ROWS), "distances, cdist": at(lambda x: torch.cdist(x, x.detach()),
        ROWS), "distances, p = 1.5": at(lambda x: torch.cdist(x, x + 1, p=1.5), ROWS), "pdist": at(torch.pdist,
        torch.tensor([[1.0, 2.0], [3.0, 1.0], [0.0, -1.0]])),
    "norm, p = 0": at(lambda x: x + x.norm(p=0), STEPS), "norm, p = -inf": at(lambda x: x.norm(p=-INF, dim=1),
        ROWS), "norm of rows of zeros": at(lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True) * 2,
        ZERO), "frobenius of zeros": at(lambda x: torch.linalg.matrix_norm(x), ZERO), "norm, p = 1, of zeros": at(
        lambda x: torch.linalg.vector_norm(x, 1, dim=1), ZERO), "norm, p = 4, of zeros": at(lambda x: torch.linalg.vector_norm(
        x, 4, dim=1), ZERO), "norm, p = inf, of ties": at(lambda x: torch.linalg.vector_norm(x, INF), ROWS),
        "normalize of zeros, p = 1": at(lambda x: F.normalize(x, p=1, dim=1), ZERO), "renorm": at(lambda x: torch.renorm(
        x, 2, 0, 1.0), ROWS), "safe norm": at(safe_norm, ROWS * torch.tensor([[1.0], [0.0], [1.0]])),
        "sine ratio": at(sine_ratio, STEPS), "std of constants": at(lambda x: x.std(1), ROWS),
        "std of constants, biased": at(lambda x: x.std(1, correction=0), ROWS), "var of constants": at(lambda x: x.var(
        1), ROWS), "layer norm of constants": at(lambda x: F.layer_norm(x, (3,)), ROWS),
        "instance norm of constants": at(lambda x: F.instance_norm(x[None]), ROWS), "rms norm of zeros": at(
        lambda x: F.rms_norm(x, (3,), eps=1e-6), ZERO), "normalized of constants": at(lambda x: (x - x.mean(1,
        keepdim=True)) / (x.std(1, keepdim=True) + 1e-5), ROWS * torch.tensor([[1.0], [1.0], [1.0]]) + torch.arange(
        3) * 0.1),
    "prod with two zeros": at(lambda x: x.prod(), torch.tensor([0.0, 2.0, 0.0])), "prod along with zeros": at(
        lambda x: x.prod(0), torch.tensor([[1.0, 0.0], [0.0, 0.0], [2.0, 3.0]])), "prod, kept": at(lambda x: x.prod(
        1, keepdim=True) + x, ROWS), "cumprod with zeros": at(lambda x: x.cumprod(0), torch.tensor([2.0, 0.0,
        3.0, 0.0, 1.0])), "entropy of zero": at(entropy_safe, torch.tensor([[0.0, 1.0], [0.5, 0.5]])),
        "entropy of positives": at(entropy, torch.tensor([[0.2, 0.8], [0.5, 0.5]])),
        "where with what is no number": at(lambda x: torch.where(x > 0, x.clamp(min=1e-6).log(), x), STEPS),
        "where with inf": at(lambda x: torch.where(x > 0, x, -INF).softmax(0), STEPS), "nan_to_num of inf": at(
        lambda x: torch.nan_to_num(x * torch.tensor([1.0, INF, 1.0])[:, None], posinf=3.0, neginf=-3.0, nan=1.0),
        torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 0.5], [1.0, -1.0, 0.0]]), refused="infinity"), "isfinite": at(
        lambda x: x * torch.isfinite(x), STEPS), "isclose": at(lambda x: x * torch.isclose(x, x.round()),
        STEPS), "a product with inf": at(lambda x: (x * 1e30 * 1e30).clamp(max=1.0), STEPS.abs()),
        "sum of nothing": at(lambda x: x[:0].sum() + x, STEPS), "mean of one": at(lambda x: x[:1].mean() + x.var(
        0, unbiased=False), STEPS), "max of one": at(lambda x: x[:, :1].max(1)[0] + x[:, :1].amax(1), ROWS),
        "softmax of one": at(lambda x: x[:, :1].softmax(1) + x[:, :1].log_softmax(1), ROWS), "argsort of ties": at(
        lambda x: x.gather(1, x.argsort(dim=1, stable=True)) * torch.arange(3), ROWS), "trapezoid": at(lambda x: torch.trapezoid(
        x, STEPS), STEPS), "heaviside": at(lambda x: torch.heaviside(x.detach(), torch.zeros((), dtype=x.dtype)) * x,
        STEPS), "copysign at zero": at(lambda x: torch.copysign(x, torch.ones(7)), OTHER), "ldexp": at(lambda x: torch.ldexp(
        x, torch.tensor(3)), STEPS), "nextafter": at(lambda x: x.lerp(x + 1, 0.5), STEPS), "signbit": at(
        lambda x: x * torch.signbit(x), STEPS), "lerp of a tensor": at(lambda x, w: torch.lerp(x, -x, w),
        STEPS, OTHER), "threshold at its bound": at(lambda x: F.threshold(x, 0.5, 3.0), STEPS), "hardshrink": at(
        lambda x: F.hardshrink(x, 1.0), STEPS), "softshrink": at(lambda x: F.softshrink(x, 0.5), STEPS),
        "grid at its border": at(lambda x, g: F.grid_sample(x[None, None], g[None, None], align_corners=True,
        padding_mode="border"), ROWS, torch.tensor([[-0.9, 0.3], [0.4, -0.2], [1.7, 0.6]])),
        "grid by reflection": at(lambda x, g: F.grid_sample(x[None, None], g[None, None], align_corners=False,
        padding_mode="reflection"), ROWS, torch.tensor([[-1.3, 0.3], [0.4, -0.2], [1.7, 0.6]])),
        "grid, nearest": at(lambda x, g: F.grid_sample(x[None, None], g[None, None], mode="nearest",
        align_corners=False), ROWS, torch.tensor([[-0.4, 0.3], [0.4, -0.2], [1.7, 0.6]])),
    "torch.cond, a condition with axes": at(lambda x: torch.cond(x.sum(0, keepdim=True) > 0, lambda x: x.sum(),
        lambda x: -x.sum(), (x,)), STEPS), "a variance of too few": of(lambda x: x.var(1, correction=6),
        lambda r: [r(3, 4)], refused="no variance of 4 elements"),
    "cosine_similarity of numbers": at(lambda x: F.cosine_similarity(x[0], x[1], dim=0), STEPS),
}  # fmt: skip
