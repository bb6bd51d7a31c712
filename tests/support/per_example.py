"""Modules of PyTorch whose examples do not meet, and their derivatives for each example by
torch.func.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacrev, vmap
from torch.nn import functional
from torch.utils._pytree import tree_map


def normal(*shape: int, seed: int = 0) -> Any:
    """Random numbers in double precision."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


class Words(nn.Module):  # type: ignore[misc]
    """Embedded words with positions, attention, normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 8)
        self.positions = nn.Parameter(normal(4, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, ids: Any) -> Any:
        return self.layer(self.words(ids) + self.positions).mean(1)


class Patches(nn.Module):  # type: ignore[misc]
    """A token for the class, repeated for each image, before the patches of it."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 8, 2, 2), nn.Parameter(normal(1, 1, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), patches], 1)
        states, _ = self.attention(*[self.norm(tokens)] * 3, need_weights=False)
        return self.head(states[:, 0])


class TimeFirst(nn.Module):  # type: ignore[misc]
    """The batch is the second axis inside."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2)
        self.out = nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        steps = x.transpose(0, 1)
        attended, _ = self.attention(steps, steps, steps)
        return self.out(torch.tanh(attended)).transpose(0, 1)


class Tied(nn.Module):  # type: ignore[misc]
    """A weight in two layers, and a normalized one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scaled = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))

    def forward(self, x: Any) -> Any:
        hidden = torch.tanh(self.linear(x)) @ self.linear.weight
        return self.scaled(hidden)


