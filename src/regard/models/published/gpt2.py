"""The layout of transformers' `GPT2LMHeadModel`: our GPT with learned positions."""

from typing import Any

from torch import Tensor

from regard.models.gpt import GPTConfig
from regard.models.published.layout import Layout


class GPT2Layout(Layout):
    """Linear layers are stored transposed."""

    name, architecture, config = "gpt2", "GPT2LMHeadModel", GPTConfig
    settings = {
        "vocab": "vocab_size",
        "context": "n_positions",
        "width": "n_embd",
        "layers": "n_layer",
        "heads": "n_head",
        "ffn": "n_inner",
        "dropout": "resid_pdrop",
    }
    optional = ("ffn", "dropout")
    fixed = {
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    }
    tensors = {
        "token": "wte",
        "place.table": "wpe.weight",
        "blocks.*.norm1": "h.*.ln_1",
        "blocks.*.attention.qkv": "h.*.attn.c_attn",
        "blocks.*.attention.out": "h.*.attn.c_proj",
        "blocks.*.norm2": "h.*.ln_2",
        "blocks.*.mlp.up": "h.*.mlp.c_fc",
        "blocks.*.mlp.down": "h.*.mlp.c_proj",
        "norm": "ln_f",
    }
    transposed, prefix = True, "transformer."
    spare = r"\.attn\.(masked_)?bias$|^lm_head\.weight$"  # old files hold the causal mask, some a copy of wte

    def fits(self, config: Any) -> bool:
        return super().fits(config) and config.positions == "learned"

    def extra_settings(self, config: GPTConfig, eos: int | None) -> dict[str, Any]:
        dropout = dict.fromkeys(("embd_pdrop", "attn_pdrop"), config.dropout)
        return {**dropout, "bos_token_id": eos, "eos_token_id": eos}

    def from_config(self, values: dict[str, Any], where: str) -> GPTConfig:
        same = {"activation_function": "gelu_new"} if values.get("activation_function") == "gelu_pytorch_tanh" else {}
        return super().from_config(values | same, where)

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        return {"ffn": values.get("n_inner") or 4 * values["n_embd"], "dropout": values.get("resid_pdrop", 0.1)}

    def to_theirs(self, name: str, tensor: Tensor, config: GPTConfig) -> Tensor:
        return tensor.T if name.startswith("blocks.") and tensor.ndim == 2 else tensor

    to_ours = to_theirs
