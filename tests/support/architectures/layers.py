"""Networks of torch.nn alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Last(nn.Module):  # type: ignore[misc]
    """A recurrent network, and a layer on its last state."""

    def __init__(self, body: Any, width: int) -> None:
        super().__init__()
        self.words, self.body, self.head = (
            nn.Embedding(20, 5),
            body,
            nn.Linear(width, 3),
        )

    def forward(self, ids: Any) -> Any:
        states, _ = self.body(self.words(ids))
        return self.head(states[:, -1])


class Stateful(nn.Module):  # type: ignore[misc]
    """A recurrent network with a given state, which it returns."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Any, state: Any) -> Any:
        return self.body(x, state)


class Translator(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.body = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

    def forward(self, source: Any, target: Any) -> Any:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.body(self.words(source), self.words(target), tgt_mask=causal)


def ids(length: int = 6) -> Any:
    return torch.randint(0, 20, (2, length))


def encoder() -> Any:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def autoencoder() -> Any:
    return nn.Sequential(
        *(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.BatchNorm2d(8),
            nn.ELU(),
            nn.Conv2d(8, 8, 3, 2, 1),
            nn.GroupNorm(2, 8),
        ),
        *(
            nn.Mish(),
            nn.ConvTranspose2d(8, 8, 3, 2, 1, 1),
            nn.InstanceNorm2d(8, affine=True),
            nn.Hardswish(),
        ),
        *(
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(8, 3, 3, padding=1),
            nn.Tanh(),
        ),
    )


LAYERS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "rnn": lambda: (Last(nn.RNN(5, 4, 2, batch_first=True), 4), [ids()]),
    "lstm": lambda: (Last(nn.LSTM(5, 4, 2, batch_first=True), 4), [ids()]),
    "gru": lambda: (Last(nn.GRU(5, 4, 2, batch_first=True), 4), [ids()]),
    "bidirectional_lstm": lambda: (
        Last(nn.LSTM(5, 4, 2, bidirectional=True, batch_first=True), 8),
        [ids()],
    ),
    "bidirectional_gru": lambda: (
        Last(nn.GRU(5, 4, 2, bidirectional=True, batch_first=True), 8),
        [ids()],
    ),
    "projected_lstm": lambda: (
        Last(nn.LSTM(5, 4, proj_size=3, batch_first=True), 3),
        [ids()],
    ),
    "stateful_lstm": lambda: (
        Stateful(nn.LSTM(5, 4, 2)),
        [torch.randn(6, 2, 5), (torch.randn(2, 2, 4), torch.randn(2, 2, 4))],
    ),
    "stateful_gru": lambda: (
        Stateful(nn.GRU(5, 4, 2)),
        [torch.randn(6, 2, 5), torch.randn(2, 2, 4)],
    ),
    "lstm_cell": lambda: (
        Stateful(nn.LSTMCell(5, 4)),
        [torch.randn(2, 5), (torch.randn(2, 4), torch.randn(2, 4))],
    ),
    "gru_cell": lambda: (
        Stateful(nn.GRUCell(5, 4)),
        [torch.randn(2, 5), torch.randn(2, 4)],
    ),
    "transformer": lambda: (Translator(), [ids(), ids(5)]),
    "transformer_encoder": lambda: (encoder(), [torch.randn(2, 6, 8)]),
    "autoencoder": lambda: (autoencoder(), [torch.randn(2, 3, 16, 16)]),
}


def of_torch(name: str) -> tuple[Any, Any]:
    module, given = LAYERS[name]()
    return module, given
