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


WRITTEN: dict[str, Callable[[], nn.Module]] = {"unet": UNet, "lstm": LSTM}
