"""Networks of torchvision and timm, with random weights."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch

# For each network: the package that has it, and the extent of its images.
NETS = {
    "resnet18": ("torchvision", 224),
    "mobilenet_v3_small": ("torchvision", 224),
    "efficientnet_b0": ("torchvision", 224),
    "shufflenet_v2_x1_0": ("torchvision", 224),
    "convnext_atto": ("timm", 224),
    "ghostnet_100": ("timm", 224),
    "mixer_s32_224": ("timm", 224),
    "vit_tiny_patch16_224": ("timm", 224),
}
# Those that are measured in tract; of the last one, how many tokens it reads.
IN_TRACT = {
    "resnet18": ("torchvision", 224),
    "mobilenet_v2": ("torchvision", 224),
    "vit_tiny_patch16_224": ("timm", 224),
    "gpt2": ("transformers", 64),
}


def module(net: str) -> Any:
    """The network, as it is used: normalizations have their statistics, and nothing is
    dropped. Its weights are the same in every process, and no two are alike, as they
    are at the beginning of a training: the exporter would make one variable of them.
    """
    declare_compiled_operators()
    torch.manual_seed(0)
    package, _ = {**NETS, **IN_TRACT}[net]
    made = CREATORS[package](net).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) / 100)
    return made


def of_torchvision(net: str) -> Any:
    import torchvision

    return torchvision.models.get_model(net, weights=None)


def of_timm(net: str) -> Any:
    import timm

    return timm.create_model(net)


def of_transformers(net: str) -> Any:
    """A language model of four layers, of its input alone."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"n_layer": 4, "n_head": 4, "n_embd": 256, "vocab_size": 5000}
    config = AutoConfig.for_model(net, **sizes, use_cache=False)
    return Scores(AutoModelForCausalLM.from_config(config, attn_implementation="eager"))


class Scores(torch.nn.Module):  # type: ignore[misc]
    """The scores of a language model for the tokens that it reads."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        seen = torch.ones_like(tokens)
        scores: torch.Tensor = self.model(tokens, attention_mask=seen).logits
        return scores


CREATORS = {
    "torchvision": of_torchvision,
    "timm": of_timm,
    "transformers": of_transformers,
}


@cache
def declare_compiled_operators() -> Any:
    """Lets torchvision be imported, here and by others, beside a torch without CUDA, where
    its compiled operators do not load: it wants to describe two of them, which no network
    here uses.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou) -> Tensor")
    return library  # which takes its operators along when it goes


def images(net: str, batch: int) -> Any:
    _, extent = {**NETS, **IN_TRACT}[net]
    return torch.randn(batch, 3, extent, extent)


def tokens(net: str, batch: int) -> Any:
    return torch.randint(5000, (batch, IN_TRACT[net][1]))


def export(net: str, batch: int, path: str) -> list[str]:
    """Writes the ONNX file of a network, with its parameters one by one: a file for
    inference would have normalizations in the convolutions before them. Returns the
    names of the parameters.
    """
    exported = module(net)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            exported,
            (images(net, batch),),
            path,
            dynamo=False,
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False,
            input_names=["x"],
            output_names=["y"],
        )
    return [name for name, _ in exported.named_parameters()]
