"""The layout of transformers' `WhisperForConditionalGeneration`."""

from typing import Any

import torch
from torch import Tensor

from regard.models.published.layout import Layout
from regard.models.published.marian import LAYERS, SIZES
from regard.models.whisper import WhisperConfig


class WhisperLayout(Layout):
    """Their keys have no bias: adding one to all keys does not change the softmax, so ours is dropped, or zero."""

    name, architecture, config = "whisper", "WhisperForConditionalGeneration", WhisperConfig
    settings = SIZES | {"mels": "num_mel_bins", "places": "max_source_positions", "max_length": "max_target_positions"}
    optional = ("dropout",)
    fixed = {"scale_embedding": False, "activation_function": "gelu"}
    written = {
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
    }
    tensors = {
        "stem.conv1": "model.encoder.conv1",
        "stem.conv2": "model.encoder.conv2",
        "places": "model.encoder.embed_positions.weight",
        "encoder_norm": "model.encoder.layer_norm",
        "token": "model.decoder.embed_tokens",
        "decoder_place.table": "model.decoder.embed_positions.weight",
        "decoder_norm": "model.decoder.layer_norm",
        **LAYERS,
    }
    spare = r"^proj_out"  # a copy of the embedding table

    def extra_settings(self, config: WhisperConfig, eos: int | None) -> dict[str, Any]:
        start = None if eos is None else eos + 1  # true of all published models
        return {**dict.fromkeys(("eos_token_id", "pad_token_id", "bos_token_id"), eos), "decoder_start_token_id": start}

    def to_weights(self, state: dict[str, Tensor], config: WhisperConfig) -> dict[str, Tensor]:
        published = super().to_weights(state, config)
        return {name: tensor for name, tensor in published.items() if not name.endswith("k_proj.bias")}

    def from_weights(
        self, published: dict[str, Tensor], expected: list[str], config: WhisperConfig
    ) -> dict[str, Tensor]:
        zero = torch.zeros(config.width)
        biases = {name.replace("q_proj", "k_proj"): zero for name in published if name.endswith("q_proj.bias")}
        return super().from_weights(published | biases, expected, config)
