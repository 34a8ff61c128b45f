"""The layouts of transformers' Bert models: one encoder, and the head that `architectures` names."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from regard.errors import CheckpointError
from regard.models.bert import LABELLED, MASKED, POOLED, BertConfig
from regard.models.published.layout import COMMON, Layout, label_settings, read_labels

ARCHITECTURES = {
    "none": "BertModel",
    "pooler": "BertModel",
    "masked": "BertForMaskedLM",
    "pretraining": "BertForPreTraining",
    "sequence": "BertForSequenceClassification",
    "token": "BertForTokenClassification",
}
HEAD_OF = {"": "pooler"} | {architecture: head for head, architecture in ARCHITECTURES.items()}


class BertLayout(Layout):
    """`BertModel`, and the four with a head that we have."""

    name, architecture, config = "bert", "BertModel", BertConfig
    settings = COMMON | {
        "vocab": "vocab_size",
        "max_length": "max_position_embeddings",
        "types": "type_vocab_size",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "eps": "layer_norm_eps",
        "activation": "hidden_act",
    }
    optional = ("types", "dropout", "attention_dropout", "eps", "activation")
    fixed = {
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    }
    written = {"initializer_range": 0.02, "pad_token_id": 0}
    tensors = {
        "token": "embeddings.word_embeddings",
        "place.table": "embeddings.position_embeddings.weight",
        "sentence": "embeddings.token_type_embeddings",
        "norm": "embeddings.LayerNorm",
        "layers.*.attention.qkv": tuple(f"encoder.layer.*.attention.self.{part}" for part in ("query", "key", "value")),
        "layers.*.attention.out": "encoder.layer.*.attention.output.dense",
        "layers.*.norm1": "encoder.layer.*.attention.output.LayerNorm",
        "layers.*.mlp.up": "encoder.layer.*.intermediate.dense",
        "layers.*.mlp.down": "encoder.layer.*.output.dense",
        "layers.*.norm2": "encoder.layer.*.output.LayerNorm",
        "pooler": "pooler.dense",
        "masked": "cls.predictions",
        "masked.dense": "cls.predictions.transform.dense",
        "masked.norm": "cls.predictions.transform.LayerNorm",
        "next": "cls.seq_relationship",
        "classifier": "classifier",
    }
    prefix = "bert."
    spare = r"^embeddings\.position_ids$|^cls\.predictions\.decoder\."  # a buffer of old files; copies of what is tied

    def fits(self, config: Any) -> bool:
        return super().fits(config) and config.pooling == "cls"

    def extra_settings(self, config: BertConfig, eos: int | None) -> dict[str, Any]:
        labels = label_settings(config.labels) if config.labels else {}
        return {"architectures": [ARCHITECTURES[config.head]], **labels}

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        architecture = (values.get("architectures") or [""])[0]
        if architecture not in HEAD_OF:
            names = ", ".join(dict.fromkeys(ARCHITECTURES.values()))
            raise CheckpointError(f"{where}: {architecture} is not one we read; there are: {names}")
        head = HEAD_OF[architecture]
        return {"head": head, "labels": read_labels(values) if head in LABELLED else ()}

    def complete(self, config: BertConfig, published: dict[str, Tensor]) -> BertConfig:
        """Whether there is a pooler, and whether a masked-word file (bert-base-uncased) holds all of pre-training."""
        if config.head in LABELLED:
            return config
        names = {self.current(name) for name in published}
        if "cls.predictions.bias" in names:
            return replace(config, head="pretraining" if "cls.seq_relationship.weight" in names else "masked")
        if config.head in MASKED:
            return config  # whose missing weights will be named
        return replace(config, head="pooler" if "pooler.dense.weight" in names else "none")

    def prefixed(self, name: str, config: BertConfig) -> str:
        bare = ARCHITECTURES[config.head] == "BertModel" or name.startswith(("cls.", "classifier."))
        return name if bare else self.prefix + name

    def current(self, name: str) -> str:
        """The first files, from TensorFlow, called weight and bias of a norm gamma and beta."""
        name = name.removeprefix(self.prefix)
        return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")

    def ignored(self, name: str, config: BertConfig) -> bool:
        """Some files carry a pooler that nothing reads."""
        return super().ignored(name, config) or (config.head not in POOLED and name.startswith("pooler."))
