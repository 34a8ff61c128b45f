"""The layout of transformers' `BartForConditionalGeneration`."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from regard.models.bart import BartConfig
from regard.models.published.layout import Layout, with_prefix
from regard.models.published.marian import DECODER, ENCODER, SIZES, MarianLayout

EMPTY = 2  # unused rows of their position tables


class BartLayout(MarianLayout):
    """Positions start at the third row of their tables."""

    name, architecture, config = "bart", "BartForConditionalGeneration", BartConfig
    settings = SIZES | {
        "max_length": "max_position_embeddings",
        "activation": "activation_function",
        "scaled": "scale_embedding",
        "start": "decoder_start_token_id",
    }
    optional = ("scaled", "start", "activation", "dropout")
    fixed = {"pad_token_id": 1, "normalize_before": False, "add_final_layer_norm": False}
    written = {
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "forced_eos_token_id": 2,
    }
    tensors = {
        "token": "shared",
        "bias": "final_logits_bias",
        **{f"{side}_place.table": f"{side}.embed_positions.weight" for side in ("encoder", "decoder")},
        **{f"{side}_first_norm": f"{side}.layernorm_embedding" for side in ("encoder", "decoder")},
        **with_prefix("encoder.*.", ENCODER, "encoder.layers.*."),
        **with_prefix("decoder.*.", DECODER, "decoder.layers.*."),
    }
    prefix = "model."  # not in the files of bart-base and bart-large
    spare = r"embed_tokens|^lm_head"  # copies of the embedding table

    def fits(self, config: Any) -> bool:
        return isinstance(config, BartConfig)

    def extra_settings(self, config: Any, eos: int | None) -> dict[str, Any]:
        return {}

    def prefixed(self, name: str, config: Any) -> str:
        return name if name == "final_logits_bias" else self.prefix + name

    def from_config(self, values: dict[str, Any], where: str) -> Any:
        return Layout.from_config(self, values, where)

    def to_theirs(self, name: str, tensor: Tensor, config: Any) -> Tensor:
        if name.endswith("place.table"):
            return F.pad(tensor, (0, 0, EMPTY, 0))
        return super().to_theirs(name, tensor, config)

    def to_ours(self, name: str, tensor: Tensor, config: Any) -> Tensor:
        return tensor[EMPTY:] if name.endswith("place.table") else super().to_ours(name, tensor, config)
