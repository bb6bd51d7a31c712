"""Small networks of transformers and torchvision with random weights, and their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from bench.workers.torch_models import declare_compiled_operators


class Member(NamedTuple):
    """A network.

    Attributes:
        module: with random weights, in evaluation mode.
        inputs: by the names that they have in files.
        dims: the names of the open axes of each input.
        kind: as the optimizer of ONNX Runtime calls it; none for networks of images.
        task: as optimum calls it, which exports some whole networks.
    """

    module: Any
    inputs: dict[str, Any]
    dims: dict[str, dict[int, str]]
    kind: str = ""
    task: str = ""


class First(nn.Module):  # type: ignore[misc]
    """The first result of a network, without caches."""

    def __init__(self, network: Any, **options: Any) -> None:
        super().__init__()
        self.network, self.options = network, options

    def forward(self, *given: Any) -> Any:
        return self.network(*given, **self.options)[0]


def _text(network: Any, kind: str = "bert", task: str = "", **options: Any) -> Member:
    """A network of tokens and their mask."""
    dims = {0: "batch", 1: "sequence"}
    mask = torch.ones(2, 7, dtype=torch.int64)
    mask[1, 5:] = 0
    inputs = {"input_ids": torch.randint(3, 60, (2, 7)), "attention_mask": mask}
    module = First(network, return_dict=False, **options)
    return Member(module, inputs, dict.fromkeys(inputs, dims), kind, task)


def _distilbert() -> Member:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(
        vocab_size=64, dim=32, hidden_dim=64, n_heads=4, n_layers=2,
        max_position_embeddings=16,
    )  # fmt: skip
    return _text(
        DistilBertForSequenceClassification(config), task="text-classification"
    )


def _mobilebert() -> Member:
    from transformers import MobileBertConfig, MobileBertModel

    config = MobileBertConfig(
        vocab_size=64, hidden_size=32, embedding_size=16, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=32, intra_bottleneck_size=16,
        max_position_embeddings=16,
    )  # fmt: skip
    return _text(MobileBertModel(config))


def _t5() -> Member:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4
    )
    return _text(T5EncoderModel(config))


def _llama() -> Member:
    from transformers import LlamaConfig, LlamaForCausalLM

    # The older exporter fails with the other kind of attention.
    config = LlamaConfig(
        attn_implementation="eager",
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16,
    )  # fmt: skip
    network = LlamaForCausalLM(config)
    member = _text(network, "gpt2", "text-generation", use_cache=False)
    # Of its own, where optimum exports it.
    member.inputs["position_ids"] = torch.arange(7).expand(2, 7).contiguous()
    member.dims["position_ids"] = member.dims["input_ids"]
    return member


def _whisper() -> Member:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64,
        num_mel_bins=8, max_source_positions=12,
    )  # fmt: skip
    module = First(WhisperEncoder(config), return_dict=False)
    inputs = {"input_features": torch.randn(2, 8, 24)}
    return Member(module, inputs, {"input_features": {0: "batch"}}, "bart")


def _vit() -> Member:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, image_size=16, patch_size=4,
    )  # fmt: skip
    module = First(ViTForImageClassification(config), return_dict=False)
    inputs = {"pixel_values": torch.randn(2, 3, 16, 16)}
    return Member(
        module, inputs, {"pixel_values": {0: "batch"}}, "vit", "image-classification"
    )


def _resnet() -> Member:
    from torchvision.models.resnet import BasicBlock, ResNet

    inputs = {"image": torch.randn(2, 3, 32, 32)}
    module = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5)
    return Member(module, inputs, {"image": {0: "batch"}})


_MAKERS: dict[str, Callable[[], Member]] = {
    "distilbert": _distilbert,
    "mobilebert": _mobilebert,
    "t5 encoder": _t5,
    "whisper encoder": _whisper,
    "vit": _vit,
    "resnet": _resnet,
    "llama": _llama,
}
NAMES = tuple(_MAKERS)


def make(name: str) -> Member:
    """A network. No two parameters are alike, and no statistics are 0 or 1."""
    declare_compiled_operators()
    torch.manual_seed(0)
    member = _MAKERS[name]()
    member.module.eval()
    with torch.no_grad():
        for parameter in member.module.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
        for label, buffer in member.module.named_buffers():
            if label.endswith(("running_mean", "running_var")):
                buffer.add_(torch.rand_like(buffer) / 10)
    return member
