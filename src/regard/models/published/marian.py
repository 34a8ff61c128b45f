"""The layout of transformers' `MarianMTModel`: our Transformer with post-norm and sines-then-cosines."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.models.published.layout import Layout, check_fixed, with_prefix
from regard.models.transformer import TransformerConfig

ENCODER = {
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": "self_attn.out_proj",
    "norm1": "self_attn_layer_norm",
    "mlp.up": "fc1",
    "mlp.down": "fc2",
    "norm2": "final_layer_norm",
}
DECODER = ENCODER | {
    "norm2": "encoder_attn_layer_norm",
    "cross.query": "encoder_attn.q_proj",
    "cross.kv": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross.out": "encoder_attn.out_proj",
    "norm3": "final_layer_norm",
}
LAYERS = {
    **with_prefix("encoder.*.", ENCODER, "model.encoder.layers.*."),
    **with_prefix("decoder.*.", DECODER, "model.decoder.layers.*."),
}
SIZES = {
    "vocab": "vocab_size",
    "width": "d_model",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "ffn": ("encoder_ffn_dim", "decoder_ffn_dim"),
    "dropout": "dropout",
}


class MarianLayout(Layout):
    """The end-of-text id is always 0, and padding is the last token."""

    name, architecture, config = "marian", "MarianMTModel", TransformerConfig
    settings = SIZES | {"max_length": "max_position_embeddings", "activation": "activation_function"}
    fixed = {"scale_embedding": True, "normalize_embedding": False}
    written = {
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "static_position_embeddings": True,
        "normalize_before": False,
        "add_bias_logits": False,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "eos_token_id": 0,
        "forced_eos_token_id": None,
        "bos_token_id": None,
    }
    tensors = {"token": "model.shared", "bias": "final_logits_bias", **LAYERS}
    spare = r"embed_tokens|embed_positions|^lm_head"  # copies of the embedding table, and sinusoids

    def fits(self, config: Any) -> bool:
        return super().fits(config) and config.norm == "post" and config.positions == "sinusoidal"

    def extra_settings(self, config: TransformerConfig, eos: int | None) -> dict[str, Any]:
        return {"decoder_vocab_size": config.vocab, **padding(config.vocab)}

    def from_config(self, values: dict[str, Any], where: str) -> TransformerConfig:
        check_fixed(values, {"pad_token_id": values["vocab_size"] - 1}, where)
        return super().from_config(values, where)

    def complete(self, config: TransformerConfig, published: dict[str, Tensor]) -> TransformerConfig:
        bias = published.get("final_logits_bias")
        shows = bias is not None and not bias.is_meta and bool(bias.any())  # a meta tensor shows nothing
        return replace(config, output_bias=True) if shows else config

    def to_weights(self, state: dict[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
        return super().to_weights({"bias": torch.zeros(config.vocab), **state}, config)

    def ignored(self, name: str, config: TransformerConfig) -> bool:
        return super().ignored(name, config) or (name == "final_logits_bias" and not config.output_bias)

    def to_theirs(self, name: str, tensor: Tensor, config: TransformerConfig) -> Tensor:
        return tensor[None] if name == "bias" else tensor

    def to_ours(self, name: str, tensor: Tensor, config: TransformerConfig) -> Tensor:
        return tensor[0] if name == "bias" else tensor


def padding(vocab: int) -> dict[str, int]:
    return dict.fromkeys(("pad_token_id", "decoder_start_token_id"), vocab - 1)