class Recurrent(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 4, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.gru(x)[0][:, -1]


class Function(nn.Module):  # type: ignore[misc]
    """A formula with parameters."""

    def __init__(self, formula: Any, **parameters: Any) -> None:
        super().__init__()
        self.formula = formula
        for name, value in parameters.items():
            setattr(self, name, nn.Parameter(value))

    def forward(self, x: Any) -> Any:
        return self.formula(self, x)


def seq(*layers: Any) -> nn.Sequential:
    return nn.Sequential(*layers)


# The module, the shape of one example, or the examples themselves.
MODULES: dict[str, tuple[Any, Any]] = {
    "linear": (lambda: nn.Linear(3, 4), (3,)),
    "mlp": (lambda: seq(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)), (3,)),
    "linear over steps": (lambda: seq(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 1)), (5, 3)),
    "tied": (Tied, (4,)),
    "conv": (lambda: seq(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(60, 2)), (2, 4, 5)),
    "strided conv": (lambda: seq(nn.Conv2d(2, 4, 3, stride=2), nn.SiLU(), nn.Conv2d(4, 2, 2, dilation=(1, 2))), (2, 9, 8)),
    "grouped conv": (lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1, stride=2), (4, 5, 6)),
    "depthwise conv": (lambda: seq(nn.Conv1d(3, 6, 3, groups=3), nn.Tanh(), nn.Conv1d(6, 2, 1)), (3, 6)),
    "pointwise conv": (lambda: seq(nn.Conv2d(3, 4, 1), nn.Tanh(), nn.Conv2d(4, 2, 1, stride=2, groups=2)), (3, 4, 3)),
    "conv over all": (lambda: nn.Conv2d(2, 3, (3, 4)), (2, 3, 4)),
    "reflecting conv": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), (2, 4, 5)),
    "transposed conv": (lambda: seq(nn.ConvTranspose2d(3, 2, 3, stride=2), nn.Tanh(), nn.ConvTranspose2d(2, 4, 2, groups=2)), (3, 3, 2)),
    "batch norm": (lambda: seq(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3).eval(), nn.ReLU(), nn.AvgPool2d(2)), (2, 5, 5)),
    "group norm": (lambda: seq(nn.Conv1d(2, 4, 2), nn.GroupNorm(2, 4), nn.Tanh()), (2, 5)),
    "instance norm": (lambda: nn.InstanceNorm1d(3, affine=True), (3, 5)),
    "layer norm": (lambda: seq(nn.LayerNorm(4), nn.Linear(4, 2), nn.LayerNorm((3, 2))), (3, 4)),
    "max pool": (lambda: seq(nn.Conv2d(1, 2, 2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 2)), (1, 5, 5)),
    "prelu": (lambda: seq(nn.Conv1d(2, 3, 2), nn.PReLU(3), nn.PReLU()), (2, 4)),
    "upsampling": (lambda: seq(nn.Conv2d(1, 2, 2), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(2, 1, 2)), (1, 3, 3)),
    "attention": (Words, torch.tensor([[0, 1, 1, 6], [3, 2, 0, 3], [5, 5, 5, 5]])),
    "patches": (Patches, (3, 4, 4)),
    "time first": (TimeFirst, (3, 8)),
    "recurrent": (Recurrent, (4, 3)),
    "scalar": (lambda: Function(lambda m, x: x * m.a + m.a**2 * x.sum(-1, keepdim=True), a=normal()), (3,)),
    "softmax": (lambda: Function(lambda m, x: functional.log_softmax(x @ m.w, -1), w=normal(3, 4)), (3,)),
    "only shared": (lambda: Function(lambda m, x: x[:, :1] + torch.exp(m.w).sum(), w=normal(4)), (3,)),
    "outer": (lambda: Function(lambda m, x: torch.einsum("bi,bj,ijk->bk", x, x, m.w), w=normal(3, 3, 2)), (3,)),
    "branches": (lambda: Function(lambda m, x: torch.where(x > 0, torch.log(x.clamp(min=1e-9) * m.w.exp()), x * m.w), w=normal(3)), (3,)),
    "joined": (lambda: Function(lambda m, x: torch.cat([x, m.w.expand(x.shape[0], 2), x * x], 1) * m.w[0], w=normal(2)), (3,)),
    "fourier": (lambda: Function(lambda m, x: torch.sin(x @ m.b.T).square().sum(-1), b=normal(4, 3)), (3,)),
    "activations": (lambda: seq(nn.Linear(3, 4), nn.ELU(), nn.Linear(4, 4), nn.SELU(), nn.Linear(4, 4), nn.Mish(), nn.Linear(4, 2), nn.Softsign()), (3,)),
    "steps of a line": (lambda: seq(nn.Linear(3, 4), nn.Hardswish(), nn.Linear(4, 4), nn.LeakyReLU(), nn.Linear(4, 2), nn.Hardtanh()), (3,)),
    "gated": (lambda: seq(nn.Linear(3, 8), nn.GLU(), nn.Linear(4, 2)), (5, 3)),
    "swiglu": (lambda: Function(lambda m, x: functional.silu(x @ m.a) * (x @ m.b) @ m.c, a=normal(3, 4), b=normal(3, 4, seed=1), c=normal(4, 3, seed=2)), (2, 3)),
    "root mean square": (lambda: seq(nn.RMSNorm(4), nn.Linear(4, 3)), (3, 4)),
    "causal attention": (lambda: Function(lambda m, x: functional.scaled_dot_product_attention(x @ m.q, x @ m.k, x, is_causal=True), q=normal(4, 4), k=normal(4, 4, seed=1)), (5, 4)),
    "cross attention": (lambda: Function(lambda m, x: torch.softmax(m.q @ (x @ m.k).mT, -1) @ x, q=normal(2, 4), k=normal(4, 4, seed=1)), (5, 4)),
    "bilinear": (lambda: Function(lambda m, x: torch.einsum("bi,oij,bj->bo", x, m.w, x.flip(1)), w=normal(2, 3, 3)), (3,)),
    "residual": (lambda: Function(lambda m, x: x + functional.conv1d(torch.tanh(functional.conv1d(x, m.a, padding=1)), m.b, padding=1), a=normal(4, 3, 3), b=normal(3, 4, 3, seed=1)), (3, 6)),
    "three axes": (lambda: seq(nn.Conv3d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(36, 2)), (1, 3, 4, 4)),
    "transposed along a line": (lambda: seq(nn.ConvTranspose1d(2, 3, 3, stride=2, padding=1), nn.Tanh(), nn.Conv1d(3, 1, 2)), (2, 4)),
    "dilated conv": (lambda: seq(nn.Conv1d(2, 3, 3, dilation=2, padding=2), nn.SiLU(), nn.Conv1d(3, 1, 1)), (2, 7)),
    "circular conv": (lambda: nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), (2, 5)),
    "average pools": (lambda: seq(nn.Conv2d(1, 2, 2), nn.AvgPool2d(2, 1), nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Conv2d(2, 1, 2)), (1, 6, 6)),
    "power pool": (lambda: seq(nn.Conv1d(1, 2, 2), nn.LPPool1d(2, 2)), (1, 7)),
    "local response": (lambda: seq(nn.Conv2d(1, 4, 1), nn.LocalResponseNorm(3), nn.Conv2d(4, 1, 2)), (1, 3, 3)),
    "shuffled": (lambda: seq(nn.Conv2d(1, 4, 2), nn.PixelShuffle(2), nn.Tanh(), nn.Conv2d(1, 2, 2)), (1, 3, 3)),
    "nearest": (lambda: seq(nn.Conv2d(1, 2, 2), nn.Upsample(scale_factor=2), nn.Tanh(), nn.Conv2d(2, 1, 3)), (1, 3, 3)),
    "running sums": (lambda: Function(lambda m, x: torch.cumsum(x * m.w, 1), w=normal(1, 4)), (3, 4)),
    "norms": (lambda: Function(lambda m, x: functional.normalize(x @ m.w, dim=-1), w=normal(3, 4)), (3,)),
    "distances": (lambda: Function(lambda m, x: ((x[:, None] - m.c) ** 2).sum(-1).exp().reciprocal(), c=normal(4, 3)), (3,)),
    "pairs": (lambda: Function(lambda m, x: torch.tanh((x[:, :, None] - x[:, None]).square().sum(-1) * m.w), w=normal(4, 4)), (4, 3)),
    "split": (lambda: Function(lambda m, x: torch.cat([part * w for part, w in zip(x.chunk(2, 1), m.w.unbind(), strict=True)], 1), w=normal(2)), (4,)),
    "picked": (lambda: Function(lambda m, x: (x @ m.w)[:, [0, 2, 2]], w=normal(3, 4)), (3,)),
    "logsumexp": (lambda: Function(lambda m, x: torch.logsumexp(x[:, None] * m.w, -1), w=normal(2, 3)), (3,)),
    "largest": (lambda: Function(lambda m, x: (x @ m.w).amax(1, keepdim=True) * m.w[0, :2], w=normal(3, 4)), (3,)),
    "unrolled": (lambda: Function(lambda m, x: torch.tanh(torch.tanh(x[:, 0] @ m.w + x[:, 1]) @ m.w + x[:, 2]), w=normal(3, 3)), (3, 3)),
    "words alone": (lambda: seq(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(12, 2)), torch.tensor([[0, 1, 4], [2, 2, 2], [3, 0, 1]])),
    "weight of a layer norm": (lambda: seq(nn.Linear(3, 4), nn.LayerNorm(4, bias=False), nn.GELU(), nn.Linear(4, 1)), (2, 3)),
    "flat rows": (lambda: Function(lambda m, x: (x.reshape(-1, 3) @ m.w).reshape(x.shape[0], -1), w=normal(3, 2)), (4, 3)),
}  # fmt: skip


