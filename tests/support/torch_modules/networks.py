"""Networks of all kinds, in small."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from support.torch_modules import Case, Cases


def seq(*layers: Any) -> nn.Sequential:
    return nn.Sequential(*layers)


def conv(given: int, made: int, *settings: Any) -> nn.Sequential:
    return seq(
        nn.Conv2d(given, made, *settings, bias=False), nn.BatchNorm2d(made), nn.ReLU()
    )


class Residual(nn.Module):  # type: ignore[misc]
    def __init__(self, body: Any, after: Any = None) -> None:
        super().__init__()
        self.body, self.after = body, after or nn.Identity()

    def forward(self, x: Any) -> Any:
        return self.after(x + self.body(x))


class Excite(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(4, 2), nn.Linear(2, 4)

    def forward(self, x: Any) -> Any:
        s = torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3))))))
        return x * s[:, :, None, None]


class Dense(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([conv(3 + 2 * i, 2, 3, 1, 1) for i in range(3)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


class Inception(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (
            nn.Conv2d(3, 2, 1),
            seq(nn.Conv2d(3, 2, 1), nn.Conv2d(2, 3, 3, padding=1)),
        )
        self.c = seq(nn.MaxPool2d(3, 1, 1), nn.Conv2d(3, 2, 1))

    def forward(self, x: Any) -> Any:
        return torch.cat([self.a(x), self.b(x), self.c(x)], 1)


class UNet(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle = conv(2, 4, 3, 1, 1), conv(4, 6, 3, 1, 1)
        self.up, self.out = nn.ConvTranspose2d(6, 4, 2, 2), nn.Conv2d(8, 1, 1)

    def forward(self, x: Any) -> Any:
        skip = self.down(x)
        h = self.up(self.middle(F.max_pool2d(skip, 2)))
        return self.out(torch.cat([skip, h], 1))


class Pyramid(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 2, 1)
        self.la, self.lb = nn.Conv2d(4, 3, 1), nn.Conv2d(4, 3, 1)

    def forward(self, x: Any) -> Any:
        a = self.a(x)
        b = self.b(a)
        top = self.lb(b)
        return self.la(a) + F.interpolate(top, size=a.shape[-2:], mode="nearest"), top


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int = 2, is_causal: bool = False) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.is_causal = heads, is_causal

    def forward(self, x: Any) -> Any:
        b, s, w = x.shape
        q, k, v = (
            self.qkv(x).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.out(y.transpose(1, 2).reshape(b, s, w))


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, is_causal: bool = False) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, is_causal=is_causal)
        self.mlp = seq(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))


def block(width: int) -> nn.Module:
    return Block(width)


class ViT(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.cls, self.pos = (
            nn.Parameter(torch.zeros(1, 1, 8)),
            nn.Parameter(torch.ones(1, 5, 8) * 0.1),
        )
        self.block, self.head = Block(8), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        return self.head(self.block(x)[:, 0])


class GPT(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.block, self.norm = Block(8, is_causal=True), nn.LayerNorm(8)

    def forward(self, i: Any) -> Any:
        places = torch.arange(i.shape[1], device=i.device)
        x = self.words(i) + self.places(places)
        return self.norm(self.block(x)) @ self.words.weight.t()


class RMS(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def turned(x: Any) -> Any:
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class Llama(nn.Module):  # type: ignore[misc]
    """Rotary positions, groups of heads, gated units."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.words = RMS(8), nn.Embedding(11, 8)
        self.q, self.kv, self.o = (
            nn.Linear(8, 8, False),
            nn.Linear(8, 8, False),
            nn.Linear(8, 8, False),
        )
        self.gate, self.up, self.down = (
            nn.Linear(8, 12, False),
            nn.Linear(8, 12, False),
            nn.Linear(12, 8, False),
        )
        frequencies = 1.0 / (100.0 ** (torch.arange(0, 4, 2).float() / 4))
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, i: Any) -> Any:
        x = self.words(i)
        b, s, _ = x.shape
        angles = torch.outer(torch.arange(s).float(), self.frequencies)
        cos, sin = (
            torch.cat((angles, angles), -1).cos(),
            torch.cat((angles, angles), -1).sin(),
        )
        h = self.norm(x)
        q = self.q(h).view(b, s, 2, 4).transpose(1, 2)
        k, v = self.kv(h).view(b, s, 2, 1, 4).permute(2, 0, 3, 1, 4)
        q, k = q * cos + turned(q) * sin, k * cos + turned(k) * sin
        k, v = (t.expand(b, 2, s, 4) for t in (k, v))
        mask = torch.full((s, s), float("-inf")).triu(1)
        w = F.softmax(q @ k.transpose(2, 3) / math.sqrt(4) + mask, dim=-1)
        x = x + self.o((w @ v).transpose(1, 2).reshape(b, s, 8))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


