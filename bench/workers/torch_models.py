"""Networks of torchvision, timm and transformers, and some written here, with random
weights.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

from bench.workers.torch_written import WRITTEN, Scores

IMAGE = 224
# Of language models: a small vocabulary, and how many tokens they read.
WORDS, TOKENS = 5000, 64


class Network(NamedTuple):
    """A network.

    Attributes:
        make: makes it, by its name.
        inputs: its input, for an extent of the batch.
    """

    make: Callable[[str], Any]
    inputs: Callable[[int], torch.Tensor]


def of_torchvision(net: str) -> Any:
    import torchvision

    return torchvision.models.get_model(net, weights=None)


def of_timm(net: str) -> Any:
    import timm

    return timm.create_model(net)


# Of four layers, and of the extents of a small network.
SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_layer": 4, "n_head": 4, "n_embd": 256},
    # As wide as GPT-2 small, with its words.
    "gpt2-small": {"n_layer": 4, "vocab_size": 50257},
    "bert": {
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "hidden_size": 256,
        "intermediate_size": 1024,
        "is_decoder": False,
    },
    "llama": {
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "hidden_size": 256,
        "intermediate_size": 688,
    },
}


def of_transformers(net: str) -> Any:
    """A language model, of its input alone."""
    import transformers

    family, sizes = net.partition("-")[0], {"vocab_size": WORDS, **SIZES[net]}
    config = transformers.AutoConfig.for_model(family, **sizes)
    config.use_cache = False
    masked = family == "bert"
    kind = (
        transformers.AutoModelForMaskedLM
        if masked
        else transformers.AutoModelForCausalLM
    )
    return Scores(kind.from_config(config, attn_implementation="eager"))


def of_these(net: str) -> Any:
    return WRITTEN[net]()


def images(batch: int, extent: int = IMAGE) -> torch.Tensor:
    return torch.randn(batch, 3, extent, extent)


def tokens(batch: int) -> torch.Tensor:
    return torch.randint(WORDS, (batch, TOKENS))


def sounds(batch: int) -> torch.Tensor:
    return torch.randn(batch, 32, 128)


NETS = {
    **dict.fromkeys(
        (
            "resnet18",
            "resnet50",
            "mobilenet_v2",
            "mobilenet_v3_small",
            "efficientnet_b0",
            "shufflenet_v2_x1_0",
            "convnext_tiny",
            "regnet_y_400mf",
            "densenet121",
        ),
        Network(of_torchvision, images),
    ),
    **dict.fromkeys(
        (
            "ghostnet_100",
            "mixer_s32_224",
            "vit_tiny_patch16_224",
            "swin_tiny_patch4_window7_224",
        ),
        Network(of_timm, images),
    ),
    **dict.fromkeys(("bert", "gpt2", "llama"), Network(of_transformers, tokens)),
    "unet": Network(of_these, partial(images, extent=128)),
    "lstm": Network(of_these, sounds),
}
# Those whose gradients are computed for each example.
EXAMPLES = {
    "resnet18": NETS["resnet18"],
    "vit_tiny_patch16_224": NETS["vit_tiny_patch16_224"],
    "gpt2-small": Network(of_transformers, tokens),
}


def module(net: str) -> Any:
    """The network, as it is used: normalizations have their statistics, and nothing is
    dropped. Its weights are the same in every process, and no two are alike, as they
    are at the beginning of a training.
    """
    declare_compiled_operators()
    torch.manual_seed(0)
    made = {**NETS, **EXAMPLES}[net].make(net).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) / 100)
    return made


def inputs(net: str, batch: int) -> torch.Tensor:
    """The same in every process."""
    torch.manual_seed(1)
    return {**NETS, **EXAMPLES}[net].inputs(batch)


@cache
def declare_compiled_operators() -> Any:
    """Lets torchvision be imported, here and by others, beside a torch without CUDA, where
    its compiled operators do not load: it wants to describe two of them, which no network
    here uses.
    """
    if torch.version.cuda or find_spec("torchvision") is None:
        return None
    if version("torchvision").endswith("+cpu"):
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou) -> Tensor")
    return library  # which takes its operators along when it goes
