"""Blocks of known architectures, written out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from support.exports.modules import Exported, integers, layer, x

# ---- Images ----


class Residual(nn.Module):
    """Two convolutions, and a third one around them, as in ResNet."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(given, made, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(made)
        self.second = nn.Conv2d(made, made, 3, 1, 1, bias=False)
        self.around = nn.Conv2d(given, made, 1, stride)

    def forward(self, a: Tensor) -> Tensor:
        return f.relu(self.second(f.relu(self.norm(self.first(a)))) + self.around(a))


class Inverted(nn.Module):
    """An expansion, a depthwise convolution and an excitation, as in EfficientNet."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Conv2d(4, 8, 1, bias=False)
        self.across = nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.norm = nn.BatchNorm2d(8)
        self.down, self.up = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.project = nn.Conv2d(8, 4, 1)

    def forward(self, a: Tensor) -> Tensor:
        wide = f.hardswish(self.norm(self.across(self.expand(a))))
        weights = torch.sigmoid(
            self.up(f.silu(self.down(f.adaptive_avg_pool2d(wide, 1))))
        )
        return a + self.project(wide * weights)


class ConvNext(nn.Module):
    """A depthwise convolution, and a perceptron on the channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.across = nn.Conv2d(4, 4, 7, padding=3, groups=4)
        self.norm = nn.LayerNorm(4)
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
        self.gamma = nn.Parameter(torch.ones(4))

    def forward(self, a: Tensor) -> Tensor:
        rows = self.norm(self.across(a).permute(0, 2, 3, 1))
        made = self.gamma * self.down(f.gelu(self.up(rows)))
        return a + made.permute(0, 3, 1, 2)


class Unet(nn.Module):
    """A step down and a step up, beside each other."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = nn.Conv2d(3, 4, 3, padding=1)
        self.inner = nn.Conv2d(4, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.last = nn.Conv2d(8, 2, 3, padding=1)

    def forward(self, a: Tensor) -> Tensor:
        outer = f.relu(self.outer(a))
        inner = f.relu(self.inner(f.max_pool2d(outer, 2)))
        return self.last(torch.cat([outer, self.up(inner)], 1))


class Segmentation(nn.Module):
    """A head whose result has the extent of the image again."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.head = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 2, 1)

    def forward(self, a: Tensor) -> Tensor:
        made = self.head(f.relu(self.down(a)))
        return f.interpolate(made, size=a.shape[-2:], mode="bilinear")


class Patches(nn.Module):
    """Patches as tokens after a class, as in a vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, stride=4)
        self.kind = nn.Parameter(torch.zeros(1, 1, 8))
        self.places = nn.Parameter(torch.zeros(1, 5, 8))
        self.block = nn.TransformerEncoderLayer(
            8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.head = nn.Linear(8, 3)

    def forward(self, a: Tensor) -> Tensor:
        tokens = self.patch(a).flatten(2).transpose(1, 2)
        kinds = self.kind.expand(a.shape[0], -1, -1)
        made = self.block(torch.cat([kinds, tokens], 1) + self.places)
        return self.head(made[:, 0])


# ---- Sequences ----


class Gpt(nn.Module):
    """A block with a causal mask, and the embedding again at the end, as in GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.norm, self.attention = nn.LayerNorm(8), nn.Linear(8, 24)
        self.project = nn.Linear(8, 8)
        self.before, self.up, self.down = (
            nn.LayerNorm(8),
            nn.Linear(8, 16),
            nn.Linear(16, 8),
        )
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, i: Tensor) -> Tensor:
        batch, length = i.shape
        a = self.tokens(i) + self.places(torch.arange(length))
        parts = self.attention(self.norm(a)).split(8, 2)
        q, k, v = (p.view(batch, length, 2, 4).transpose(1, 2) for p in parts)
        scores = q @ k.transpose(-2, -1) / 2.0
        seen = torch.tril(torch.ones(length, length)).bool()
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        a = a + self.project((weights @ v).transpose(1, 2).reshape(batch, length, 8))
        a = a + self.down(f.gelu(self.up(self.before(a)), approximate="tanh"))
        return self.head(a)


class RootMeanSquare(nn.Module):
    """The normalization of Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, a: Tensor) -> Tensor:
        return self.weight * a * torch.rsqrt(a.pow(2).mean(-1, keepdim=True) + 1e-6)


class Llama(nn.Module):
    """Rotary places, shared heads of keys and values, and a gated perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.before, self.after = RootMeanSquare(), RootMeanSquare()
        self.q, self.k, self.v = (nn.Linear(8, n, bias=False) for n in (8, 4, 4))
        self.o = nn.Linear(8, 8, bias=False)
        self.gate, self.up = nn.Linear(8, 12, bias=False), nn.Linear(8, 12, bias=False)
        self.down = nn.Linear(12, 8, bias=False)

    def forward(self, i: Tensor) -> Tensor:
        a = self.tokens(i)
        a = a + self.o(self.attend(self.before(a)))
        rows = self.after(a)
        return a + self.down(f.silu(self.gate(rows)) * self.up(rows))

    def attend(self, a: Tensor) -> Tensor:
        batch, length, _ = a.shape
        layers = ((self.q, 4), (self.k, 2), (self.v, 2))
        q, k, v = (m(a).view(batch, length, n, 2).transpose(1, 2) for m, n in layers)
        angles = torch.outer(torch.arange(length).float(), torch.tensor([1.0]))
        turns = torch.cat([angles, angles], -1)
        q, k = self.turned(q, turns), self.turned(k, turns)
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        made = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        return made.transpose(1, 2).reshape(batch, length, 8)

    @staticmethod
    def turned(a: Tensor, turns: Tensor) -> Tensor:
        low, high = a.chunk(2, -1)
        return a * turns.cos() + torch.cat([-high, low], -1) * turns.sin()


