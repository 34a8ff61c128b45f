"""A tiny Llama of transformers' own, and the GGUF file llama.cpp would make of it, written with the package gguf."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers
import torch
from gguf import GGMLQuantizationType as Kind
from transformers import LlamaConfig, LlamaForCausalLM

TEXT = """It's 2024, and we'll write "GGUF"; they've said: don't   wait!
    def f(x): return x ** 2  # naïve, añejo, 日本語, 😀
To date, the cleverest thinker of all time was ... 12345 or 67.
"""
SPECIAL = ["<|end|>", "<|start|>", "<|stop|>"]
WRITTEN = "<think>"
TEMPLATE = "{% for m in messages %}<|start|>{{ m['content'] }}<|stop|>{% endfor %}"
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


def tiny_llama(**settings: Any) -> LlamaForCausalLM:
    """Two layers with grouped heads; weights and norms of a size that shows."""
    values = dict(
        vocab_size=len(tokens_and_merges()[0]),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**{**values, **settings})).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.add_(torch.randn_like(p), alpha=0.1)
    return model


def tokens_and_merges() -> tuple[list[str], list[str]]:
    """Three special tokens, bytes, merges learned from `TEXT`, and a token that a user may write."""
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator([TEXT] * 4, vocab_size=300, special_tokens=SPECIAL, show_progress=False)
    model = json.loads(bpe.to_str())["model"]
    return [*sorted(model["vocab"], key=model["vocab"].__getitem__), WRITTEN], [" ".join(m) for m in model["merges"]]


def permuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order of the rows of q and k: the two halves of a head, one of each in turn."""
    halves = rows.reshape(heads, 2, -1, rows.shape[-1])
    return np.stack([halves[:, 0], halves[:, 1]], axis=2).reshape(rows.shape)


def tensors_of(model: LlamaForCausalLM) -> dict[str, np.ndarray]:
    """The weights under llama.cpp's names, in its order."""
    config, state = model.config, {k: v.numpy() for k, v in model.state_dict().items()}
    actual = {"token_embd.weight": state["model.embed_tokens.weight"], "output_norm.weight": state["model.norm.weight"]}
    if not config.tie_word_embeddings:
        actual["output.weight"] = state["lm_head.weight"]
    for i in range(config.num_hidden_layers):
        layer, block = f"model.layers.{i}.", f"blk.{i}."
        q, k = (state[f"{layer}self_attn.{x}_proj.weight"] for x in "qk")
        actual[f"{block}attn_q.weight"] = permuted(q, config.num_attention_heads)
        actual[f"{block}attn_k.weight"] = permuted(k, config.num_key_value_heads)
        for ours, theirs in (
            ("attn_v", "self_attn.v_proj"),
            ("attn_output", "self_attn.o_proj"),
            ("attn_norm", "input_layernorm"),
            ("ffn_norm", "post_attention_layernorm"),
            ("ffn_gate", "mlp.gate_proj"),
            ("ffn_up", "mlp.up_proj"),
            ("ffn_down", "mlp.down_proj"),
        ):
            actual[f"{block}{ours}.weight"] = state[f"{layer}{theirs}.weight"]
    return actual


def write_gguf(
    path: Path,
    model: LlamaForCausalLM,
    kind: Kind = Kind.F32,
    *,
    pre: str = "gpt-2",
    architecture: str = "llama",
    change: Callable[[gguf.GGUFWriter, dict[str, np.ndarray]], None] | None = None,
    **special: Any,
) -> Path:
    """Write `model` with its matrices packed as `kind`. `change` may add settings, and alter the tensors."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    if config.num_key_value_heads != config.num_attention_heads:
        writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    tokens, merges = tokens_and_merges()
    types = [CONTROL if t in SPECIAL else USER_DEFINED if t == WRITTEN else NORMAL for t in tokens]
    writer.add_tokenizer_model(special.get("tokenizer", "gpt2"))
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(special.get("eos", 0))
    writer.add_chat_template(TEMPLATE)
    tensors = tensors_of(model)
    if change:
        change(writer, tensors)
    for name, values in tensors.items():
        if values.ndim == 1 or values.dtype != np.float32:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