class Bert(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8, padding_idx=0)
        self.layer = nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, batch_first=True, activation="gelu"
        )

    def forward(self, i: Any, mask: Any) -> Any:
        h = self.layer(self.words(i), src_key_padding_mask=mask == 0)
        m = mask.unsqueeze(-1).float()
        return (h * m).sum(1) / m.sum(1)


class T5Bias(nn.Module):  # type: ignore[misc]
    """Relative positions in buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Embedding(8, 2)

    def forward(self, scores: Any) -> Any:
        s = scores.shape[-1]
        relative = torch.arange(s)[None] - torch.arange(s)[:, None]
        buckets = (relative > 0).long() * 4 + torch.clamp(relative.abs(), max=3)
        return (scores + self.bias(buckets).permute(2, 0, 1)).softmax(-1)


class Swin(nn.Module):  # type: ignore[misc]
    """Windows, which are shifted."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention(4)

    def forward(self, x: Any) -> Any:
        x = torch.roll(x, (-1, -1), (1, 2))
        b, h, w, c = x.shape
        parts = (
            x.view(b, h // 2, 2, w // 2, 2, c)
            .permute(0, 1, 3, 2, 4, 5)
            .reshape(-1, 4, c)
        )
        y = (
            self.attention(parts)
            .view(b, h // 2, w // 2, 2, 2, c)
            .permute(0, 1, 3, 2, 4, 5)
        )
        return torch.roll(y.reshape(b, h, w, c), (1, 1), (1, 2))


class ConvNeXt(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.dw, self.norm = nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.LayerNorm(4)
        self.a, self.b, self.gamma = (
            nn.Linear(4, 8),
            nn.Linear(8, 4),
            nn.Parameter(torch.ones(4) * 0.1),
        )

    def forward(self, x: Any) -> Any:
        h = self.norm(self.dw(x).permute(0, 2, 3, 1))
        return x + (self.gamma * self.b(F.gelu(self.a(h)))).permute(0, 3, 1, 2)


class Mixer(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.channels = (
            seq(nn.Linear(5, 6), nn.GELU(), nn.Linear(6, 5)),
            nn.Linear(4, 4),
        )

    def forward(self, x: Any) -> Any:
        x = x + self.tokens(x.transpose(1, 2)).transpose(1, 2)
        return x + self.channels(x)


class Translator(nn.Module):  # type: ignore[misc]
    """Encoder and decoder, with attention, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.cell, self.out = (
            nn.GRU(3, 4, batch_first=True),
            nn.GRUCell(4, 4),
            nn.Linear(8, 3),
        )

    def forward(self, x: Any) -> Any:
        memory, h = self.encoder(x)
        h, made = h[0], []
        for _ in range(2):
            weights = torch.softmax((memory @ h.unsqueeze(-1)).squeeze(-1), 1)
            context = (weights.unsqueeze(1) @ memory).squeeze(1)
            h = self.cell(context, h)
            made.append(self.out(torch.cat([h, context], -1)))
        return torch.stack(made, 1)


class VAE(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 4), nn.Linear(2, 6)

    def forward(self, x: Any, noise: Any) -> Any:
        mean, log_variance = self.encode(x).chunk(2, -1)
        z = mean + noise * torch.exp(0.5 * log_variance)
        kl = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp(), -1)
        return torch.sigmoid(self.decode(z)), kl.mean()


class Diffusion(nn.Module):  # type: ignore[misc]
    """The step as sines and cosines."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.conv, self.norm = (
            nn.Linear(4, 4),
            nn.Conv2d(2, 4, 3, padding=1),
            nn.GroupNorm(2, 4),
        )

    def forward(self, x: Any, t: Any) -> Any:
        f = torch.exp(-math.log(100.0) * torch.arange(2) / 2)
        angles = t[:, None].float() * f[None]
        e = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        return F.silu(self.norm(self.conv(x)) * (1 + e[:, :, None, None]))


class GraphConv(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x: Any, a: Any) -> Any:
        a = a + torch.eye(a.shape[-1])
        d = a.sum(-1).clamp(min=1e-3).pow(-0.5)
        return F.relu(self.linear((d[:, None] * a * d[None]) @ x))


class EdgeConv(nn.Module):  # type: ignore[misc]
    """Messages along edges that are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Any, edges: Any) -> Any:
        source, target = edges[0], edges[1]
        message = torch.relu(
            self.linear(torch.cat([x[source], x[target] - x[source]], -1))
        )
        return torch.zeros(x.shape[0], 3).index_add(0, target, message)


class Capsules(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(
            torch.randn(3, 2, 4, 2, generator=torch.Generator().manual_seed(1))
        )

    def forward(self, u: Any) -> Any:
        votes = torch.einsum("bid,ijdk->bijk", u, self.w)
        b = torch.zeros(votes.shape[:3])
        for _ in range(2):
            s = (b.softmax(2).unsqueeze(-1) * votes).sum(1)
            n = s.pow(2).sum(-1, keepdim=True)
            v = n / (1 + n) * s / (n + 1e-8).sqrt()
            b = b + (votes * v.unsqueeze(1)).sum(-1)
        return v.norm(dim=-1)


class Experts(nn.Module):  # type: ignore[misc]
    """All experts, weighted by the largest of their gates."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = (
            nn.Linear(3, 4),
            nn.ModuleList([nn.Linear(3, 2) for _ in range(4)]),
        )

    def forward(self, x: Any) -> Any:
        scores, chosen = self.gate(x).softmax(-1).topk(2, -1)
        weights = torch.zeros(x.shape[0], 4).scatter(
            1, chosen, scores / scores.sum(-1, keepdim=True)
        )
        made = torch.stack([expert(x) for expert in self.experts], 1)
        return (weights.unsqueeze(-1) * made).sum(1)


class Memory(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.keys, self.values = (
            nn.Parameter(torch.eye(4, 3)),
            nn.Parameter(torch.eye(4, 2)),
        )

    def forward(self, q: Any) -> Any:
        return (
            F.softmax(F.cosine_similarity(q[:, None], self.keys[None], dim=-1) * 5, -1)
            @ self.values
        )


class WaveNet(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Conv1d(2, 4, 2, dilation=2**i) for i in range(2)]
        )
        self.skips = nn.ModuleList([nn.Conv1d(2, 2, 1) for _ in range(2)])

    def forward(self, x: Any) -> Any:
        total = 0
        for i, (layer, skip) in enumerate(zip(self.layers, self.skips, strict=True)):
            a, b = layer(F.pad(x, (2**i, 0))).chunk(2, 1)
            h = torch.tanh(a) * torch.sigmoid(b)
            total = total + skip(h)
            x = x + h
        return total


class Deformable(nn.Module):  # type: ignore[misc]
    """Samples at offsets that are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x: Any) -> Any:
        theta = torch.eye(2, 3)[None].expand(x.shape[0], -1, -1)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        moved = grid + 0.2 * torch.tanh(self.offsets(x)).permute(0, 2, 3, 1)
        return F.grid_sample(x, moved, align_corners=False)


class Spatial(nn.Module):  # type: ignore[misc]
    """A spatial transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 6)

    def forward(self, x: Any) -> Any:
        theta = self.linear(x.flatten(1)).view(-1, 2, 3) * 0.1 + torch.eye(2, 3)
        return F.grid_sample(
            x,
            F.affine_grid(theta, list(x.shape), align_corners=True),
            align_corners=True,
        )


class Field(nn.Module):  # type: ignore[misc]
    """NeRF: positions as sines, a density and a colour, summed along a ray."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.out = nn.Linear(15, 8), nn.Linear(8, 4)

    def forward(self, points: Any, steps: Any) -> Any:
        parts = [points] + [
            f(points * 2.0**i) for i in range(2) for f in (torch.sin, torch.cos)
        ]
        made = self.out(F.relu(self.body(torch.cat(parts, -1))))
        density, colour = F.softplus(made[..., 0]), torch.sigmoid(made[..., 1:])
        alpha = 1 - torch.exp(-density * steps)
        kept = torch.cumprod(
            torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1
        )
        return ((alpha * kept[:, :-1]).unsqueeze(-1) * colour).sum(1)


class Flow(nn.Module):  # type: ignore[misc]
    """An affine coupling, with the logarithm of its determinant."""

    def __init__(self) -> None:
        super().__init__()
        self.net = seq(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 4))

    def forward(self, x: Any) -> Any:
        a, b = x.chunk(2, 1)
        scale, shift = self.net(a).chunk(2, 1)
        scale = torch.tanh(scale)
        return torch.cat([a, b * scale.exp() + shift], 1), scale.sum(1)


class Ode(nn.Module):  # type: ignore[misc]
    """Steps of Runge and Kutta."""

    def __init__(self) -> None:
        super().__init__()
        self.net = seq(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))

    def forward(self, x: Any) -> Any:
        for _ in range(2):
            a = self.net(x)
            b = self.net(x + 0.05 * a)
            c = self.net(x + 0.05 * b)
            x = x + 0.1 / 6 * (a + 2 * b + 2 * c + self.net(x + 0.1 * c))
        return x


class Highway(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.body = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        g = torch.sigmoid(self.gate(x))
        return g * F.relu(self.body(x)) + (1 - g) * x


class Detector(nn.Module):  # type: ignore[misc]
    """A head of YOLO: boxes from anchors and cells."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 12, 1)
        self.register_buffer("anchors", torch.tensor([[1.0, 2.0], [2.0, 1.0]]))

    def forward(self, x: Any) -> Any:
        b, _, h, w = x.shape
        y = self.conv(x).view(b, 2, 6, h, w).permute(0, 1, 3, 4, 2).sigmoid()
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        cells = torch.stack((columns, rows), -1).view(1, 1, h, w, 2).float()
        place = (y[..., 0:2] * 2 - 0.5 + cells) * 8
        size = (y[..., 2:4] * 2) ** 2 * self.anchors.view(1, 2, 1, 1, 2)
        return torch.cat((place, size, y[..., 4:]), -1).view(b, -1, 6)


class SuperResolution(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 8, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return F.pixel_shuffle(self.conv(x), 2) + F.interpolate(
            x, scale_factor=2, mode="bicubic"
        )


class Style(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Any, y: Any) -> Any:
        a, b = (self.conv(t).flatten(2) for t in (x, y))
        grams = [f @ f.transpose(1, 2) / f.shape[-1] for f in (a, b)]
        return F.mse_loss(*grams)


class Triplets(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.net = seq(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))

    def forward(self, a: Any, p: Any, n: Any) -> Any:
        a, p, n = (F.normalize(self.net(x), dim=-1) for x in (a, p, n))
        return F.relu((a - p).pow(2).sum(-1) - (a - n).pow(2).sum(-1) + 0.2).mean()


class Contrast(nn.Module):  # type: ignore[misc]
    """CLIP."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = nn.Linear(4, 3), nn.Linear(5, 3)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Any, y: Any) -> Any:
        a, b = F.normalize(self.image(x), dim=-1), F.normalize(self.text(y), dim=-1)
        logits = self.scale.exp() * a @ b.t()
        target = torch.arange(x.shape[0])
        return (
            F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)
        ) / 2


class Pooling(nn.Module):  # type: ignore[misc]
    """Attention over what is not padding."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(3, 1)

    def forward(self, x: Any, mask: Any) -> Any:
        scores = self.score(torch.tanh(x)).squeeze(-1).masked_fill(~mask, -1e9)
        return torch.einsum("bs,bsd->bd", scores.softmax(-1), x)


class Physics(nn.Module):  # type: ignore[misc]
    """A PINN: a derivative of its own network in the loss, by functions of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = seq(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x: Any) -> Any:
        _, slope = torch.func.jvp(self.net, (x,), (torch.ones_like(x),))
        return ((slope - x) ** 2).mean()


class Recommender(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items, self.bias = (
            nn.Embedding(5, 3),
            nn.Embedding(6, 3),
            nn.Embedding(6, 1),
        )

    def forward(self, u: Any, i: Any) -> Any:
        return (self.users(u) * self.items(i)).sum(-1) + self.bias(i).squeeze(-1)


class Tagger(nn.Module):  # type: ignore[misc]
    """Scores of a chain of tags: the forward algorithm of a CRF."""

    def __init__(self) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.eye(3) * 0.5)

    def forward(self, emissions: Any) -> Any:
        alpha = emissions[:, 0]
        for step in range(1, emissions.shape[1]):
            alpha = (
                torch.logsumexp(alpha.unsqueeze(2) + self.transitions, 1)
                + emissions[:, step]
            )
        return alpha.logsumexp(1)


class StateSpace(nn.Module):  # type: ignore[misc]
    """A linear recurrence with gates, as in Mamba."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (
            nn.Parameter(torch.zeros(2, 3)),
            nn.Linear(2, 3),
            nn.Linear(2, 3),
        )

    def forward(self, x: Any) -> Any:
        decay, h, made = torch.exp(-self.a.exp()), torch.zeros(x.shape[0], 2, 3), []
        for step in range(x.shape[1]):
            u = x[:, step]
            h = h * decay + u.unsqueeze(-1) * self.b(u).unsqueeze(1)
            made.append((h * self.c(u).unsqueeze(1)).sum(-1))
        return torch.stack(made, 1)


class Adapter(nn.Module):  # type: ignore[misc]
    """LoRA."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(4, 3)
        self.base.requires_grad_(False)
        self.a, self.b = (
            nn.Parameter(torch.ones(2, 4) * 0.1),
            nn.Parameter(torch.ones(3, 2) * 0.2),
        )

    def forward(self, x: Any) -> Any:
        return self.base(x) + (x @ self.a.t() @ self.b.t()) * 0.5


def encoder(**options: Any) -> Any:
    layer = nn.TransformerEncoderLayer(
        8, 2, 12, dropout=0.0, batch_first=True, **options
    )
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def pixels(*shape: int) -> Any:
    return lambda r: [r(*shape)]


CASES: Cases = {
    "mlp": Case(lambda: seq(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3), nn.LogSoftmax(-1)), pixels(3, 4)),
    "lenet": Case(lambda: seq(nn.Conv2d(1, 3, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2), nn.Conv2d(3, 4, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(64, 5)), pixels(2, 1, 12, 12)),
    "residual": Case(lambda: Residual(seq(conv(3, 3, 3, 1, 1), nn.Conv2d(3, 3, 3, padding=1)), nn.ReLU()), pixels(2, 3, 6, 6)),
    "residual, train": Case(lambda: Residual(seq(conv(3, 3, 3, 1, 1), nn.Conv2d(3, 3, 3, padding=1)), nn.ReLU()), pixels(2, 3, 6, 6), trains=True),
    "bottleneck": Case(lambda: Residual(seq(conv(4, 2, 1), conv(2, 2, 3, 1, 1), nn.Conv2d(2, 4, 1))), pixels(2, 4, 5, 5)),
    "inverted residual": Case(lambda: Residual(seq(nn.Conv2d(3, 6, 1), nn.ReLU6(), nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.Hardswish(), nn.Conv2d(6, 3, 1))), pixels(1, 3, 5, 5)),
    "squeeze and excite": Case(Excite, pixels(2, 4, 3, 3)), "dense": Case(Dense, pixels(1, 3, 4, 4)), "inception": Case(Inception, pixels(1, 3, 4, 4)),
    "u-net": Case(UNet, pixels(1, 2, 6, 6)), "u-net, train": Case(UNet, pixels(2, 2, 6, 6), trains=True), "pyramid": Case(Pyramid, pixels(1, 2, 8, 8)),
    "vit": Case(ViT, pixels(2, 3, 8, 8)), "gpt": Case(GPT, lambda r: [r.ints(11, 2, 5)]), "llama": Case(Llama, lambda r: [r.ints(11, 2, 5)]),
    "bert": Case(Bert, lambda r: [r.ints(11, 2, 4), torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])]), "t5 bias": Case(T5Bias, pixels(2, 2, 4, 4)), "swin": Case(Swin, pixels(1, 4, 4, 4)),
    "convnext": Case(ConvNeXt, pixels(1, 4, 4, 4)), "mixer": Case(Mixer, pixels(2, 5, 4)), "translator": Case(Translator, pixels(2, 3, 3)), "vae": Case(VAE, lambda r: [r(3, 6), r(3, 2)]),
    "diffusion": Case(Diffusion, lambda r: [r(2, 2, 4, 4), r.ints(50, 2)]), "graph convolution": Case(
        GraphConv, lambda r: [r(4, 3), r.bools(4, 4).float()]), "edge convolution": Case(EdgeConv, lambda r: [
        r(4, 3), r.ints(4, 2, 6)]),
    "capsules": Case(Capsules, pixels(2, 3, 4)), "experts": Case(Experts, pixels(3, 3)), "memory": Case(Memory,
        pixels(2, 3)), "wavenet": Case(WaveNet, pixels(1, 2, 6)), "deformable": Case(Deformable, pixels(1, 2,
        4, 4)), "spatial transformer": Case(Spatial, pixels(2, 2, 4, 4)),
    "radiance field": Case(Field, lambda r: [r(2, 3, 3), r.positive(2, 3)]), "flow": Case(Flow, pixels(3, 4)),
        "ode": Case(Ode, pixels(2, 3)), "highway": Case(Highway, pixels(2, 3)), "detector": Case(Detector,
        pixels(1, 2, 3, 3)), "super-resolution": Case(SuperResolution, pixels(1, 2, 4, 4)),
    "style": Case(Style, lambda r: [r(1, 3, 5, 5), r(1, 3, 5, 5)]), "triplets": Case(Triplets, lambda r: [r(3,
        4), r(3, 4), r(3, 4)]), "contrast": Case(Contrast, lambda r: [r(3, 4), r(3, 5)]), "attention pooling": Case(
        Pooling, lambda r: [r(2, 4, 3), torch.tensor([[True, True, True, False], [True, False, True, True]])]),
    "physics": Case(Physics, lambda r: [r(4, 1)]), "recommender": Case(Recommender, lambda r: [r.ints(5, 4), r.ints(
        6, 4)]), "tagger": Case(Tagger, pixels(2, 4, 3)), "state space": Case(StateSpace, pixels(2, 4, 2)),
        "adapter": Case(Adapter, pixels(2, 4)),
    "encoder": Case(encoder, pixels(2, 4, 8)), "encoder, norm first": Case(lambda: encoder(norm_first=True,
        activation="gelu"), pixels(2, 4, 8)), "encoder, train": Case(encoder, pixels(2, 4, 8), trains=True),
    "transformer": Case(lambda: nn.Transformer(8, 2, 1, 1, 12, dropout=0.0, batch_first=True), lambda r: [r(2,
        4, 8), r(2, 3, 8)]), "decoder": Case(lambda: nn.TransformerDecoderLayer(8, 2, 12, dropout=0.0,
        batch_first=True), lambda r: {"tgt": r(2, 3, 8), "memory": r(2, 4, 8), "tgt_mask": torch.full((3, 3),
        float("-inf")).triu(1)}),
    "lstm classifier": Case(lambda: Last(nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)), pixels(2, 4, 3)),
        "gru, both ways": Case(lambda: Last(nn.GRU(3, 4, bidirectional=True, batch_first=True), nn.Linear(8, 2)),
        pixels(2, 4, 3)),
    "autoencoder": Case(lambda: seq(nn.Conv2d(1, 3, 3, 2, 1), nn.ELU(), nn.ConvTranspose2d(3, 1, 4, 2, 1), nn.Sigmoid(
        )), pixels(1, 1, 6, 6)), "generator": Case(lambda: seq(nn.Linear(4, 18), nn.Unflatten(1, (2, 3, 3)),
        nn.BatchNorm2d(2), nn.ConvTranspose2d(2, 1, 4, 2, 1), nn.Tanh()), pixels(2, 4)), "discriminator": Case(
        lambda: seq(nn.utils.parametrizations.spectral_norm(nn.Conv2d(1, 3, 4, 2, 1)), nn.LeakyReLU(0.2), nn.Flatten(
        ), nn.Linear(27, 1)), pixels(2, 1, 6, 6)),
    "keyword spotting": Case(lambda: seq(nn.Conv2d(1, 4, (4, 3), (2, 1)), nn.ReLU(), nn.Conv2d(4, 4, 3, groups=4),
        nn.Conv2d(4, 4, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)), pixels(1, 1,
        14, 8)), "temporal": Case(lambda: Residual(seq(nn.ConstantPad1d((4, 0), 0.0), nn.Conv1d(2, 2, 3,
        dilation=2), nn.ReLU())), pixels(1, 2, 6)), "shuffle": Case(lambda: seq(nn.Conv2d(4, 4, 1, groups=2),
        nn.ChannelShuffle(2), nn.Conv2d(4, 4, 3, padding=1, groups=4)), pixels(1, 4, 4, 4)),
}  # fmt: skip


class Last(nn.Module):  # type: ignore[misc]
    """What a recurrent layer says at the end."""

    def __init__(self, layer: Any, head: Any) -> None:
        super().__init__()
        self.layer, self.head = layer, head

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(x)[0][:, -1])
