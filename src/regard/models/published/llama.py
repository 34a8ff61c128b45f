"""The layout of transformers' `LlamaForCausalLM`: our Llama, with its fused maps cut into theirs."""

from typing import Any

import torch
from torch import Tensor

from regard.errors import CheckpointError
from regard.models.llama import LlamaConfig
from regard.models.published.layout import Layout

PARTS = {
    "norm1": ["input_layernorm"],
    "attention.qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "attention.out": ["self_attn.o_proj"],
    "norm2": ["post_attention_layernorm"],
    "mlp.up": ["mlp.gate_proj", "mlp.up_proj"],
    "mlp.down": ["mlp.down_proj"],
}
ALONE = {"token.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight", "output": "lm_head.weight"}
SPARE = ("rotary_emb.inv_freq",)  # kept by old files
WANTED = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}


class LlamaLayout(Layout):
    """`LlamaForCausalLM`."""

    name = "llama"

    def fits(self, config: Any) -> bool:
        return isinstance(config, LlamaConfig)

    def to_config(self, config: LlamaConfig, eos: int | None) -> dict[str, Any]:
        return {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": config.vocab,
            "hidden_size": config.width,
            "num_hidden_layers": config.layers,
            "num_attention_heads": config.heads,
            "num_key_value_heads": config.kv_heads,
            "head_dim": config.head_width,
            "intermediate_size": config.ffn,
            "max_position_embeddings": config.context,
            "rope_theta": config.theta,
            "rope_parameters": {"rope_type": "default", "rope_theta": config.theta},
            "rms_norm_eps": config.eps,
            "tie_word_embeddings": config.tied,
            "attention_dropout": 0.0,
            "residual_dropout": config.dropout,  # ours; theirs has none there
            **WANTED,
            "bos_token_id": eos,
            "eos_token_id": eos,
            "dtype": "float32",
        }

    def from_config(self, values: dict[str, Any], where: str) -> LlamaConfig:
        for name, value in WANTED.items():
            if values.get(name, value) != value:
                raise CheckpointError(f"{where}: {name} is {values[name]!r}, we read only {value!r}")
        rope = {**(values.get("rope_scaling") or {}), **(values.get("rope_parameters") or {})}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise CheckpointError(
                f"{where}: rotations are stretched ({kind!r}), and we read only plain ones; choose a model without "
                "rope_scaling, such as smollm2-135m"
            )
        return LlamaConfig(
            vocab=values["vocab_size"],
            width=values["hidden_size"],
            layers=values["num_hidden_layers"],
            heads=values["num_attention_heads"],
            kv_heads=values.get("num_key_value_heads") or values["num_attention_heads"],
            head_width=values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"],
            ffn=values["intermediate_size"],
            context=values["max_position_embeddings"],
            theta=float(rope.get("rope_theta", values.get("rope_theta", 10000.0))),
            eps=values["rms_norm_eps"],
            tied=values.get("tie_word_embeddings", False),
            dropout=values.get("residual_dropout", 0.0),
        )

    def to_weights(self, state: dict[str, Tensor], config: LlamaConfig) -> dict[str, Tensor]:
        published = {}
        for name, tensor in state.items():
            names = theirs(name)
            pieces = [tensor] if len(names) == 1 else tensor.split(rows(name, config))
            published.update((n, piece.contiguous()) for n, piece in zip(names, pieces, strict=True))
        return published

    def from_weights(self, published: dict[str, Tensor], wanted: list[str], config: LlamaConfig) -> dict[str, Tensor]:
        published = {n: t for n, t in published.items() if not n.endswith(SPARE)}
        if config.tied:
            published.pop("lm_head.weight", None)  # some files keep a second copy of the tied table
        ours = {}
        for name in wanted:
            pieces = [published.pop(n) for n in theirs(name)]
            ours[name] = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
        if published:
            raise RuntimeError(f"it has more than that: {', '.join(sorted(published)[:3])}")
        return ours


def theirs(name: str) -> list[str]:
    """Our name of a parameter -> theirs; several for a fused map."""
    if name in ALONE:
        return [ALONE[name]]
    _, index, rest = name.split(".", 2)
    part, kind = rest.rsplit(".", 1)
    return [f"model.layers.{index}.{piece}.{kind}" for piece in PARTS[part]]


def rows(name: str, config: LlamaConfig) -> list[int]:
    """How many rows of a fused map belong to each of theirs."""
    if name.endswith("qkv.weight"):
        return [n * config.head_width for n in (config.heads, config.kv_heads, config.kv_heads)]
    return [config.ffn, config.ffn]
