"""Functions and layers, one by one, as they are often used."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from support.torch_modules import Case, Cases, of, with_weight


def pair(r: Any) -> list[Any]:
    return [r(3, 4), r(3, 4)]


def one(r: Any) -> list[Any]:
    return [r(3, 4)]


def positive(r: Any) -> list[Any]:
    return [r.positive(3, 4)]


CASES: Cases = {
    "arithmetic": of(lambda x, y: (x + 2 * y - 1) / (y.abs() + 1), pair),
    "rsub": of(lambda x: 1 - x, one), "alpha": of(lambda x, y: torch.add(x, y, alpha=0.5) + torch.sub(x, y, alpha=3), pair),
    "broadcast": of(lambda x, y: x[:, None] * y[None], lambda r: [r(3, 2), r(4, 2)]),
    "broadcast of ranks": of(lambda x, y: x * y + y, lambda r: [r(2, 3, 4), r(4)]),
    "numbers without axes": with_weight(lambda w, x: x * w + w, (), one),
    "div, floor": of(lambda x, y: x * torch.div(x, y, rounding_mode="floor"), lambda r: [r(3, 4), r.positive(3, 4)]),
    "div, trunc": of(lambda x, y: x * torch.div(x, y, rounding_mode="trunc"), lambda r: [r(3, 4), r.positive(3, 4)]),
    "pow of tensors": of(lambda x, y: x**y, lambda r: [r.positive(3, 4), r(3, 4)]),
    "pow of a number": of(lambda x: 2.0**x + x**1.5, positive), "sqrt, rsqrt": of(lambda x: x.sqrt() + x.rsqrt(), positive),
    "exp2, log2, log10": of(lambda x: torch.exp2(x) + x.log2() + x.log10(), positive),
    "trigonometry": of(lambda x: x.sin() + x.cos() + torch.tan(x * 0.3), one),
    "inverse trigonometry": of(lambda x: torch.asin(x) + torch.acos(x) + torch.atan(x), lambda r: [r.unit(3, 4)]),
    "hyperbolic": of(lambda x: x.sinh() + x.cosh() + x.asinh() + torch.acosh(x.abs() + 2) + torch.atanh(x.tanh() * 0.5), one),
    "atan2": of(torch.atan2, pair), "hypot": of(torch.hypot, pair), "sinc": of(torch.sinc, positive),
    "lerp": of(lambda x, y: torch.lerp(x, y, 0.3), pair), "addcmul": of(lambda x, y: torch.addcmul(x, x, y, value=0.5) + torch.addcdiv(x, y, y.abs() + 1), pair),
    "logaddexp": of(torch.logaddexp, pair), "deg2rad": of(lambda x: torch.deg2rad(x) + torch.rad2deg(x), one),
    "float_power": of(lambda x: torch.float_power(x, 2).to(x.dtype), one), "erfc": of(lambda x: torch.special.erfc(x), one),
    "activations": of(lambda x: F.softsign(x) + F.tanhshrink(x) + F.logsigmoid(x) + F.mish(x), one),
    "softplus, beta": of(lambda x: F.softplus(x, beta=2.0, threshold=3.0), one), "glu": of(lambda x: F.glu(x, -1), one),
    "prelu": Case(lambda: nn.PReLU(4), lambda r: [r(2, 4, 3)]), "rrelu": Case(lambda: nn.RReLU(), one),
    "softmin": of(lambda x: F.softmin(x, 1), one), "softmax2d": Case(lambda: nn.Softmax2d(), lambda r: [r(2, 3, 2, 2)]),
    "gumbel softmax": of(lambda x: F.gumbel_softmax(x), one),
    "comparisons": of(lambda x, y: x * (x > y) + y * (x <= y).float() + (x != y) * 1.0, pair),
    "logic": of(lambda x, y: x * ((x > 0) & (y < 0) | ~(x > 1)) + (torch.logical_xor(x > 0, y > 0)).to(x.dtype), pair),
    "where of numbers": of(lambda x: torch.where(x > 0, 1.0, -1.0) * x, one), "isnan": of(lambda x: torch.where(torch.isnan(x), torch.zeros_like(x), x) * 2, one),
    "masked_fill, -inf": of(lambda x, m: x.masked_fill(m, float("-inf")).softmax(-1), lambda r: [r(3, 4), torch.tensor([[False, True, False, True]] * 3)]),
    "any, all": of(lambda x: x * (x > 0).any(1, keepdim=True) + (x > -9).all() * x, one),
    "sum": of(lambda x: x.sum() + x.sum(0).exp().sum() + x.sum((0, 1), keepdim=True).sum(), one), "mean": of(lambda x: x.mean(-1, keepdim=True) * x, one),
    "var": of(lambda x: x.var(1) + x.var(1, unbiased=False) + x.std(), one), "var_mean": of(lambda x: sum(torch.var_mean(x, 0)), one), "correction": of(lambda x: x.std(1, correction=2), one),
    "prod": of(lambda x: x.prod(1, keepdim=True), one), "norms": of(lambda x: x.norm() + x.norm(p=1) + torch.linalg.norm(x, dim=1).sum() + torch.linalg.matrix_norm(x), one),
    "logsumexp": of(lambda x: x.logsumexp((0, 1)), one), "max, min": of(lambda x: x.max(1)[0] - x.min(1)[0] + x.max(), one), "aminmax": of(lambda x: torch.aminmax(x, dim=1)[1], one),
    "argmax": of(lambda x: x * F.one_hot(x.argmax(-1), 4), one), "argmin of all": of(lambda x: x.flatten()[x.argmin()], one), "count_nonzero": of(lambda x: x.sum() / torch.count_nonzero(x), one),
    "nansum": of(lambda x: torch.nansum(x, 1), one), "cumsum": of(lambda x: x.cumsum(1) * x, one), "cumsum of a mask": of(lambda x, m: x * m.long().cumsum(1), lambda r: [r(3, 4), r.bools(3, 4)]),
    "cumprod": of(lambda x: x.cumprod(1), positive), "logcumsumexp": of(lambda x: torch.logcumsumexp(x, 1),
        one), "cummax": of(lambda x: torch.cummax(x, 1)[0], one), "diff": of(lambda x: x.diff(dim=1), one),
    "diff with a prefix": of(lambda x: torch.diff(x, prepend=x[:, :1]), one), "trapezoid": of(lambda x: torch.trapezoid(
        x, dx=0.5), one), "topk": of(lambda x: x.topk(2, -1)[0], one), "topk, smallest": of(lambda x: x.topk(2,
        0, largest=False)[0], one),
    "sort": of(lambda x: x.sort(1, descending=True)[0] * torch.arange(4), one), "argsort": of(lambda x: x.gather(
        1, x.argsort(1)), one), "kthvalue": of(lambda x: x.kthvalue(2, 1)[0], one), "median": of(lambda x: x.median(
        1)[0], lambda r: [r(3, 5)]),
    "histc": of(lambda i, x: torch.histc(i, bins=4, min=0, max=3) * x, lambda r: [r.ints(4, 6).float(), r(4)]),
        "bincount": of(lambda i, x: torch.bincount(i, minlength=4) * x, lambda r: [torch.tensor([0, 1, 3, 3]),
        r(4)], refused="bincount|depends on|torch cannot export"),
    "softmax over all": of(lambda x: x.flatten().softmax(0).view_as(x), one), "log_softmax": of(lambda x: x.log_softmax(
        1), one), "cosine_similarity": of(lambda x, y: F.cosine_similarity(x, y, dim=0), pair), "normalize": of(
        lambda x: F.normalize(x, p=2, dim=1), one),
    "view, permute": of(lambda x: x.view(2, 3, 2, 2).permute(0, 2, -1, 1).reshape(2, -1), lambda r: [r(2, 12)]),
        "flatten": of(lambda x: x.flatten(1).unflatten(1, (2, 6)), lambda r: [r(2, 3, 4)]), "transposes": of(
        lambda x: x.t() @ x.mT.transpose(0, 1).T.mT, lambda r: [r(3, 3)]),
    "squeeze": of(lambda x: x.squeeze().unsqueeze(-1) * x.squeeze(0), lambda r: [r(1, 3, 4, 1)]), "expand": of(
        lambda x: x.expand(3, -1, 4) * torch.arange(4), lambda r: [r(2, 1)]), "repeat": of(lambda x: x.repeat(
        2, 1, 3), one), "tile": of(lambda x: x.tile((2,)), one),
    "repeat_interleave": of(lambda x: x.repeat_interleave(2, dim=-1) + 1, one), "repeat_interleave, each": of(
        lambda x: torch.repeat_interleave(x, torch.tensor([1, 2, 1]), dim=0), one), "flip": of(lambda x: x.flip(
        0, -1) * x, one), "rot90": of(lambda x: torch.rot90(x, 1, (0, 1)), one),
    "roll": of(lambda x: x.roll(1, 0) + x.roll((1, -1), (0, 1)) * x, one), "cat": of(lambda x, y: torch.cat([x,
        y, x], -1), pair), "cat of nothing": of(lambda x: torch.cat([x, x[:0]], 0), one), "stack": of(lambda x,
        y: torch.stack((x, y), -1), pair),
    "column_stack": of(lambda x, y: torch.column_stack((x[:, 0], y)), pair), "split": of(lambda x: x.split(3,
        1)[1] * x.split([1, 3], 1)[0], one), "chunk": of(lambda x: torch.cat(x.chunk(3, 1)[::-1], 1), one),
    "tensor_split": of(lambda x: torch.tensor_split(x, 3, 1)[0].sum() * x, one), "hsplit": of(lambda x: torch.hsplit(
        x, 2)[1], one), "unbind": of(lambda x: x.unbind(1)[2] * x.unbind(0)[0][:3], one), "narrow": of(lambda x: x.narrow(
        1, -2, 2), one), "slices": of(lambda x: x[1:, ::2] + x[:-1, 1::2] * x[..., -1:][1:], one),
    "negative bounds": of(lambda x: x[:, -3:-1] * x[-2:, None].sum(), one), "diagonal": of(lambda x: x.diagonal(
        1) + torch.diag(x[:, :3])[:3], one), "diag_embed": of(lambda x: torch.diag_embed(x) @ torch.ones(4),
        one), "trace": of(lambda x: x[:, :3].trace() * x, one), "tril, triu": of(lambda x: x.tril() - x.triu(1),
        one),
    "unfold": of(lambda x: x.unfold(1, 2, 1).sum(-1), one), "as_strided": of(lambda x: x.as_strided((2, 2), (4,
        1), 1) * 2, one), "pad": of(lambda x: F.pad(x, (1, 2, 0, 1), value=0.5), one), "pad, reflect": of(
        lambda x: F.pad(x[None], (1, 2), mode="reflect"), one), "pad, crop": of(lambda x: F.pad(x, (-1, 1)),
        one),
    "pad, circular": of(lambda x: F.pad(x[None], (1, 2), mode="circular"), one), "pad, replicate": of(lambda x: F.pad(
        x[None], (2, 1), mode="replicate"), one), "pixel_shuffle": of(lambda x: F.pixel_shuffle(x, 2) , lambda r: [
        r(1, 8, 2, 3)]), "pixel_unshuffle": of(lambda x: F.pixel_unshuffle(x, 2), lambda r: [r(1, 2, 4, 6)]),
        "channel_shuffle": of(lambda x: F.channel_shuffle(x, 2), lambda r: [r(1, 4, 2, 2)]),
    "im2col": of(lambda x: F.unfold(x, 2, stride=2), lambda r: [r(1, 2, 4, 4)]), "col2im": of(lambda x: F.fold(
        x, (4, 4), 2, stride=1), lambda r: [r(1, 8, 9)]), "block_diag": of(lambda x, y: torch.block_diag(x, y),
        pair), "cartesian": of(lambda x, y: torch.cartesian_prod(x[0], y[0]), pair), "kron": of(lambda x, y: torch.kron(
        x, y[:2, :2]), pair), "meshgrid": of(lambda x: sum(a * b for a, b in [torch.meshgrid(x[0], x[1],
        indexing="ij")]), one),
    "matmul": of(lambda x, y: x @ y.T, pair), "batched": of(lambda x, y: x @ y, lambda r: [r(2, 1, 3, 4), r(5,
        4, 2)]), "vectors": of(lambda x, y: x @ y[0] + (y[:, 0] @ x).sum() + x[0] @ y[0], pair), "addmm": of(
        lambda x, y: torch.addmm(x[0, :3], x, y.T, beta=0.5, alpha=2.0), pair), "baddbmm": of(lambda a, b, c: torch.baddbmm(
        a, b, c), lambda r: [r(2, 3, 3), r(2, 3, 4), r(2, 4, 3)]),
    "einsum": of(lambda x, y: torch.einsum("bhqd,bhkd->bhqk", x, y), lambda r: [r(2, 2, 3, 4), r(2, 2, 5, 4)]),
        "einsum, ellipsis": of(lambda x, y: torch.einsum("...i,ij->...j", x, y), lambda r: [r(2, 3, 4), r(4, 2)]),
        "einsum, trace": of(lambda x: torch.einsum("ii->i", x), lambda r: [r(3, 3)]), "outer": of(lambda x, y: torch.outer(
        x[0], y[0]), pair), "bilinear": Case(lambda: nn.Bilinear(3, 4, 2), lambda r: [r(2, 3), r(2, 4)]),
        "tensordot": of(lambda x, y: torch.tensordot(x, y, dims=([1], [1])), pair),
    "cross": of(lambda x, y: torch.linalg.cross(x, y), lambda r: [r(2, 3), r(2, 3)]), "multi_dot": of(lambda x,
        y: torch.linalg.multi_dot([x, y.T, x]), pair), "baddbmm, beta 0": of(lambda a, b, c: torch.baddbmm(a,
        b, c, beta=0), lambda r: [r(2, 3, 3), r(2, 3, 4), r(2, 4, 3)]),
    "arange": of(lambda x: x * torch.arange(4), one), "linspace": of(lambda x: x * torch.linspace(0, 1, 4),
        one), "full_like": of(lambda x: torch.full_like(x, math.pi) * x, one), "new_zeros": of(lambda x: torch.cat(
        [x.new_zeros(1, 4), x]), one), "eye": of(lambda x: x @ torch.eye(4), one), "tril_indices": of(lambda x: x[
        :, :3][tuple(torch.tril_indices(3, 3))], one), "positions": of(lambda x: torch.cdist(torch.arange(4.0)[
        :, None], torch.arange(4.0)[:, None]) @ x.T, one),
    "embedding": Case(lambda: nn.Embedding(5, 3), lambda r: [r.ints(5, 2, 3)]), "one_hot": of(lambda i, x: F.one_hot(
        i, 4) * x, lambda r: [r.ints(4, 3), r(3, 4)]), "bucketize": of(lambda x, t: t[torch.bucketize(x, torch.tensor
        ([-0.5, 0.0, 0.5]))], lambda r: [r(3, 4), r(4)]), "searchsorted": of(lambda x, t: t[torch.searchsorted(
        torch.tensor([-0.5, 0.0, 0.5]), x)], lambda r: [r(3, 4), r(4)]),
    "integer inputs": of(lambda i, x: x * i.float() + i.sum(), lambda r: [r.ints(9, 3, 4), r(3, 4)]),
        "bool inputs": of(lambda m, x: x * m + (~m).float(), lambda r: [r.bools(3, 4), r(3, 4)]), "casts": of(
        lambda x: (x * 3).int().float() + x.to(torch.float32) + x.double().float(), one), "type_as": of(lambda x,
        i: i.type_as(x) * x, lambda r: [r(3), r.ints(5, 3)]),
    "scalar tensors": of(lambda x: x * torch.tensor(2.5) + torch.scalar_tensor(1.0), one), "chained": of(
        lambda x: x.add(1).mul(2).sub(0.5).div(3).neg().abs().square(), one), "vmap": of(lambda x: torch.vmap(
        lambda row: row.softmax(0) * row)(x), one), "func.grad inside": of(lambda x: torch.func.grad(lambda y: (
        y**3).sum())(x), one),
    "erfinv": of(torch.erfinv, lambda r: [torch.tensor([-0.9999, -0.5, -0.032, -0.03, 0.0, 1e-4, 0.031, 0.9,
        0.99999])]), "quantiles of the normal": of(lambda x, y: torch.distributions.Normal(y, y.exp()).icdf(x),
        lambda r: [r.unit(4), r(4)]), "quantile": of(lambda x: x.quantile(0.5), one),
}  # fmt: skip
CASES["hstack"] = of(
    lambda x, y: (
        torch.hstack([x, y]).sum() + torch.vstack([x, y]) * torch.dstack([x, y]).mean()
    ),
    pair,
)
