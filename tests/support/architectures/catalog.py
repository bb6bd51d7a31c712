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
    "transformers/encodec": "computes with numbers that it keeps in buffers, in Python",
    "transformers/fnet": "NNEF has no complex numbers, which the Fourier transform needs",
    "transformers/gpt_oss": "its experts are an operation of its own: `model.set_experts_implementation('batched_mm')`",
    "transformers/jamba": "its experts are an operation of its own: `model.set_experts_implementation('batched_mm')`",
    "transformers/led": "whether attention is global depends on the values of a mask",
    "transformers/longformer": "whether attention is global depends on the values of a mask",
    "transformers/mixtral": "its experts are an operation of its own: `model.set_experts_implementation('batched_mm')`",
    "transformers/qwen2_moe": "its experts are an operation of its own: `model.set_experts_implementation('batched_mm')`",
    "transformers/vilt": "which patches there are depends on the values of a mask",
}

NAMES = [f"{package}/{net}" for package, (_, nets) in _SOURCES.items() for net in nets]
ARRIVING = [name for name in NAMES if name not in REFUSED]

# Other random numbers than those of seed 0, with which a decision, such as the sign at a
# ReLU, falls differently in single and in double precision: the gradients are then those
# of two different pieces. In the interpreter, in double precision, they agree.
_SEEDS = {
    "timm/hgnet_tiny": 1,
    "timm/vitamin_small_224": 1,
    "timm/mobilenet_edgetpu_v2_xs": 1,
    "timm/lambda_resnet26t": 1,
    "timm/resnetv2_50": 1,
    "timm/selecsls42b": 1,
    "timm/swinv2_tiny_window8_256": 2,
    "timm/volo_d1_224": 1,
    "torchvision/fcn_resnet50": 1,
    "torchvision/maxvit_t": 1,
    "torchvision/mvit_v1_b": 1,
    "torchvision/resnet50": 1,
    "transformers/falcon_mamba": 1,
}


def make(name: str) -> tuple[Any, Any]:
    """The module of an architecture, with random weights, and its arguments."""
    package, net = name.split("/")
    declare_compiled_operators()
    torch.manual_seed(_SEEDS.get(name, 0))
    create, _ = _SOURCES[package]
    module, given = create(net)
    return module, given


def package_of(name: str) -> str:
    """The package that an architecture comes from."""
    return name.split("/", maxsplit=1)[0]
