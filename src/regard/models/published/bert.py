"""The layouts of transformers' Bert models: one encoder, and the head that `architectures` names."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from regard.models.bert import LABELLED, MASKED, POOLED, BertConfig
from regard.models.published.layout import COMMON, Layout, label_settings, read_labels

BERT = {  # our head -> their class name, after Bert
    "none": "Model",
    "pooler": "Model",
    "masked": "ForMaskedLM",
    "pretraining": "ForPreTraining",
    "sequence": "ForSequenceClassification",
    "token": "ForTokenClassification",
}
ARCHITECTURES = {head: f"Bert{name}" for head, name in BERT.items()}
HEADS = ("masked.dense", "next", "pooler")  # tensors that show which head a file holds


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
    heads: tuple[str, ...] = ("cls.", "classifier.")  # starts of names without the prefix
    architectures: Mapping[str, str] = ARCHITECTURES  # by head
    spare = r"^embeddings\.position_ids$|^cls\.predictions\.decoder\."  # a buffer of old files; copies of tied weights

    def classes(self) -> tuple[str, ...]:
        return tuple(self.architectures.values())

    def fits(self, config: Any) -> bool:
        return super().fits(config) and self.writes(config)

    def writes(self, config: BertConfig) -> bool:
        return config.family == self.name and config.pooling == "cls" and config.head in self.architectures

    def extra_settings(self, config: BertConfig, eos: int | None) -> dict[str, Any]:
        labels = label_settings(config.labels) if config.labels else {}
        return {"architectures": [self.architectures[config.head]], **labels}

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        head_of = {architecture: head for head, architecture in self.architectures.items()}
        head = head_of[self.class_of(values, where)]
        return {"family": self.name, "head": head, "labels": read_labels(values) if head in LABELLED else ()}

    def complete(self, config: BertConfig, published: dict[str, Tensor]) -> BertConfig:
        """Set the head by the tensors: a masked-word file (bert-base-uncased) may hold both heads of pre-training."""
        if config.head in LABELLED:
            return config
        names = {self.current(name) for name in published}
        present = {part for part in HEADS if part in self.tensors and f"{self.tensors[part]}.weight" in names}
        if "masked.dense" in present:
            return replace(config, head="pretraining" if "next" in present else "masked")
        if config.head in MASKED:
            return config  # loading will name the missing weights
        return replace(config, head="pooler" if "pooler" in present and "pooler" in self.architectures else "none")

    def prefixed(self, name: str, config: BertConfig) -> str:
        bare = config.head in ("none", "pooler") or name.startswith(self.heads)
        return name if bare else self.prefix + name

    def current(self, name: str) -> str:
        """Early files, from TensorFlow, call a norm's weight and bias gamma and beta."""
        name = name.removeprefix(self.prefix)
        return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")

    def ignored(self, name: str, config: BertConfig) -> bool:
        """Some files have an unused pooler."""
        return super().ignored(name, config) or (config.head not in POOLED and name.startswith("pooler."))


class RobertaLayout(BertLayout):
    """Liu et al. 2019. Positions start after the id of padding: the first rows of their table are unused."""

    name, architecture = "roberta", "RobertaModel"
    architectures = {head: f"Roberta{name}" for head, name in BERT.items() if head != "pretraining"}
    settings = {ours: theirs for ours, theirs in BertLayout.settings.items() if ours != "max_length"}
    fixed = {**BertLayout.fixed, "hidden_act": "gelu", "pad_token_id": 1}
    written = {"initializer_range": 0.02, "bos_token_id": 0, "eos_token_id": 2}
    tensors = {
        **BertLayout.tensors,
        "masked": "lm_head",
        "masked.dense": "lm_head.dense",
        "masked.norm": "lm_head.layer_norm",
    }
    prefix = "roberta."
    heads = ("lm_head.", "classifier.")
    spare = r"^embeddings\.position_ids$|^lm_head\.decoder\."
    sequence = {"pooler": "classifier.dense", "classifier": "classifier.out_proj"}
    empty = 2  # unused rows of the position table

    def extra_settings(self, config: BertConfig, eos: int | None) -> dict[str, Any]:
        return super().extra_settings(config, eos) | {"max_position_embeddings": config.max_length + self.empty}

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        fields = super().extra_fields(values, where)
        return fields | {"max_length": values["max_position_embeddings"] - self.empty}

    def names(self, name: str, config: BertConfig) -> tuple[str, ...]:
        """A sequence classifier has its own pooler."""
        part, _, which = name.rpartition(".")
        if config.head == "sequence" and part in self.sequence:
            return (f"{self.sequence[part]}.{which}",)
        return super().names(name, config)

    def ignored(self, name: str, config: BertConfig) -> bool:
        return super().ignored(name, config) or (config.head == "sequence" and name.startswith("pooler."))

    def to_theirs(self, name: str, tensor: Tensor, config: BertConfig) -> Tensor:
        return F.pad(tensor, (0, 0, self.empty, 0)) if name == "place.table" else tensor

    def to_ours(self, name: str, tensor: Tensor, config: BertConfig) -> Tensor:
        return tensor[self.empty :] if name == "place.table" else tensor


class XLMRobertaLayout(RobertaLayout):
    """Conneau et al. 2020: RoBERTa in a hundred languages."""

    name, architecture = "xlm-roberta", "XLMRobertaModel"
    architectures = {head: f"XLM{name}" for head, name in RobertaLayout.architectures.items()}


class DistilBertLayout(BertLayout):
    """Sanh et al. 2019: every second layer of BERT, without segment ids."""

    name, architecture = "distilbert", "DistilBertModel"
    architectures = {head: f"DistilBert{name}" for head, name in BERT.items() if head not in ("pooler", "pretraining")}
    settings = {
        "vocab": "vocab_size",
        "max_length": "max_position_embeddings",
        "width": "dim",
        "layers": "n_layers",
        "heads": "n_heads",
        "ffn": "hidden_dim",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "activation": "activation",
    }
    optional = ("dropout", "attention_dropout", "activation")
    fixed = {"tie_word_embeddings": True}
    written = {"initializer_range": 0.02, "pad_token_id": 0, "sinusoidal_pos_embds": False}
    tensors = {
        "token": "embeddings.word_embeddings",
        "place.table": "embeddings.position_embeddings.weight",
        "norm": "embeddings.LayerNorm",
        "layers.*.attention.qkv": tuple(f"transformer.layer.*.attention.{letter}_lin" for letter in "qkv"),
        "layers.*.attention.out": "transformer.layer.*.attention.out_lin",
        "layers.*.norm1": "transformer.layer.*.sa_layer_norm",
        "layers.*.mlp.up": "transformer.layer.*.ffn.lin1",
        "layers.*.mlp.down": "transformer.layer.*.ffn.lin2",
        "layers.*.norm2": "transformer.layer.*.output_layer_norm",
        "pooler": "pre_classifier",
        "masked": "vocab_projector",
        "masked.dense": "vocab_transform",
        "masked.norm": "vocab_layer_norm",
        "classifier": "classifier",
    }
    prefix = "distilbert."
    heads = ("vocab_", "pre_classifier.", "classifier.")
    spare = r"^embeddings\.position_ids$|^vocab_projector\.weight$"

    def writes(self, config: BertConfig) -> bool:
        return super().writes(config) and not config.types and config.eps == 1e-12

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        return super().extra_fields(values, where) | {"types": 0, "eps": 1e-12}

    def ignored(self, name: str, config: BertConfig) -> bool:
        return super().ignored(name, config) or (config.head not in POOLED and name.startswith("pre_classifier."))
