"""The layout of transformers' `GPT2LMHeadModel`: our GPT with learned positions. Its matrices lie on their side."""

from typing import Any

from torch import Tensor

from regard.errors import CheckpointError
from regard.models.gpt import GPTConfig
from regard.models.published.layout import Layout

PARTS = {
    "norm1": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "norm2": "ln_2",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}
ALONE = {"token.weight": "wte.weight", "place.table": "wpe.weight"}
# Old files keep the causal mask as a tensor, and some a second copy of the tied table.
SPARE = (".attn.bias", ".attn.masked_bias", "lm_head.weight")
WANTED = {
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


class GPT2(Layout):
    """`GPT2LMHeadModel`."""

    name = "gpt2"

    def fits(self, config: Any) -> bool:
        return isinstance(config, GPTConfig) and config.positions == "learned"

    def to_config(self, config: GPTConfig, eos: int | None) -> dict[str, Any]:
        return {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "vocab_size": config.vocab,
            "n_positions": config.context,
            "n_embd": config.width,
            "n_layer": config.layers,
            "n_head": config.heads,
            "n_inner": config.ffn,
            "activation_function": "gelu_new",
            "resid_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "attn_pdrop": config.dropout,
            **WANTED,
            "bos_token_id": eos,
            "eos_token_id": eos,
            "dtype": "float32",
        }

    def from_config(self, values: dict[str, Any], where: str) -> GPTConfig:
        for name, value in WANTED.items():
            if values.get(name, value) != value:
                raise CheckpointError(f"{where}: {name} is {values[name]}, we read only {value}")
        if values.get("activation_function", "gelu_new") not in ("gelu_new", "gelu_pytorch_tanh"):
            raise CheckpointError(
                f"{where}: activation_function {values['activation_function']!r}, we read only gelu_new"
            )
        return GPTConfig(
            vocab=values["vocab_size"],
            width=values["n_embd"],
            layers=values["n_layer"],
            heads=values["n_head"],
            ffn=values.get("n_inner") or 4 * values["n_embd"],
            context=values["n_positions"],
            dropout=values.get("resid_pdrop", 0.1),
        )

    def to_weights(self, state: dict[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
        return {f"transformer.{theirs(n)}": t.T.contiguous() if on_its_side(n) else t for n, t in state.items()}

    def from_weights(self, published: dict[str, Tensor], wanted: list[str], config: GPTConfig) -> dict[str, Tensor]:
        published = {n.removeprefix("transformer."): t for n, t in published.items() if not n.endswith(SPARE)}
        ours = {name: published.pop(theirs(name)) for name in wanted}
        if published:
            raise RuntimeError(f"it has more than that: {', '.join(sorted(published)[:3])}")
        return {name: t.T.contiguous() if on_its_side(name) else t for name, t in ours.items()}


def theirs(name: str) -> str:
    """Our name of a parameter -> theirs, without the prefix `transformer.` that newer files have."""
    if name in ALONE:
        return ALONE[name]
    if name.startswith("norm."):
        return "ln_f." + name.removeprefix("norm.")
    _, index, rest = name.split(".", 2)
    part, kind = rest.rsplit(".", 1)
    return f"h.{index}.{PARTS[part]}.{kind}"


def on_its_side(name: str) -> bool:
    return name.startswith("blocks.") and name.endswith(".weight") and "norm" not in name
