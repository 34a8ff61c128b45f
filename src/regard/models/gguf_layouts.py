"""llama.cpp's architectures that we read and write: their names of settings and tensors, and the published ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LAYER = {
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
BIASES = {f"attn_{x}.bias": f"self_attn.{x}_proj.bias" for x in "qkv"}
NORMS = {f"attn_{x}_norm.weight": f"self_attn.{x}_norm.weight" for x in "qk"}
GPT2_LAYER = {
    f"{theirs}.{what}": f"{published}.{what}"
    for theirs, published in (
        ("attn_norm", "ln_1"),
        ("attn_qkv", "attn.c_attn"),
        ("attn_output", "attn.c_proj"),
        ("ffn_norm", "ln_2"),
        ("ffn_up", "mlp.c_fc"),
        ("ffn_down", "mlp.c_proj"),
    )
    for what in ("weight", "bias")
}


@dataclass(frozen=True)
class Architecture:
    """`general.architecture`, the corresponding class of transformers, and the tensor names of both."""

    name: str
    published: str  # class of transformers
    model_types: tuple[str, ...]  # in config.json; the first is what a file is read as
    whole: Mapping[str, str]  # llama.cpp's tensors outside the layers -> published
    layer: Mapping[str, str]
    settings: Mapping[str, str]  # llama.cpp's, after the name of the architecture -> published
    layers: str = "model.layers."  # prefix of a layer's published names
    fixed: Mapping[str, Any] = field(default_factory=dict)  # published settings implied by the architecture

    def names(self, layers: int) -> dict[str, str]:
        """llama.cpp's name of every tensor -> the published one."""
        names = dict(self.whole)
        for i in range(layers):
            names |= {f"blk.{i}.{theirs}": f"{self.layers}{i}.{ours}" for theirs, ours in self.layer.items()}
        return names

    def shape(self, name: str, published: tuple[int, ...]) -> tuple[int, ...]:
        """The shape here of a tensor with this `published` shape."""
        return published

    def to_published(self, name: str, values: np.ndarray, config: dict[str, Any]) -> np.ndarray:
        """The tensor that llama.cpp calls `name`, as published files hold it."""
        return values

    def from_published(self, name: str, values: np.ndarray, config: dict[str, Any]) -> np.ndarray:
        """The inverse of `to_published`."""
        return values


class Rotated(Architecture):
    """Llama: rotary pairs are neighbours here; published files pair the two halves of a head."""

    def to_published(self, name: str, values: np.ndarray, config: dict[str, Any]) -> np.ndarray:
        heads = heads_of(name, config)
        return unpermute(values, heads) if heads else values

    def from_published(self, name: str, values: np.ndarray, config: dict[str, Any]) -> np.ndarray:
        heads = heads_of(name, config)
        return permute(values, heads) if heads else values


class Transposed(Architecture):
    """GPT-2: its published matrices are for x W, all others for W x."""

    def shape(self, name: str, published: tuple[int, ...]) -> tuple[int, ...]:
        return published[::-1] if name.startswith("blk.") else published

    def to_published(self, name: str, values: np.ndarray, config: dict[str, Any]) -> np.ndarray:
        return values.T if name.startswith("blk.") and values.ndim == 2 else values

    from_published = to_published


def heads_of(name: str, config: dict[str, Any]) -> int:
    """The number of heads whose rows must be reordered in this tensor; 0: none."""
    key = {"attn_q.weight": "num_attention_heads", "attn_k.weight": "num_key_value_heads"}
    return config.get(key.get(name.partition(".")[2].partition(".")[2], ""), 0)


def permute(rows: np.ndarray, heads: int) -> np.ndarray:
    """Interleave the two halves of every head."""
    return rows.reshape(heads, 2, -1, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def unpermute(rows: np.ndarray, heads: int) -> np.ndarray:
    return rows.reshape(heads, -1, 2, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


LLAMA_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LLAMA = {
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.value_length": "head_dim",
    "context_length": "max_position_embeddings",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
GPT2_WHOLE = {
    "token_embd.weight": "transformer.wte.weight",
    "position_embd.weight": "transformer.wpe.weight",
    "output_norm.weight": "transformer.ln_f.weight",
    "output_norm.bias": "transformer.ln_f.bias",
}
GPT2 = {
    "embedding_length": "n_embd",
    "feed_forward_length": "n_inner",
    "block_count": "n_layer",
    "attention.head_count": "n_head",
    "context_length": "n_positions",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}
LIKE_LLAMA = {"hidden_act": "silu"}
ARCHITECTURES = {
    each.name: each
    for each in (
        Rotated("llama", "LlamaForCausalLM", ("llama", "mistral"), LLAMA_WHOLE, LAYER, LLAMA,
                fixed=LIKE_LLAMA | {"attention_bias": False, "mlp_bias": False}),
        Architecture("qwen2", "Qwen2ForCausalLM", ("qwen2",), LLAMA_WHOLE, LAYER | BIASES, LLAMA,
                     fixed=LIKE_LLAMA | {"use_sliding_window": False}),
        Architecture("qwen3", "Qwen3ForCausalLM", ("qwen3",), LLAMA_WHOLE, LAYER | NORMS, LLAMA,
                     fixed=LIKE_LLAMA | {"use_sliding_window": False, "attention_bias": False}),
        Transposed("gpt2", "GPT2LMHeadModel", ("gpt2",), GPT2_WHOLE, GPT2_LAYER, GPT2, "transformer.h.",
                   fixed={"activation_function": "gelu_new", "tie_word_embeddings": True}),
    )
}  # fmt: skip