class TwoTables(nn.Module):
    """Adds biases by the same relative positions, which two parts know by themselves."""

    def __init__(self) -> None:
        super().__init__()
        for name in "ab":
            self.register_parameter(name, nn.Parameter(torch.zeros(5, 3)))
            self.register_buffer(f"{name}_places", torch.tensor([[0, 2], [2, 1]]))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(x + self.a[self.a_places.view(-1)].view(2, 2, 3))
        result: Tensor = hidden + self.b[self.b_places.view(-1)].view(2, 2, 3)
        return result


class CrossAttention(nn.Module):
    """A decoder layer on a memory, with a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True)

    def forward(self, a: Tensor, memory: Tensor) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        return self.layer(a, memory, tgt_mask=mask)


class Conformer(nn.Module):
    """The convolution of a conformer, for speech."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Conv1d(8, 16, 1), nn.Conv1d(8, 8, 1)
        self.across = nn.Conv1d(8, 8, 5, padding=2, groups=8)
        self.batch_norm = nn.BatchNorm1d(8)

    def forward(self, a: Tensor) -> Tensor:
        made = f.glu(self.up(self.norm(a).transpose(1, 2)), 1)
        return a + self.down(f.silu(self.batch_norm(self.across(made)))).transpose(1, 2)


class Causal(nn.Module):
    """A dilated convolution that sees the past alone."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.around = nn.Conv1d(3, 4, 3, dilation=2), nn.Conv1d(3, 4, 1)

    def forward(self, a: Tensor) -> Tensor:
        return f.relu(self.conv(f.pad(a, (4, 0)))) + self.around(a)


# ---- Others ----


class Autoencoder(nn.Module):
    """A variational autoencoder, whose noise is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 4), nn.Linear(2, 6)

    def forward(self, a: Tensor, noise: Tensor) -> Any:
        mean, variance = self.encoder(a).chunk(2, -1)
        return self.decoder(mean + torch.exp(0.5 * variance) * noise), mean, variance


class Graphs(nn.Module):
    """A convolution on a graph, whose edges are an input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, a: Tensor, edges: Tensor) -> Tensor:
        edges = edges.abs() + 1
        scale = edges.sum(-1).rsqrt()
        return f.relu((scale[:, None] * edges * scale) @ self.layer(a))


class Experts(nn.Module):
    """Linear layers, weighted by a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 5) for _ in range(3))

    def forward(self, a: Tensor) -> Tensor:
        weights = self.gate(a).softmax(-1)
        made = torch.stack([expert(a) for expert in self.experts], -1)
        return (made * weights[:, None]).sum(-1)


class Mixer(nn.Module):
    """Perceptrons on the tokens and on the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(6), nn.LayerNorm(6)
        self.tokens = nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 5))
        self.channels = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6))

    def forward(self, a: Tensor) -> Tensor:
        a = a + self.tokens(self.first(a).transpose(1, 2)).transpose(1, 2)
        return a + self.channels(self.second(a))


def encoder(**settings: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, **settings)


def stack() -> nn.Module:
    return nn.TransformerEncoder(
        encoder(), 2, nn.LayerNorm(8), enable_nested_tensor=False
    )


NETWORKS: tuple[Exported, ...] = (
    layer("residual", lambda: nn.Sequential(Residual(3, 4, 2), Residual(4, 4, 1)), x(1, 3, 8, 8)),
    layer("inverted_residual", Inverted, x(2, 4, 6, 6)),
    layer("convnext_block", ConvNext, x(1, 4, 6, 6)),
    layer("unet", Unet, x(1, 3, 8, 8)),
    layer("segmentation", Segmentation, x(1, 3, 10, 10)),
    layer("vision_transformer", Patches, x(2, 3, 8, 8)),
    layer("encoder", encoder, x(2, 5, 8)),
    layer("encoder_norm_first", lambda: encoder(norm_first=True, activation="gelu"), x(2, 5, 8)),
    layer("encoder_of_two", stack, x(2, 5, 8)),
    layer("two_tables", TwoTables, x(2, 2, 3)),
    layer("decoder", CrossAttention, x(2, 5, 8), x(2, 3, 8)),
    layer("gpt", Gpt, integers(11, 2, 6)),
    layer("llama_block", Llama, integers(11, 2, 6)),
    layer("conformer", Conformer, x(2, 6, 8)),
    layer("causal_convolution", Causal, x(2, 3, 8)),
    layer("autoencoder", Autoencoder, x(3, 6), x(3, 2)),
    layer("graph_convolution", Graphs, x(5, 3), x(5, 5)),
    layer("experts", Experts, x(3, 4)),
    layer("mixer", Mixer, x(2, 5, 6)),
)  # fmt: skip
