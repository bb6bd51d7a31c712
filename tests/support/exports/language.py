"""Tiny models of transformers, without those parameters that its exports leave out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bench.workers.torch_models import declare_compiled_operators
from support.exports.modules import Exported, Input, integers, layer, x

_DECODER = {
    "vocab_size": 19, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16,
}  # fmt: skip
_ENCODER = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16,
}  # fmt: skip
_TEXT = {**_ENCODER, "vocab_size": 19, "max_position_embeddings": 10}
_IMAGE = {**_ENCODER, "image_size": 8, "patch_size": 4}


class First(nn.Module):
    """The first result of a model. Tokens come with a mask, which hides nothing: without
    one, models look for the beginnings of texts, which torch-to-nnef does not export.
    """

    def __init__(self, model: nn.Module, is_decoder: bool) -> None:
        super().__init__()
        self.model = model
        self.is_decoder = is_decoder

    def forward(self, given: Tensor) -> Any:
        settings: dict[str, Any] = {"return_dict": False}
        if self.is_decoder:
            mask = torch.ones_like(given)
            settings |= {"attention_mask": mask, "use_cache": False}
        return self.model(given, **settings)[0]


def _maker(
    model: str, config: str, settings: dict[str, Any], is_decoder: bool
) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        declare_compiled_operators()
        import transformers

        made = getattr(transformers, model)(getattr(transformers, config)(**settings))
        return First(made, is_decoder)

    return make


def _decoder(name: str, family: str, **settings: Any) -> Exported:
    made = _maker(
        f"{family}ForCausalLM", f"{family}Config", {**_DECODER, **settings}, True
    )
    return layer(name, made, integers(19, 2, 6))


def _encoder(
    name: str, family: str, settings: dict[str, Any], given: Input
) -> Exported:
    return layer(
        name, _maker(f"{family}Model", f"{family}Config", settings, False), given
    )


TOKENS = integers(19, 2, 6)
IMAGE = x(2, 3, 8, 8)
LANGUAGE: tuple[Exported, ...] = (
    _decoder("llama", "Llama"),
    _decoder("qwen2", "Qwen2"),
    _decoder("qwen3", "Qwen3", head_dim=4),
    _decoder("mistral", "Mistral", sliding_window=4),
    _decoder("gemma", "Gemma", head_dim=4),
    _decoder("gemma2", "Gemma2", head_dim=4, sliding_window=4),
    _encoder("bert", "Bert", _TEXT, TOKENS),
    _encoder("roberta", "Roberta", _TEXT, TOKENS),
    _encoder("electra", "Electra", _TEXT | {"embedding_size": 6}, TOKENS),
    _encoder("albert", "Albert", _TEXT | {"embedding_size": 6}, TOKENS),
    _encoder("vit", "ViT", _IMAGE, IMAGE),
    _encoder("convnext", "ConvNext", {"num_stages": 2, "hidden_sizes": [4, 8], "depths": [1, 1]}, x(1, 3, 16, 16)),
)  # fmt: skip
