"""The layouts of transformers' ModernBert models."""

from typing import Any

from regard.models.modernbert import HEADS, ModernBertConfig
from regard.models.published.alternating import GLOBAL, LOCAL, alternating_fields, alternating_settings
from regard.models.published.bert import BERT, BertLayout
from regard.models.published.layout import COMMON


class ModernBertLayout(BertLayout):
    name, architecture, config = "modernbert", "ModernBertModel", ModernBertConfig
    architectures = {head: f"ModernBert{BERT[head]}" for head in HEADS}
    settings = COMMON | {
        "vocab": "vocab_size",
        "max_length": "max_position_embeddings",
        "dropout": "embedding_dropout",
        "attention_dropout": "attention_dropout",
        "eps": "norm_eps",
        "window": "local_attention",
    }
    optional = ("max_length", "dropout", "attention_dropout", "eps", "window")
    fixed = {
        "hidden_activation": "gelu",
        "classifier_activation": "gelu",
        **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), False),
        "decoder_bias": True,
        "tie_word_embeddings": True,
    }
    written = {"mlp_dropout": 0.0, "classifier_dropout": 0.0, "initializer_range": 0.02, "pad_token_id": 0}
    tensors = {
        "token": "embeddings.tok_embeddings",
        "norm": "embeddings.norm",
        "layers.*.norm1": "layers.*.attn_norm",
        "layers.*.attention.qkv": "layers.*.attn.Wqkv",
        "layers.*.attention.out": "layers.*.attn.Wo",
        "layers.*.norm2": "layers.*.mlp_norm",
        "layers.*.mlp.up": "layers.*.mlp.Wi",
        "layers.*.mlp.down": "layers.*.mlp.Wo",
        "final_norm": "final_norm",
        "masked": "decoder",
        "pooler.dense": "head.dense",
        "pooler.norm": "head.norm",
        "classifier": "classifier",
    }
    prefix = "model."
    heads = ("head.", "decoder.", "classifier.")
    spare = r"^decoder\.weight$"

    def writes(self, config: Any) -> bool:
        return config.family == self.name and config.pooling in ("cls", "mean")

    def extra_settings(self, config: Any, eos: int | None) -> dict[str, Any]:
        own = {"classifier_pooling": config.pooling, "global_attn_every_n_layers": config.global_every}
        return super().extra_settings(config, eos) | own | alternating_settings(config, first=True)

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        fields = super().extra_fields(values, where)
        pooling = values.get("classifier_pooling", "cls") if fields["head"] == "sequence" else "cls"
        thetas = {GLOBAL: values.get("global_rope_theta", 160_000.0), LOCAL: values.get("local_rope_theta", 10_000.0)}
        layers = alternating_fields(values, where, True, values.get("global_attn_every_n_layers", 3), thetas)
        return fields | {"pooling": pooling} | layers
