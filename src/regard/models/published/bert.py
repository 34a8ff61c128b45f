"""The layouts of transformers' Bert models: one encoder, and the head that `architectures` names."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.errors import CheckpointError
from regard.models.bert import LABELLED, MASKED, POOLED, BertConfig
from regard.models.published.layout import Layout

ARCHITECTURES = {
    "none": "BertModel",
    "pooler": "BertModel",
    "masked": "BertForMaskedLM",
    "pretraining": "BertForPreTraining",
    "sequence": "BertForSequenceClassification",
    "token": "BertForTokenClassification",
}
MOST_LABELS = 1_000_000
HEAD_OF = {"": "pooler"} | {architecture: head for head, architecture in ARCHITECTURES.items()}
PARTS = {
    "attention.qkv": ["attention.self.query", "attention.self.key", "attention.self.value"],
    "attention.out": ["attention.output.dense"],
    "norm1": ["attention.output.LayerNorm"],
    "mlp.up": ["intermediate.dense"],
    "mlp.down": ["output.dense"],
    "norm2": ["output.LayerNorm"],
}
ALONE = {
    "token": "embeddings.word_embeddings",
    "place": "embeddings.position_embeddings",
    "sentence": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "pooler": "pooler.dense",
}
HEADS = {
    "masked": "cls.predictions",
    "masked.dense": "cls.predictions.transform.dense",
    "masked.norm": "cls.predictions.transform.LayerNorm",
    "next": "cls.seq_relationship",
    "classifier": "classifier",
}
# A buffer of old files, and second copies of what is tied.
SPARE = ("embeddings.position_ids", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
ACTIVATION = {"silu": "swish", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh"}  # theirs to ours
WANTED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


class BertLayout(Layout):
    """`BertModel`, and the four kinds with a head that we have."""

    name = "bert"

    def fits(self, config: Any) -> bool:
        return isinstance(config, BertConfig) and config.pooling == "cls"

    def to_config(self, config: BertConfig, eos: int | None) -> dict[str, Any]:
        act = {ours: theirs for theirs, ours in ACTIVATION.items()}.get(config.activation, config.activation)
        labels = {"id2label": dict(enumerate(config.labels)), "label2id": {x: i for i, x in enumerate(config.labels)}}
        return {
            "model_type": "bert",
            "architectures": [ARCHITECTURES[config.head]],
            "vocab_size": config.vocab,
            "hidden_size": config.width,
            "num_hidden_layers": config.layers,
            "num_attention_heads": config.heads,
            "intermediate_size": config.ffn,
            "max_position_embeddings": config.max_length,
            "type_vocab_size": config.types,
            "hidden_act": act,
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
            "layer_norm_eps": config.eps,
            "initializer_range": 0.02,
            **(labels if config.labels else {}),
            **WANTED,
            "pad_token_id": 0,
            "dtype": "float32",
        }

    def from_config(self, values: dict[str, Any], where: str) -> BertConfig:
        for name, value in WANTED.items():
            if values.get(name, value) != value:
                raise CheckpointError(f"{where}: {name} is {values[name]!r}, we read only {value!r}")
        architecture = (values.get("architectures") or [""])[0]
        if architecture not in HEAD_OF:
            known = ", ".join(dict.fromkeys(ARCHITECTURES.values()))
            raise CheckpointError(f"{where}: {architecture} is not one we read; there are: {known}")
        head = HEAD_OF[architecture]
        return BertConfig(
            vocab=values["vocab_size"],
            width=values["hidden_size"],
            layers=values["num_hidden_layers"],
            heads=values["num_attention_heads"],
            ffn=values["intermediate_size"],
            max_length=values["max_position_embeddings"],
            types=values.get("type_vocab_size", 2),
            dropout=values.get("hidden_dropout_prob", 0.1),
            attention_dropout=values.get("attention_probs_dropout_prob", 0.1),
            activation=ACTIVATION.get(act := values.get("hidden_act", "gelu"), act),
            eps=values.get("layer_norm_eps", 1e-12),
            head=head,
            labels=labels_of(values) if head in LABELLED else (),
        )

    def seen(self, config: BertConfig, published: dict[str, Tensor]) -> BertConfig:
        """Whether there is a pooler, and whether a masked-word file (bert-base-uncased) holds all of pre-training."""
        if config.head in LABELLED:
            return config
        names = {modern(name) for name in published}
        if "cls.predictions.bias" in names:
            return replace(config, head="pretraining" if "cls.seq_relationship.weight" in names else "masked")
        if config.head in MASKED:
            return config  # whose missing weights will be named
        return replace(config, head="pooler" if "pooler.dense.weight" in names else "none")

    def to_weights(self, state: dict[str, Tensor], config: BertConfig) -> dict[str, Tensor]:
        prefix = "" if ARCHITECTURES[config.head] == "BertModel" else "bert."
        published = {}
        for name, tensor in state.items():
            names = theirs(name)
            for n, piece in zip(names, tensor.chunk(len(names)), strict=True):
                published[n if n.startswith(("cls.", "classifier.")) else prefix + n] = piece.contiguous()
        return published

    def from_weights(self, published: dict[str, Tensor], wanted: list[str], config: BertConfig) -> dict[str, Tensor]:
        published = {modern(n): t for n, t in published.items()}
        for spare in SPARE:
            published.pop(spare, None)
        if config.head not in POOLED:  # some files carry a pooler that nothing reads
            published = {n: t for n, t in published.items() if not n.startswith("pooler.")}
        ours = {name: torch.cat([published.pop(n) for n in theirs(name)]) for name in wanted}
        if published:
            raise RuntimeError(f"it has more than that: {', '.join(sorted(published)[:3])}")
        return ours


def theirs(name: str) -> list[str]:
    """Our name of a parameter -> theirs, without the prefix `bert.`; several for a fused map."""
    part, kind = name.rsplit(".", 1)
    if part in HEADS:
        return [f"{HEADS[part]}.{kind}"]
    if part in ALONE:
        return [f"{ALONE[part]}.{'weight' if kind == 'table' else kind}"]
    _, index, part = part.split(".", 2)
    return [f"encoder.layer.{index}.{piece}.{kind}" for piece in PARTS[part]]


def modern(name: str) -> str:
    """Their name as it is today: no prefix, and weight and bias where the first files, from TensorFlow, had others."""
    name = name.removeprefix("bert.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def labels_of(values: dict[str, Any]) -> tuple[str, ...]:
    """The classes in the order of their numbers; LABEL_0 and so on where they have no names."""
    named = values.get("id2label") or {}
    if not named:
        if (count := values.get("num_labels", 2)) > MOST_LABELS:
            raise CheckpointError(f"num_labels is {count:,}; at most {MOST_LABELS:,} are read")
        return tuple(f"LABEL_{i}" for i in range(count))
    return tuple(str(label) for _, label in sorted((int(i), label) for i, label in named.items()))
