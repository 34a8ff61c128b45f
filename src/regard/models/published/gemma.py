"""The layout of transformers' `Gemma3ForCausalLM`, the text models of Gemma 3."""

from typing import Any

from torch import Tensor

from regard.errors import CheckpointError
from regard.models.gemma import GemmaConfig
from regard.models.published.alternating import GLOBAL, LOCAL, alternating_fields, alternating_settings
from regard.models.published.layout import COMMON, with_prefix
from regard.models.published.llama import LAYER, LlamaLayout

NORMS = {
    "norm1_after": "post_attention_layernorm",
    "norm2": "pre_feedforward_layernorm",
    "norm2_after": "post_feedforward_layernorm",
    "attention.q_norm": "self_attn.q_norm",
    "attention.k_norm": "self_attn.k_norm",
}


class Gemma3Layout(LlamaLayout):
    """Their norms multiply by 1 + weight, so our weights are larger by 1."""

    name, architecture, config = "gemma3_text", "Gemma3ForCausalLM", GemmaConfig
    settings = COMMON | {
        "vocab": "vocab_size",
        "kv_heads": "num_key_value_heads",
        "head_width": "head_dim",
        "context": "max_position_embeddings",
        "window": "sliding_window",
        "eps": "rms_norm_eps",
        "dropout": "residual_dropout",  # ours; theirs has none there
    }
    optional = ("dropout",)
    fixed = {
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "use_bidirectional_attention": False,
        "tie_word_embeddings": True,
    }
    tensors = {
        "token": "model.embed_tokens",
        **with_prefix("blocks.*.", LAYER | NORMS, "model.layers.*."),
        "norm": "model.norm",
    }
    spare = r"^lm_head\.weight$|rotary_emb"  # a copy of the embedding table

    def fits(self, config: Any) -> bool:
        return isinstance(config, GemmaConfig)

    def extra_settings(self, config: Any, eos: int | None) -> dict[str, Any]:
        ends = dict.fromkeys(("bos_token_id", "eos_token_id"), eos)
        own = {"query_pre_attn_scalar": config.head_width, "_sliding_window_pattern": config.global_every}
        return own | alternating_settings(config, first=False) | ends

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        if (scale := values.get("query_pre_attn_scalar", 256)) != values["head_dim"]:
            raise CheckpointError(f"{where}: query_pre_attn_scalar is {scale}; we read only head_dim")
        every = values.get("sliding_window_pattern") or values.get("_sliding_window_pattern") or 6
        thetas = {GLOBAL: values.get("rope_theta", 1e6), LOCAL: values.get("rope_local_base_freq", 1e4)}
        return alternating_fields(values, where, False, every, thetas)

    def ignored(self, name: str, config: Any) -> bool:
        return super(LlamaLayout, self).ignored(name, config)

    def to_theirs(self, name: str, tensor: Tensor, config: Any) -> Tensor:
        return tensor - 1 if tensor.ndim == 1 else tensor

    def to_ours(self, name: str, tensor: Tensor, config: Any) -> Tensor:
        return tensor + 1 if tensor.ndim == 1 else tensor
