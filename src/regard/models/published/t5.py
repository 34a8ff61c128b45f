"""The layout of transformers' `T5ForConditionalGeneration`: T5, T5 1.1, FLAN-T5."""

import math
import re
from typing import Any

from torch import Tensor

from regard.models.published.layout import Layout, with_prefix
from regard.models.t5 import T5Config

SELF = {
    "norm1": "layer.0.layer_norm",
    "attention.qkv": ("layer.0.SelfAttention.q", "layer.0.SelfAttention.k", "layer.0.SelfAttention.v"),
    "attention.out": "layer.0.SelfAttention.o",
}
CROSS = {
    "norm2": "layer.1.layer_norm",
    "cross.query": "layer.1.EncDecAttention.q",
    "cross.kv": ("layer.1.EncDecAttention.k", "layer.1.EncDecAttention.v"),
    "cross.out": "layer.1.EncDecAttention.o",
}
QUERIES = re.compile(r"(attention\.qkv|cross\.query)\.weight$")


class T5Layout(Layout):
    """Their scores are not divided by √K, so our query weights are larger by that factor."""

    name, architecture, config = "t5", "T5ForConditionalGeneration", T5Config
    settings = {
        "vocab": "vocab_size",
        "width": "d_model",
        "encoder_layers": "num_layers",
        "decoder_layers": "num_decoder_layers",
        "heads": "num_heads",
        "head_width": "d_kv",
        "ffn": "d_ff",
        "forward": "feed_forward_proj",
        "dropout": "dropout_rate",
        "buckets": "relative_attention_num_buckets",
        "furthest": "relative_attention_max_distance",
        "eps": "layer_norm_epsilon",
        "tied": "tie_word_embeddings",
    }
    optional = ("decoder_layers", "forward", "dropout", "buckets", "furthest", "eps", "tied")
    fixed = {"pad_token_id": 0, "decoder_start_token_id": 0}
    written = {"is_encoder_decoder": True, "eos_token_id": 1}
    tensors = {
        "token": "shared",
        "output": "lm_head.weight",
        "encoder_bias.table": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        "decoder_bias.table": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        **with_prefix("encoder.*.", SELF | {"norm2": "layer.1.layer_norm"}, "encoder.block.*."),
        **with_prefix("decoder.*.", SELF | CROSS | {"norm3": "layer.2.layer_norm"}, "decoder.block.*."),
        "encoder_norm": "encoder.final_layer_norm",
        "decoder_norm": "decoder.final_layer_norm",
    }
    spare = r"embed_tokens\.weight$|EncDecAttention\.relative_attention_bias"  # copies; unused tensors of old files

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        return {"decoder_layers": values.get("num_decoder_layers") or values["num_layers"]}

    def names(self, name: str, config: T5Config) -> tuple[str, ...]:
        if match := re.fullmatch(r"(encoder|decoder)\.(\d+)\.mlp\.(up|down)\.weight", name):
            side, number, which = match.groups()
            up = ("wi_0", "wi_1") if config.forward == "gated-gelu" else ("wi",)
            part = f"{side}.block.{number}.layer.{1 if side == 'encoder' else 2}.DenseReluDense"
            return tuple(f"{part}.{their}.weight" for their in (up if which == "up" else ("wo",)))
        return super().names(name, config)

    def ignored(self, name: str, config: T5Config) -> bool:
        return super().ignored(name, config) or (config.tied and name == "lm_head.weight")

    def to_weights(self, state: dict[str, Tensor], config: T5Config) -> dict[str, Tensor]:
        return super().to_weights(with_queries_times(state, config.head_width**-0.5, config), config)

    def from_weights(self, published: dict[str, Tensor], expected: list[str], config: T5Config) -> dict[str, Tensor]:
        ours = super().from_weights(published, expected, config)
        return with_queries_times(ours, math.sqrt(config.head_width), config)


def with_queries_times(state: dict[str, Tensor], factor: float, config: T5Config) -> dict[str, Tensor]:
    """The weights with the query projections multiplied by `factor`."""

    def scaled(tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        tensor[: config.heads * config.head_width] *= factor
        return tensor

    return {name: scaled(tensor) if QUERIES.search(name) else tensor for name, tensor in state.items()}
