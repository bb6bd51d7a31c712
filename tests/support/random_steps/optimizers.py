"""Optimizers with random settings, and those of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import torch

Make = Callable[[Sequence[Any], float], torch.optim.Optimizer]


def draw_optimizer(draw: Random) -> tuple[str, dict[str, Any], Make]:
    """The name of an optimizer, its settings, and torch's with the same."""
    name = draw.choice(["sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw"])
    possible: dict[str, Sequence[Any]] = {
        "weight_decay": (0.1, 0.01),
        "maximize": (True,),
        **_SETTINGS[name],
    }
    settings = {k: draw.choice(v) for k, v in possible.items() if draw.random() < 0.3}
    if settings.get("nesterov"):
        settings.pop("dampening", None)
    return name, settings, lambda groups, rate: _TORCH[name](groups, lr=rate)


_MOMENTS = {
    "beta1": (0.5, 0.9),
    "beta2": (0.9, 0.99),
    "eps": (1e-4, 1e-8),
    "amsgrad": (True,),
}
_SETTINGS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "sgd": {},
    "momentum": {"momentum": (0.5,), "dampening": (0.1, 0.5), "nesterov": (True,)},
    "adagrad": {
        "lr_decay": (0.1,),
        "initial_accumulator_value": (0.1,),
        "eps": (1e-4,),
    },
    "rmsprop": {
        "alpha": (0.9,),
        "eps": (1e-4,),
        "momentum": (0.5,),
        "centered": (True,),
    },
    "adam": _MOMENTS,
    "adamw": _MOMENTS,
}
_TORCH: Mapping[str, Any] = {
    "sgd": torch.optim.SGD,
    "momentum": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def torch_settings(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a group as torch has them."""
    found = dict(settings)
    if name == "momentum":
        found.setdefault("momentum", 0.9)
    if name in ("adam", "adamw"):
        found["betas"] = (found.pop("beta1", 0.9), found.pop("beta2", 0.999))
    if "learning_rate" in found:
        found["lr"] = found.pop("learning_rate")
    return found
