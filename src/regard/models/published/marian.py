"""The layout of transformers' `MarianMTModel`: exactly our Transformer with post-norm and sines-then-cosines."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.errors import CheckpointError
from regard.models.published.layout import Layout
from regard.models.transformer import TransformerConfig

THEIRS = {"gelu-tanh": "gelu_pytorch_tanh"}
OURS = {"silu": "swish", "gelu_pytorch_tanh": "gelu-tanh", "gelu_new": "gelu-tanh"}


class Marian(Layout):
    """`MarianMTModel`; its end is always id 0."""

    name = "marian"

    def fits(self, config: Any) -> bool:
        return isinstance(config, TransformerConfig) and config.norm == "post" and config.positions == "sinusoidal"

    def to_config(self, config: TransformerConfig, eos: int | None) -> dict[str, Any]:
        return {
            "model_type": "marian",
            "architectures": ["MarianMTModel"],
            "vocab_size": config.vocab,
            "decoder_vocab_size": config.vocab,
            "d_model": config.width,
            "encoder_layers": config.encoder_layers,
            "decoder_layers": config.decoder_layers,
            "encoder_attention_heads": config.heads,
            "decoder_attention_heads": config.heads,
            "encoder_ffn_dim": config.ffn,
            "decoder_ffn_dim": config.ffn,
            "activation_function": THEIRS.get(config.activation, config.activation),
            "dropout": config.dropout,
            "attention_dropout": 0.0,
            "activation_dropout": 0.0,
            "max_position_embeddings": config.max_length,
            "scale_embedding": True,
            "static_position_embeddings": True,
            "normalize_embedding": False,
            "normalize_before": False,
            "add_bias_logits": False,
            "share_encoder_decoder_embeddings": True,
            "tie_word_embeddings": True,
            "is_encoder_decoder": True,
            "eos_token_id": 0,
            "forced_eos_token_id": None,
            "pad_token_id": config.vocab - 1,
            "bos_token_id": None,
            "decoder_start_token_id": config.vocab - 1,
            "dtype": "float32",
        }

    def from_config(self, values: dict[str, Any], where: str) -> TransformerConfig:
        for name in ("ffn_dim", "attention_heads"):
            if values[f"encoder_{name}"] != values[f"decoder_{name}"]:
                raise CheckpointError(f"{where}: encoder and decoder differ in {name}; we read only equal ones")
        wanted = {"scale_embedding": True, "normalize_embedding": False, "pad_token_id": values["vocab_size"] - 1}
        for name, value in wanted.items():
            if values.get(name, value) != value:
                raise CheckpointError(f"{where}: {name} is {values[name]}, we read only {value}")
        return TransformerConfig(
            vocab=values["vocab_size"],
            width=values["d_model"],
            encoder_layers=values["encoder_layers"],
            decoder_layers=values["decoder_layers"],
            heads=values["encoder_attention_heads"],
            ffn=values["encoder_ffn_dim"],
            dropout=values["dropout"],
            activation=OURS.get(values["activation_function"], values["activation_function"]),
            max_length=values["max_position_embeddings"],
        )

    def seen(self, config: TransformerConfig, published: dict[str, Tensor]) -> TransformerConfig:
        bias = published.get("final_logits_bias")
        told = bias is not None and not bias.is_meta and bool(bias.any())  # without numbers, nothing tells
        return replace(config, output_bias=True) if told else config

    def to_weights(self, state: dict[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
        """Our names to Marian's; fused maps are cut into theirs."""
        published = {"model.shared.weight": state["token.weight"]}
        published["final_logits_bias"] = state.get("bias", torch.zeros(len(state["token.weight"])))[None]
        for name, tensor in state.items():
            if name in ("token.weight", "bias"):
                continue
            side, index, rest = name.split(".", 2)
            base = f"model.{side}.layers.{index}."
            if rest.rsplit(".", 1)[0] in FUSED:
                part, kind = rest.rsplit(".", 1)
                names = FUSED[part]
                for piece, chunk in zip(names, tensor.chunk(len(names)), strict=True):
                    published[f"{base}{piece}.{kind}"] = chunk.contiguous()
            else:
                part, kind = rest.rsplit(".", 1)
                published[f"{base}{(ENCODER if side == 'encoder' else DECODER)[part]}.{kind}"] = tensor
        return published

    def from_weights(
        self, published: dict[str, Tensor], wanted: list[str], config: TransformerConfig
    ) -> dict[str, Tensor]:
        """Marian's names to ours, for the `wanted` parameters; extra copies of tied weights are ignored."""
        ours = {}
        for name in wanted:
            if name in ("token.weight", "bias"):
                ours[name] = published["model.shared.weight"] if name != "bias" else published["final_logits_bias"][0]
                continue
            side, index, rest = name.split(".", 2)
            part, kind = rest.rsplit(".", 1)
            base = f"model.{side}.layers.{index}."
            names = FUSED.get(part) or [(ENCODER if side == "encoder" else DECODER)[part]]
            ours[name] = torch.cat([published[f"{base}{piece}.{kind}"] for piece in names])
        return ours


FUSED = {
    "attention.qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "cross.kv": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
}
ENCODER = {
    "attention.out": "self_attn.out_proj",
    "norm1": "self_attn_layer_norm",
    "mlp.up": "fc1",
    "mlp.down": "fc2",
    "norm2": "final_layer_norm",
}
DECODER = ENCODER | {
    "norm2": "encoder_attn_layer_norm",
    "cross.query": "encoder_attn.q_proj",
    "cross.out": "encoder_attn.out_proj",
    "norm3": "final_layer_norm",
}
