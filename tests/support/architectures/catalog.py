"""All architectures, by name: package/network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from bench.workers.torch_models import declare_compiled_operators
from support.architectures import images, layers, texts

_SOURCES: dict[str, tuple[Callable[[str], Any], Mapping[str, Any]]] = {
    "torch": (layers.of_torch, layers.LAYERS),
    "torchvision": (images.of_torchvision, images.TORCHVISION),
    "timm": (images.of_timm, images.TIMM),
    "transformers": (texts.of_transformers, texts.TRANSFORMERS),
}

# Those that are refused: why, and what to write instead.
REFUSED = {
    "transformers/led": "whether attention is global depends on the values of a mask",
    "transformers/longformer": "whether attention is global depends on the values of a mask",
    "transformers/vilt": "the number of patches depends on the values of a mask",
}

NAMES = [f"{package}/{net}" for package, (_, nets) in _SOURCES.items() for net in nets]
ARRIVING = [name for name in NAMES if name not in REFUSED]


def make(name: str, seed: int = 0) -> tuple[Any, Any]:
    """The module of an architecture, with random weights, and its arguments."""
    package, net = name.split("/")
    declare_compiled_operators()
    torch.manual_seed(seed)
    create, _ = _SOURCES[package]
    module, given = create(net)
    return module, given


def package_of(name: str) -> str:
    """The package that an architecture comes from."""
    return name.split("/", maxsplit=1)[0]
