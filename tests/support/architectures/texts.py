"""Networks of transformers, with random weights and small configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

Given = Mapping[str, Any]

# The names that most configurations have for their extents.
_COMMON = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
}
_GROUPED = {**_COMMON, "num_key_value_heads": 1, "head_dim": 8}
_GPT2 = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40}
_TWO_SIDED = {
    "vocab_size": 50,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
}
_T5 = {
    "vocab_size": 50,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 2,
}
_IMAGE = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}
_SPEECH = {
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "conv_dim": (8, 8),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}


def ids(length: int = 7, *, least: int = 3) -> Any:
    return torch.randint(least, 50, (2, length))


def mask(length: int = 7) -> Any:
    """The last two places of the second text are padding."""
    found = torch.ones(2, length, dtype=torch.long)
    found[1, -2:] = 0
    return found


def text() -> Given:
    return {"input_ids": ids(), "attention_mask": mask()}


def text_alone() -> Given:
    return {"input_ids": ids()}


def text_to_text() -> Given:
    decoder = {"decoder_input_ids": ids(5), "decoder_attention_mask": mask(5)}
    return {**text(), **decoder}


def image(extent: int = 16) -> Given:
    return {"pixel_values": torch.randn(2, 3, extent, extent)}


def large_image() -> Given:
    return image(32)


def larger_image() -> Given:
    return image(64)


def sound() -> Given:
    return {"input_values": torch.randn(2, 200)}


def sound_to_text() -> Given:
    decoder = {"decoder_input_ids": ids(5), "decoder_attention_mask": mask(5)}
    return {"input_features": torch.randn(2, 8, 20), **decoder}


def text_and_image() -> Given:
    return {**text(), **image()}


class Net(NamedTuple):
    """A network of transformers.

    Attributes:
        model: the class of the module.
        options: of its configuration.
        given: draws the arguments of `forward`.
        config: the class of the configuration, if it is not named after the network.
    """

    model: str
    options: Mapping[str, Any]
    given: Any = text
    config: str = ""


def net(
    model: str,
    options: Mapping[str, Any],
    given: Any = text,
    config: str = "",
    **more: Any,
) -> Net:
    return Net(model, {**options, **more}, given, config)


_CLIP_TEXT = {**_COMMON, "num_hidden_layers": 1, "eos_token_id": 49, "bos_token_id": 0}
_CLIP = {
    "text_config": _CLIP_TEXT,
    "vision_config": {**_IMAGE, "num_hidden_layers": 1},
    "projection_dim": 8,
}
_SWIN = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [2, 2],
    "num_heads": [2, 2],
    "window_size": 4,
}

# fmt: off
TRANSFORMERS = {
    "albert": net("AlbertModel", _COMMON, embedding_size=8),
    "audio_spectrogram": net("ASTModel", {**_IMAGE, "max_length": 24, "num_mel_bins": 16, "patch_size": 8}, lambda: {"input_values": torch.randn(2, 24, 16)}, config="ASTConfig"),
    "bart": net("BartModel", _TWO_SIDED, text_to_text),
    "beit": net("BeitModel", _IMAGE, image, use_relative_position_bias=True),
    "bert": net("BertModel", _COMMON),
    "bert_for_masked_lm": net("BertForMaskedLM", _COMMON, config="BertConfig"),
    "bert_for_sequences": net("BertForSequenceClassification", _COMMON, config="BertConfig"),
    "big_bird": net("BigBirdModel", _COMMON, attention_type="original_full"),
    "biogpt": net("BioGptModel", _COMMON),
    "bit": net("BitModel", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_groups": 2}, large_image),
    "blenderbot": net("BlenderbotModel", _TWO_SIDED, text_to_text),
    "blip_text_and_image": net("BlipModel", {"text_config": {**_CLIP_TEXT, "projection_dim": 8}, "vision_config": {**_IMAGE, "num_hidden_layers": 1}, "projection_dim": 8}, text_and_image),
    "bloom": net("BloomModel", {"vocab_size": 50, "hidden_size": 16, "n_layer": 2, "n_head": 2}),
    "camembert": net("CamembertModel", _COMMON),
    "canine": net("CanineModel", _COMMON, num_hash_buckets=32, downsampling_rate=2, local_transformer_stride=4),
    "clip": net("CLIPModel", _CLIP, text_and_image),
    "clip_text": net("CLIPTextModel", _CLIP_TEXT, config="CLIPTextConfig"),
    "clip_vision": net("CLIPVisionModel", _IMAGE, image, config="CLIPVisionConfig"),
    "codegen": net("CodeGenModel", _GPT2, rotary_dim=4, n_head=4),
    "cohere": net("CohereModel", _GROUPED),
    "convbert": net("ConvBertModel", _COMMON, embedding_size=16, conv_kernel_size=3),
    "convnext": net("ConvNextModel", {"num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 1]}, large_image),
    "convnextv2": net("ConvNextV2Model", {"num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 1]}, large_image),
    "ctrl": net("CTRLModel", {"vocab_size": 50, "n_embd": 16, "dff": 32, "n_layer": 2, "n_head": 2, "n_positions": 40}),
    "data2vec_audio": net("Data2VecAudioModel", _SPEECH, sound),
    "data2vec_text": net("Data2VecTextModel", _COMMON),
    "deberta": net("DebertaModel", _COMMON, relative_attention=True, pos_att_type=["c2p", "p2c"]),
    "deberta_v2": net("DebertaV2Model", _COMMON, relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8),
    "decision_transformer": net("DecisionTransformerModel", {"state_dim": 5, "act_dim": 3, "hidden_size": 16,
        "n_layer": 2, "n_head": 2, "n_positions": 64}, lambda: {"states": torch.randn(2, 4, 5), "actions": torch.randn(
        2, 4, 3), "rewards": torch.randn(2, 4, 1), "returns_to_go": torch.randn(2, 4, 1), "timesteps": torch.arange(
        4).repeat(2, 1), "attention_mask": mask(4)}),
    "deit": net("DeiTModel", _IMAGE, image),
    "dinov2": net("Dinov2Model", _IMAGE, image),
    "dinov3": net("DINOv3ViTModel", _IMAGE, image, config="DINOv3ViTConfig"),
    "distilbert": net("DistilBertModel", {"vocab_size": 50, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 40}),
    "dpt": net("DPTForDepthEstimation", {**_IMAGE, "image_size": 32, "num_hidden_layers": 4,
        "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 8, 8, 8], "fusion_hidden_size": 8,
        "is_hybrid": False}, large_image, config="DPTConfig"),
    "electra": net("ElectraModel", _COMMON, embedding_size=8),
    "encodec": net("EncodecModel", {"num_filters": 4, "hidden_size": 8, "codebook_size": 16, "upsampling_ratios": [2, 2], "num_lstm_layers": 1}, lambda: {"input_values": torch.randn(2, 1, 64)}),
    "ernie": net("ErnieModel", _COMMON),
    "esm": net("EsmModel", _COMMON, mask_token_id=2, position_embedding_type="rotary"),
    "falcon": net("FalconModel", _COMMON, ffn_hidden_size=32),
    "flaubert": net("FlaubertModel", {"vocab_size": 50, "emb_dim": 16, "n_layers": 2, "n_heads": 2, "max_position_embeddings": 40}),
    "fnet": net("FNetModel", _COMMON, text_alone),
    "focalnet": net("FocalNetModel", {"image_size": 32, "embed_dim": 8, "depths": [1, 1], "focal_levels": [2, 2], "focal_windows": [3, 3]}, large_image),
    "funnel": net("FunnelModel", {"vocab_size": 50, "d_model": 16, "block_sizes": [1, 1], "num_decoder_layers": 1, "n_head": 2, "d_head": 8, "d_inner": 32}),
    "gemma": net("GemmaModel", _GROUPED),
    "gemma2": net("Gemma2Model", _GROUPED, sliding_window=4),
    "gemma3": net("Gemma3TextModel", _GROUPED, config="Gemma3TextConfig", sliding_window=4),
    "git": net("GitModel", {**_COMMON, "vision_config": _IMAGE}, text_and_image),
    "glm": net("GlmModel", _GROUPED),
    "glpn": net("GLPNModel", {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [
        8, 16], "patch_sizes": [3, 3], "strides": [2, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]},
        large_image),
    "gpt2": net("GPT2Model", _GPT2),
    "gpt2_lm": net("GPT2LMHeadModel", _GPT2, config="GPT2Config"),
    "gpt_bigcode": net("GPTBigCodeModel", _GPT2),
    "gpt_neo": net("GPTNeoModel", {"vocab_size": 50, "hidden_size": 16, "num_layers": 2, "num_heads": 2,
        "attention_types": [[["global", "local"], 1]], "window_size": 4, "max_position_embeddings": 40}),
    "gpt_neox": net("GPTNeoXModel", _COMMON),
    "gpt_oss": net("GptOssModel", _GROUPED, num_local_experts=4, num_experts_per_tok=2, sliding_window=4),
    "gptj": net("GPTJModel", _GPT2, rotary_dim=4),
    "granite": net("GraniteModel", _GROUPED),
    "groupvit_vision": net("GroupViTVisionModel", {**_IMAGE, "hidden_size": 16, "depths": [1, 1, 1],
        "num_group_tokens": [4, 2, 0], "num_output_groups": [4, 2, 0]}, image, config="GroupViTVisionConfig"),
    "hiera": net("HieraModel", {"embed_dim": 8, "image_size": [32, 32], "depths": [1, 1], "num_heads": [1, 2],
        "query_stride": [2, 2], "num_query_pool": 1, "masked_unit_size": [4, 4], "embed_dim_multiplier": 2.0},
        large_image),
    "hubert": net("HubertModel", _SPEECH, sound),
    "ibert": net("IBertModel", _COMMON),
    "ijepa": net("IJepaModel", _IMAGE, image),
    "jamba": net("JambaModel", {**_GROUPED, "attn_layer_period": 2, "attn_layer_offset": 1,
        "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 2, "num_experts_per_tok": 1,
        "mamba_d_state": 4, "mamba_dt_rank": 2, "use_mamba_kernels": False}),
    "layoutlm": net("LayoutLMModel", _COMMON, max_2d_position_embeddings=40),
    "led": net("LEDModel", {**_TWO_SIDED, "max_encoder_position_embeddings": 40, "max_decoder_position_embeddings": 40, "attention_window": 4}, text_to_text),
    "llama": net("LlamaModel", _GROUPED),
    "llama_lm": net("LlamaForCausalLM", _GROUPED, config="LlamaConfig"),
    "longformer": net("LongformerModel", _COMMON, attention_window=4),
    "luke": net("LukeModel", _COMMON, entity_vocab_size=10, entity_emb_size=8),
    "m2m_100": net("M2M100Model", _TWO_SIDED, text_to_text),
    "mamba": net("MambaModel", {"vocab_size": 50, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2}, text_alone),
    "mamba2": net("Mamba2Model", {"vocab_size": 50, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 8, "n_groups": 1, "chunk_size": 4}, text_alone),
    "marian": net("MarianModel", _TWO_SIDED, text_to_text),
    "markuplm": net("MarkupLMModel", _COMMON),
    "mbart": net("MBartModel", _TWO_SIDED, text_to_text),
    "megatron_bert": net("MegatronBertModel", _COMMON),
    "mistral": net("MistralModel", _GROUPED, sliding_window=4),
    "mixtral": net("MixtralModel", _GROUPED, num_local_experts=4, num_experts_per_tok=2),
    "mixtral_batched": net("MixtralModel", _GROUPED, num_local_experts=4, num_experts_per_tok=2, experts_implementation="batched_mm"),
    "mobilebert": net("MobileBertModel", _COMMON, embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
    "mobilenet_v1": net("MobileNetV1Model", {"depth_multiplier": 0.25, "min_depth": 4}, large_image),
    "mobilenet_v2": net("MobileNetV2Model", {"depth_multiplier": 0.25, "min_depth": 4}, large_image),
    "mobilevit": net("MobileViTModel", {"hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 16], "num_attention_heads": 2}, larger_image),
    "modernbert": net("ModernBertModel", _COMMON, local_attention=4, global_attn_every_n_layers=2),
    "mpnet": net("MPNetModel", _COMMON),
    "mpt": net("MptModel", {"vocab_size": 50, "d_model": 16, "n_heads": 2, "n_layers": 2, "max_seq_len": 40}),
    "mra": net("MraModel", _COMMON, text),
    "mt5": net("MT5Model", _T5, text_to_text),
    "musicgen": net("MusicgenForCausalLM", {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "ffn_dim": 32, "num_codebooks": 2, "pad_token_id": 49}, lambda: {"input_ids": torch.randint(
        3, 49, (4, 7))}, config="MusicgenDecoderConfig"),
    "mvp": net("MvpModel", _TWO_SIDED, text_to_text),
    "nemotron": net("NemotronModel", _GROUPED),
    "nystromformer": net("NystromformerModel", _COMMON, num_landmarks=7, segment_means_seq_len=7),
    "olmo": net("OlmoModel", _GROUPED),
    "olmo2": net("Olmo2Model", _GROUPED),
    "openai_gpt": net("OpenAIGPTModel", _GPT2, text_alone),
    "opt": net("OPTModel", {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 32, "max_position_embeddings": 40, "word_embed_proj_dim": 16}),
    "opt_lm": net("OPTForCausalLM", {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "ffn_dim": 32, "max_position_embeddings": 40, "word_embed_proj_dim": 16},
        config="OPTConfig"),
    "owlvit": net("OwlViTModel", {**_CLIP, "text_config": _CLIP_TEXT}, text_and_image),
    "patchtst": net("PatchTSTModel", {"num_input_channels": 2, "context_length": 16, "patch_length": 4,
        "patch_stride": 4, "d_model": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 32},
        lambda: {"past_values": torch.randn(2, 16, 2)}),
    "pegasus": net("PegasusModel", _TWO_SIDED, text_to_text),
    "perceiver": net("PerceiverModel", {"num_latents": 4, "d_latents": 16, "d_model": 16, "num_blocks": 1,
        "num_self_attends_per_block": 2, "num_self_attention_heads": 2, "num_cross_attention_heads": 2},
        lambda: {"inputs": torch.randn(2, 7, 16)}),
    "persimmon": net("PersimmonModel", _COMMON),
    "phi": net("PhiModel", _COMMON),
    "phi3": net("Phi3Model", _COMMON),
    "plbart": net("PLBartModel", _TWO_SIDED, text_to_text),
    "poolformer": net("PoolFormerModel", {"num_encoder_blocks": 2, "hidden_sizes": [8, 16], "depths": [1, 1], "patch_sizes": [7, 3], "strides": [4, 2], "padding": [2, 1]}, large_image),
    "prophetnet": net("ProphetNetModel", {"vocab_size": 50, "hidden_size": 16, "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32, "num_encoder_layers": 1, "num_decoder_layers": 1, "num_encoder_attention_heads": 2,
        "num_decoder_attention_heads": 2, "max_position_embeddings": 40}, text_to_text),
    "pvt": net("PvtModel", {"image_size": 32, "num_encoder_blocks": 2, "depths": [1, 1], "hidden_sizes": [8,
        16], "sequence_reduction_ratios": [2, 1], "num_attention_heads": [1, 2], "patch_sizes": [4, 2],
        "strides": [4, 2], "mlp_ratios": [2, 2]}, large_image),
    "pvt_v2": net("PvtV2Model", {"image_size": 32, "num_encoder_blocks": 2, "depths": [1, 1], "hidden_sizes": [
        8, 16], "sr_ratios": [2, 1], "num_attention_heads": [1, 2], "patch_sizes": [7, 3], "strides": [4, 2],
        "mlp_ratios": [2, 2]}, large_image),
    "qwen2": net("Qwen2Model", _GROUPED),
    "qwen2_moe": net("Qwen2MoeModel", _GROUPED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=8),
    "qwen3": net("Qwen3Model", _GROUPED),
    "recurrent_gemma": net("RecurrentGemmaModel", _GROUPED, lru_width=16, attention_window_size=4, num_hidden_layers=3),
    "regnet": net("RegNetModel", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 4}, large_image),
    "rembert": net("RemBertModel", _COMMON, input_embedding_size=8),
    "resnet": net("ResNetModel", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}, large_image),
    "roberta": net("RobertaModel", _COMMON),
    "roc_bert": net("RoCBertModel", _COMMON, pronunciation_vocab_size=10, shape_vocab_size=10, enable_pronunciation=False, enable_shape=False),
    "roformer": net("RoFormerModel", _COMMON),
    "sam_vision": net("SamVisionModel", {**_IMAGE, "image_size": 32, "output_channels": 8, "window_size": 2,
        "global_attn_indexes": [1], "mlp_dim": 32, "num_pos_feats": 4}, large_image, config="SamVisionConfig"),
    "segformer": net("SegformerForSemanticSegmentation", {"num_encoder_blocks": 2, "depths": [1, 1],
        "sr_ratios": [2, 1], "hidden_sizes": [8, 16], "patch_sizes": [3, 3], "strides": [2, 2],
        "num_attention_heads": [1, 2], "mlp_ratios": [2, 2], "decoder_hidden_size": 8}, image, config=
        "SegformerConfig"),
    "seggpt": net("SegGptModel", {**_IMAGE, "image_size": [32, 16], "mlp_dim": 32, "merge_index": 0,
        "intermediate_hidden_state_indices": [1], "decoder_hidden_size": 8}, lambda: {"pixel_values": torch.randn(
        2, 3, 16, 16), "prompt_pixel_values": torch.randn(2, 3, 16, 16), "prompt_masks": torch.randn(2, 3, 16,
        16)}),
    "sew": net("SEWModel", {**_SPEECH, "squeeze_factor": 2}, sound),
    "siglip": net("SiglipModel", {"text_config": {**_COMMON, "projection_size": 16}, "vision_config": _IMAGE}, text_and_image),
    "siglip_vision": net("SiglipVisionModel", _IMAGE, image, config="SiglipVisionConfig"),
    "speech_to_text": net("Speech2TextModel", {**_TWO_SIDED, "input_feat_per_channel": 8, "input_channels": 1,
        "conv_channels": 8, "conv_kernel_sizes": (3, 3), "max_source_positions": 40, "max_target_positions": 40},
        lambda: {"input_features": torch.randn(2, 20, 8), "decoder_input_ids": ids(5)}),
    "splinter": net("SplinterModel", _COMMON),
    "squeezebert": net("SqueezeBertModel", _COMMON, embedding_size=16, q_groups=2, k_groups=2, v_groups=2, post_attention_groups=1, intermediate_groups=2, output_groups=2),
    "stablelm": net("StableLmModel", _GROUPED),
    "starcoder2": net("Starcoder2Model", _GROUPED),
    "swiftformer": net("SwiftFormerModel", {"depths": [1, 1, 1, 1], "embed_dims": [8, 16, 16, 16], "image_size": 64}, larger_image),
    "swin": net("SwinModel", _SWIN, large_image),
    "swin2sr": net("Swin2SRModel", {**_SWIN, "image_size": 32, "patch_size": 1, "num_channels": 3}, image),
    "swinv2": net("Swinv2Model", _SWIN, large_image),
    "switch_transformers": net("SwitchTransformersModel", {**_T5, "num_experts": 2, "num_decoder_layers": 2, "expert_capacity": 8}, text_to_text),
    "t5": net("T5Model", _T5, text_to_text),
    "t5_encoder": net("T5EncoderModel", _T5, config="T5Config"),
    "t5_lm": net("T5ForConditionalGeneration", _T5, text_to_text, config="T5Config"),
    "time_series": net("TimeSeriesTransformerModel", {"prediction_length": 4, "context_length": 6,
        "lags_sequence": [1, 2], "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
        "num_time_features": 1}, lambda: {"past_values": torch.randn(2, 8), "past_time_features": torch.randn(
        2, 8, 1), "past_observed_mask": torch.ones(2, 8), "future_values": torch.randn(2, 4),
        "future_time_features": torch.randn(2, 4, 1)}),
    "timesformer": net("TimesformerModel", {**_IMAGE, "num_frames": 2}, lambda: {"pixel_values": torch.randn(2, 2, 3, 16, 16)}),
    "trocr": net("TrOCRForCausalLM", {"vocab_size": 50, "d_model": 16, "decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 32, "max_position_embeddings": 40}, config="TrOCRConfig"),
    "unispeech": net("UniSpeechModel", _SPEECH, sound),
    "univnet": net("UnivNetModel", {"model_in_channels": 8, "model_hidden_channels": 8, "num_mel_bins": 8,
        "resblock_kernel_sizes": [3], "resblock_stride_sizes": [2], "resblock_dilation_sizes": [[1, 3]],
        "kernel_predictor_hidden_channels": 8}, lambda: {"input_features": torch.randn(2, 6, 8),
        "noise_sequence": torch.randn(2, 6, 8)}),
    "videomae": net("VideoMAEModel", {**_IMAGE, "num_frames": 2, "tubelet_size": 1}, lambda: {"pixel_values": torch.randn(2, 2, 3, 16, 16)}),
    "vilt": net("ViltModel", {**_COMMON, "image_size": 16, "patch_size": 8}, lambda: {**text(), **image(), "pixel_mask": torch.ones(2, 16, 16, dtype=torch.long)}),
    "visual_bert": net("VisualBertModel", _COMMON, lambda: {**text(), "visual_embeds": torch.randn(2, 3, 512), "visual_attention_mask": torch.ones(2, 3)}),
    "vit": net("ViTModel", _IMAGE, image),
    "vit_for_images": net("ViTForImageClassification", _IMAGE, image, config="ViTConfig"),
    "vit_mae": net("ViTMAEModel", {**_IMAGE, "mask_ratio": 0.5}, lambda: {**image(), "noise": torch.rand(2, 4)}),
    "vit_msn": net("ViTMSNModel", _IMAGE, image),
    "vitdet": net("VitDetModel", {**_IMAGE, "image_size": 32, "window_size": 2, "window_block_indices": [0]}, large_image),
    "vivit": net("VivitModel", {**_IMAGE, "num_frames": 2, "tubelet_size": [1, 8, 8]}, lambda: {"pixel_values": torch.randn(2, 2, 3, 16, 16)}),
    "wav2vec2": net("Wav2Vec2Model", _SPEECH, sound),
    "wav2vec2_ctc": net("Wav2Vec2ForCTC", _SPEECH, sound, config="Wav2Vec2Config"),
    "wav2vec2_masked": net("Wav2Vec2Model", _SPEECH, lambda: {"input_values": torch.randn(2, 200),
        "attention_mask": torch.cat([torch.ones(2, 160), torch.tensor([[1.0], [0.0]]).repeat(1, 40)], 1).long(
        )}, config="Wav2Vec2Config"),
    "wavlm": net("WavLMModel", _SPEECH, sound, num_buckets=16, max_bucket_distance=32),
    "whisper": net("WhisperModel", {**_TWO_SIDED, "num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 40, "decoder_start_token_id": 2}, sound_to_text),
    "x_clip_text": net("XCLIPTextModel", _CLIP_TEXT, config="XCLIPTextConfig"),
    "xglm": net("XGLMModel", {"vocab_size": 50, "d_model": 16, "num_layers": 2, "attention_heads": 2, "ffn_dim": 32, "max_position_embeddings": 40}),
    "xlm": net("XLMModel", {"vocab_size": 50, "emb_dim": 16, "n_layers": 2, "n_heads": 2, "max_position_embeddings": 40}),
    "xlm_roberta": net("XLMRobertaModel", _COMMON),
    "xlnet": net("XLNetModel", {"vocab_size": 50, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32}),
    "smol_lm3": net("SmolLM3Model", _GROUPED),
    "exaone4": net("Exaone4Model", _GROUPED),
    "helium": net("HeliumModel", _GROUPED),
    "arcee": net("ArceeModel", _GROUPED),
    "apertus": net("ApertusModel", _GROUPED),
    "glm4": net("Glm4Model", _GROUPED),
    "cohere2": net("Cohere2Model", _GROUPED),
    "olmo3": net("Olmo3Model", _GROUPED),
    "ministral": net("MinistralModel", _GROUPED),
    "seed_oss": net("SeedOssModel", _GROUPED),
    "bit_net": net("BitNetModel", _GROUPED),
    "roberta_pre_layer_norm": net("RobertaPreLayerNormModel", _COMMON),
    "gptneo_xjapanese": net("GPTNeoXJapaneseModel", _COMMON),
    "xlmroberta_xl": net("XLMRobertaXLModel", _COMMON),
    "tapas": net("TapasModel", _COMMON),
    "ernie4_5": net("Ernie4_5Model", _COMMON),
    "modernbert_decoder": net("ModernBertDecoderModel", _COMMON, local_attention=4, global_attn_every_n_layers=2),
    "gpt_oss_batched": net("GptOssModel", _GROUPED, num_local_experts=4, num_experts_per_tok=2, sliding_window=4, experts_implementation="batched_mm"),
    "jamba_batched": net("JambaModel", {**_GROUPED, "attn_layer_period": 2, "attn_layer_offset": 1,
        "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 2, "num_experts_per_tok": 1,
        "mamba_d_state": 4, "mamba_dt_rank": 2, "use_mamba_kernels": False}, experts_implementation=
        "batched_mm"),
    "qwen2_moe_batched": net("Qwen2MoeModel", _GROUPED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=8, experts_implementation="batched_mm"),
    "qwen3_moe_batched": net("Qwen3MoeModel", _GROUPED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, experts_implementation="batched_mm"),
    "olmoe_batched": net("OlmoeModel", _GROUPED, num_experts=4, num_experts_per_tok=2, experts_implementation="batched_mm"),
    "falcon_mamba": net("FalconMambaModel", {"vocab_size": 50, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2}, text_alone),
    "imagegpt": net("ImageGPTModel", _GPT2, text_alone),
    "fsmt": net("FSMTModel", {**_TWO_SIDED, "src_vocab_size": 50, "tgt_vocab_size": 50, "langs": ["en", "de"]}, text_to_text),
    "pegasus_x": net("PegasusXModel", _TWO_SIDED, text_to_text, block_size=4, num_global_tokens=4),
    "longt5": net("LongT5Model", _T5, text_to_text, local_radius=3),
    "umt5": net("UMT5Model", _T5, text_to_text),
    "bigbird_pegasus": net("BigBirdPegasusModel", _TWO_SIDED, text_to_text, attention_type="original_full"),
    "dinov2_with_registers": net("Dinov2WithRegistersModel", _IMAGE, image),
    "data2vec_vision": net("Data2VecVisionModel", _IMAGE, image),
    "efficientnet": net("EfficientNetModel", {"image_size": 32, "width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320}, large_image),
    "chinese_clip_vision": net("ChineseCLIPVisionModel", _IMAGE, image, config="ChineseCLIPVisionConfig"),
    "wav2vec2_conformer": net("Wav2Vec2ConformerModel", _SPEECH, sound),
    "unispeech_sat": net("UniSpeechSatModel", _SPEECH, sound),
    "dpr": net("DPRQuestionEncoder", _COMMON, config="DPRConfig"),
    "patchtsmixer": net("PatchTSMixerModel", {"context_length": 16, "patch_length": 4, "patch_stride": 4,
        "num_input_channels": 2, "d_model": 8, "num_layers": 2}, lambda: {"past_values": torch.randn(2, 16, 2)}),
    "vitpose_backbone": net("VitPoseBackbone", {**_IMAGE, "image_size": [32, 16], "patch_size": [8, 8]}, lambda: {"pixel_values": torch.randn(2, 3, 32, 16)}, config="VitPoseBackboneConfig"),
    "bert_generation": net("BertGenerationEncoder", _COMMON, config="BertGenerationConfig"),
    "distilbert_for_sequences": net("DistilBertForSequenceClassification", {"vocab_size": 50, "dim": 16,
        "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 40}, config=
        "DistilBertConfig"),
    "roberta_for_tokens": net("RobertaForTokenClassification", _COMMON, config="RobertaConfig"),
    "yolos": net("YolosModel", {**_IMAGE, "image_size": [16, 16], "num_detection_tokens": 3}, image),
}
# fmt: on


def of_transformers(name: str) -> tuple[Any, Given]:
    import transformers

    found = TRANSFORMERS[name]
    config = getattr(
        transformers, found.config or f"{found.model.removesuffix('Model')}Config"
    )
    made = getattr(transformers, found.model)(config(**found.options))
    return made, found.given()