def made(name: str, count: int = 3) -> tuple[Any, Any]:
    """A module in double precision, and examples."""
    torch.manual_seed(0)
    build, examples = MODULES[name]
    # The data of a graph are in single precision.
    module = build().float().double()
    if isinstance(examples, tuple):
        examples = normal(count, *examples, seed=1)
    return module, examples


def of_each(module: Any, x: Any) -> tuple[Any, Any]:
    """The parameters, and the function of these and one example."""

    def one(parameters: Any, example: Any) -> Any:
        return functional_call(module, parameters, (example[None],))[0]

    return dict(module.named_parameters()), one


def gradients(module: Any, x: Any, cotangents: Any) -> Mapping[str, Any]:
    """Those of the parameters, and of x under the name "x"."""
    parameters, one = of_each(module, x)

    def product(parameters: Any, example: Any, cotangent: Any) -> Any:
        return (one(parameters, example) * cotangent).sum()

    where = (0, 1) if x.is_floating_point() else (0,)
    function = grad(product, where)
    if isinstance(module, Recurrent):
        # It has no rule for many values.
        rows = [function(parameters, *each) for each in zip(x, cotangents, strict=True)]
        own, *others = tree_map(lambda *each: torch.stack(each), *rows)
    else:
        own, *others = vmap(function, in_dims=(None, 0, 0))(parameters, x, cotangents)
    return {**own, **dict(zip(["x"], others, strict=False))}


def jacobians(module: Any, x: Any) -> Mapping[str, Any]:
    parameters, one = of_each(module, x)
    where = (0, 1) if x.is_floating_point() else (0,)
    own, *others = vmap(jacrev(one, where), in_dims=(None, 0))(parameters, x)
    return {**own, **dict(zip(["x"], others, strict=False))}


def hessians(module: Any, x: Any) -> Any:
    """Of the sum of all outputs of an example, by the example."""
    parameters, one = of_each(module, x)
    return vmap(hessian(lambda e: one(parameters, e).sum()))(x)
