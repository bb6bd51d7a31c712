"""Networks that are written here, as modules of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Scores(nn.Module):  # type: ignore[misc]
    """The scores of a language model for the tokens that it reads."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        seen = torch.ones_like(tokens)
        scores: torch.Tensor = self.model(tokens, attention_mask=seen).logits
        return scores


class UNet(nn.Module):  # type: ignore[misc]
    """After U-Net, with transposed convolutions and with upsampling on the way up."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 128)) -> None:
        super().__init__()
        self.down = nn.ModuleList(map(twice, (3, *widths), widths))
        wider = widths[:0:-1]
        self.wider = nn.ModuleList(
            nn.ConvTranspose2d(w, w // 2, 2, stride=2)
            if index % 2
            else nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(w, w // 2, 1))
            for index, w in enumerate(wider)
        )
        self.up = nn.ModuleList(twice(w, w // 2) for w in wider)
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        beside = []
        for index, layers in enumerate(self.down):
            x = layers(nn.functional.max_pool2d(x, 2) if index else x)
            beside.append(x)
        for double, layers, kept in zip(
            self.wider, self.up, beside[-2::-1], strict=True
        ):
            x = layers(torch.cat([double(x), kept], dim=1))
        y: torch.Tensor = self.head(x)
        return y


def twice(channels: int, wider: int) -> nn.Module:
    """Two convolutions."""
    return nn.Sequential(
        nn.Conv2d(channels, wider, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(wider, wider, 3, padding=1),
        nn.ReLU(),
    )


class LSTM(nn.Module):  # type: ignore[misc]
    """A long short-term memory of two layers, and what its last state says."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.LSTM(128, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.memory(x)[0][:, -1])
        return y


class GPT2(nn.Module):  # type: ignore[misc]
    """After GPT-2, with its extents: blocks of attention to what comes before."""

    def __init__(
        self, words: int, width: int = 768, layers: int = 12, heads: int = 12
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return nn.functional.linear(self.norm(x), self.words.weight)


class Block(nn.Module):  # type: ignore[misc]
    """Attention, then two layers, each added to what it reads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mixed = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.wider, self.narrower = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mixed(self.attended(self.attention(self.norm1(x))))
        hidden = nn.functional.gelu(self.wider(self.norm2(x)), approximate="tanh")
        y: torch.Tensor = x + self.narrower(hidden)
        return y

    def attended(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in x.chunk(3, dim=2)
        )
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        length = x.shape[1]
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        shares = scores.masked_fill(later, -1e9).softmax(3)
        return (shares @ v).transpose(1, 2).flatten(2)


WRITTEN: dict[str, Callable[[], nn.Module]] = {"unet": UNet, "lstm": LSTM}
