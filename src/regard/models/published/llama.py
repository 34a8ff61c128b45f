"""The layout of transformers' `LlamaForCausalLM`."""

from typing import Any

from regard.errors import CheckpointError
from regard.models.llama import LlamaConfig
from regard.models.published.layout import COMMON, Layout, with_prefix

LAYER = {
    "norm1": "input_layernorm",
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": "self_attn.o_proj",
    "norm2": "post_attention_layernorm",
    "mlp.up": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down": "mlp.down_proj",
}


class LlamaLayout(Layout):
    name, architecture, config = "llama", "LlamaForCausalLM", LlamaConfig
    settings = COMMON | {
        "vocab": "vocab_size",
        "kv_heads": "num_key_value_heads",
        "head_width": "head_dim",
        "context": "max_position_embeddings",
        "eps": "rms_norm_eps",
        "tied": "tie_word_embeddings",
        "dropout": "residual_dropout",  # ours; theirs has none there
    }
    optional = ("kv_heads", "head_width", "tied", "dropout")
    fixed = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
    written = {"attention_dropout": 0.0}
    tensors = {
        "token": "model.embed_tokens",
        **with_prefix("blocks.*.", LAYER, "model.layers.*."),
        "norm": "model.norm",
        "output": "lm_head.weight",
    }
    spare = r"rotary_emb\.inv_freq$"  # kept by old files

    def extra_settings(self, config: LlamaConfig, eos: int | None) -> dict[str, Any]:
        rope = {"rope_theta": config.theta}
        return {
            **rope,
            "rope_parameters": {"rope_type": "default", **rope},
            "bos_token_id": eos,
            "eos_token_id": eos,
        }

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        rope = {**(values.get("rope_scaling") or {}), **(values.get("rope_parameters") or {})}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise CheckpointError(
                f"{where}: rotary frequencies are scaled ({kind!r}), and we read only plain ones; choose a model "
                "without rope_scaling, such as smollm2-135m"
            )
        heads = values["num_attention_heads"]
        return {
            "kv_heads": values.get("num_key_value_heads") or heads,
            "head_width": values.get("head_dim") or values["hidden_size"] // heads,
            "tied": values.get("tie_word_embeddings", False),
            "theta": float(rope.get("rope_theta", values.get("rope_theta", 10000.0))),
        }

    def rows(self, name: str, rows: int, pieces: int, config: LlamaConfig) -> Any:
        if "attention.qkv" in name:
            return [n * config.head_width for n in (config.heads, config.kv_heads, config.kv_heads)]
        return rows // pieces

    def ignored(self, name: str, config: LlamaConfig) -> bool:
        """Some files keep a second copy of the tied table."""
        return super().ignored(name, config) or (config.tied and name == "lm_head.weight")
