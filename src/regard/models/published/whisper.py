"""The layout of transformers' `WhisperForConditionalGeneration`."""

from typing import Any

import torch
from torch import Tensor

from regard.errors import CheckpointError
from regard.models.published.layout import Layout
from regard.models.published.marian import DECODER, ENCODER, FUSED
from regard.models.whisper import WhisperConfig

OUTER = {  # our names outside the layers
    "stem.conv1.weight": "model.encoder.conv1.weight",
    "stem.conv1.bias": "model.encoder.conv1.bias",
    "stem.conv2.weight": "model.encoder.conv2.weight",
    "stem.conv2.bias": "model.encoder.conv2.bias",
    "places": "model.encoder.embed_positions.weight",
    "encoder_norm.weight": "model.encoder.layer_norm.weight",
    "encoder_norm.bias": "model.encoder.layer_norm.bias",
    "token.weight": "model.decoder.embed_tokens.weight",
    "decoder_place.table": "model.decoder.embed_positions.weight",
    "decoder_norm.weight": "model.decoder.layer_norm.weight",
    "decoder_norm.bias": "model.decoder.layer_norm.bias",
}


class WhisperLayout(Layout):
    """Keys have no bias there: one added to all keys of a query changes nothing, so ours is dropped, or zero."""

    name = "whisper"

    def fits(self, config: Any) -> bool:
        return isinstance(config, WhisperConfig)

    def to_config(self, config: WhisperConfig, eos: int | None) -> dict[str, Any]:
        return {
            "model_type": "whisper",
            "architectures": ["WhisperForConditionalGeneration"],
            "vocab_size": config.vocab,
            "num_mel_bins": config.mels,
            "d_model": config.width,
            "encoder_layers": config.encoder_layers,
            "decoder_layers": config.decoder_layers,
            "encoder_attention_heads": config.heads,
            "decoder_attention_heads": config.heads,
            "encoder_ffn_dim": config.ffn,
            "decoder_ffn_dim": config.ffn,
            "activation_function": "gelu",
            "dropout": config.dropout,
            "attention_dropout": 0.0,
            "activation_dropout": 0.0,
            "max_source_positions": config.places,
            "max_target_positions": config.max_length,
            "scale_embedding": False,
            "tie_word_embeddings": True,
            "is_encoder_decoder": True,
            "eos_token_id": eos,
            "pad_token_id": eos,
            "bos_token_id": eos,
            "decoder_start_token_id": None if eos is None else eos + 1,  # as all of them have it
            "dtype": "float32",
        }

    def from_config(self, values: dict[str, Any], where: str) -> WhisperConfig:
        for name in ("ffn_dim", "attention_heads"):
            if values[f"encoder_{name}"] != values[f"decoder_{name}"]:
                raise CheckpointError(f"{where}: encoder and decoder differ in {name}; we read only equal ones")
        for name, value in {"scale_embedding": False, "activation_function": "gelu"}.items():
            if values.get(name, value) != value:
                raise CheckpointError(f"{where}: {name} is {values[name]}, we read only {value}")
        return WhisperConfig(
            vocab=values["vocab_size"],
            mels=values["num_mel_bins"],
            width=values["d_model"],
            encoder_layers=values["encoder_layers"],
            decoder_layers=values["decoder_layers"],
            heads=values["encoder_attention_heads"],
            ffn=values["encoder_ffn_dim"],
            dropout=values.get("dropout", 0.0),
            places=values["max_source_positions"],
            max_length=values["max_target_positions"],
        )

    def to_weights(self, state: dict[str, Tensor], config: WhisperConfig) -> dict[str, Tensor]:
        published = {}
        for name, tensor in state.items():
            names = their_names(name)
            for their, part in zip(names, tensor.chunk(len(names)), strict=True):
                if not their.endswith("k_proj.bias"):
                    published[their] = part.contiguous()
        return published

    def from_weights(self, published: dict[str, Tensor], wanted: list[str], config: WhisperConfig) -> dict[str, Tensor]:
        """Theirs to ours, for the `wanted` names; the extra copy of the tied head is ignored."""
        none = torch.zeros(config.width)
        known = published | {name.replace("q_proj", "k_proj"): none for name in published if "q_proj.bias" in name}
        return {name: torch.cat([known[their] for their in their_names(name)]) for name in wanted}


def their_names(name: str) -> list[str]:
    """Of the tensors that lie one after the other in ours."""
    if name in OUTER:
        return [OUTER[name]]
    side, index, rest = name.split(".", 2)
    part, kind = rest.rsplit(".", 1)
    names = FUSED.get(part) or [(ENCODER if side == "encoder" else DECODER)[part]]
    return [f"model.{side}.layers.{index}.{piece}.{kind}" for piece in names]
