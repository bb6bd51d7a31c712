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


def module(net: str) -> Any:
    """The network, as it is used: normalizations have their statistics, and nothing is
    dropped. Its weights are the same in every process, and no two are alike, as they
    are at the beginning of a training: the exporter would make one variable of them.
    """
    torch.manual_seed(0)
    create = {"torchvision": of_torchvision, "timm": of_timm}[NETS[net][0]]
    made = create(net).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) / 100)
    return made


def of_torchvision(net: str) -> Any:
    declare_compiled_operators()
    import torchvision

    return torchvision.models.get_model(net, weights=None)


def of_timm(net: str) -> Any:
    declare_compiled_operators()
    import timm

    return timm.create_model(net)


@cache
def declare_compiled_operators() -> Any:
    """Lets torchvision be imported beside a torch without CUDA, where its compiled
    operators do not load: it wants to describe two of them, which no network here uses.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou) -> Tensor")
    return library  # which takes its operators along when it goes


def images(net: str, batch: int) -> Any:
    extent = NETS[net][1]
    return torch.randn(batch, 3, extent, extent)


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
