"""The layouts of transformers' Llama, Mistral, Qwen2 and Qwen3: our Llama with one or two more settings."""

from typing import Any

from regard.errors import CheckpointError
from regard.models.llama import LlamaConfig
from regard.models.published.layout import COMMON, Layout, with_prefix
from regard.nn.positions import Stretch

STRETCH = {  # of Llama 3.1: our field -> theirs
    "factor": "factor",
    "low": "low_freq_factor",
    "high": "high_freq_factor",
    "context": "original_max_position_embeddings",
}
OPTIONS = ("window", "qkv_bias", "qk_norm")  # of Llama's relatives
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
    spare = r"rotary_emb\.inv_freq$"  # in old files
    options: tuple[str, ...] = ()  # that a plain Llama does not have

    def fits(self, config: Any) -> bool:
        return isinstance(config, LlamaConfig) and self.options == tuple(o for o in OPTIONS if getattr(config, o))

    def extra_settings(self, config: LlamaConfig, eos: int | None) -> dict[str, Any]:
        rope: dict[str, Any] = {"rope_type": "default"}
        if config.stretch.factor > 1:
            rope = {"rope_type": "llama3", **{their: getattr(config.stretch, ours) for ours, their in STRETCH.items()}}
        theta = {"rope_theta": config.theta}
        return {**theta, "rope_parameters": rope | theta, "bos_token_id": eos, "eos_token_id": eos}

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        rope = {**(values.get("rope_scaling") or {}), **(values.get("rope_parameters") or {})}
        rope_type = rope.get("rope_type", rope.get("type", "default"))
        if rope_type not in ("default", "llama3"):
            raise CheckpointError(
                f"{where}: rotary frequencies are scaled ({rope_type!r}); we read plain ones and Llama 3's; choose a "
                "model without rope_scaling, such as smollm2-135m"
            )
        stretch = {ours: rope[their] for ours, their in STRETCH.items()} if rope_type == "llama3" else {}
        heads = values["num_attention_heads"]
        return {
            "kv_heads": values.get("num_key_value_heads") or heads,
            "head_width": values.get("head_dim") or values["hidden_size"] // heads,
            "tied": values.get("tie_word_embeddings", False),
            "theta": float(rope.get("rope_theta", values.get("rope_theta", 10000.0))),
            "stretch": Stretch(**stretch),
        }

    def rows(self, name: str, rows: int, pieces: int, config: LlamaConfig) -> Any:
        if "attention.qkv" in name:
            return [n * config.head_width for n in (config.heads, config.kv_heads, config.kv_heads)]
        return rows // pieces

    def ignored(self, name: str, config: LlamaConfig) -> bool:
        """Some files hold a copy of the tied table."""
        return super().ignored(name, config) or (config.tied and name == "lm_head.weight")


class MistralLayout(LlamaLayout):
    """Jiang et al. 2023: sliding-window attention."""

    name, architecture = "mistral", "MistralForCausalLM"
    fixed = {"hidden_act": "silu"}
    options = ("window",)

    def extra_settings(self, config: LlamaConfig, eos: int | None) -> dict[str, Any]:
        return super().extra_settings(config, eos) | {"sliding_window": config.window}

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        return super().extra_fields(values, where) | {"window": values.get("sliding_window") or 0}


class Qwen2Layout(LlamaLayout):
    """Yang et al. 2024: biases of q, k and v."""

    name, architecture = "qwen2", "Qwen2ForCausalLM"
    fixed = {"hidden_act": "silu", "use_sliding_window": False}
    options = ("qkv_bias",)

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        return super().extra_fields(values, where) | {"qkv_bias": True}


class Qwen3Layout(LlamaLayout):
    """Yang et al. 2025: norms of q and k."""

    name, architecture = "qwen3", "Qwen3ForCausalLM"
    fixed = {"hidden_act": "silu", "use_sliding_window": False, "attention_bias": False}
    tensors = {
        **LlamaLayout.tensors,
        "blocks.*.attention.q_norm": "model.layers.*.self_attn.q_norm",
        "blocks.*.attention.k_norm": "model.layers.*.self_attn.k_norm",
    }
    options = ("qk_norm",)

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        return super().extra_fields(values, where) | {"qk_norm": True}
