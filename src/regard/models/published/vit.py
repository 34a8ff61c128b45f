"""The layout of transformers' ViTForImageClassification."""

from typing import Any

import torch
from torch import Tensor

from regard.errors import CheckpointError
from regard.models.published.bert import labels_of
from regard.models.published.layout import Layout
from regard.models.vit import ViTConfig

ARCHITECTURE = "ViTForImageClassification"
PARTS = {
    "attention.qkv": ["attention.attention.query", "attention.attention.key", "attention.attention.value"],
    "attention.out": ["attention.output.dense"],
    "norm1": ["layernorm_before"],
    "mlp.up": ["intermediate.dense"],
    "mlp.down": ["output.dense"],
    "norm2": ["layernorm_after"],
}
ALONE = {
    "first": "vit.embeddings.cls_token",
    "place.table": "vit.embeddings.position_embeddings",
    "stem.weight": "vit.embeddings.patch_embeddings.projection.weight",
    "stem.bias": "vit.embeddings.patch_embeddings.projection.bias",
    "norm.weight": "vit.layernorm.weight",
    "norm.bias": "vit.layernorm.bias",
    "classifier.weight": "classifier.weight",
    "classifier.bias": "classifier.bias",
}
WANTED = {"hidden_act": "gelu", "qkv_bias": True, "attention_probs_dropout_prob": 0.0}


class ViTLayout(Layout):
    """Patches by one map, a token for the image, learned places: the model of the paper."""

    name = "vit"

    def fits(self, config: Any) -> bool:
        return isinstance(config, ViTConfig) and (config.stem, config.pool, config.positions) == (
            "patch",
            "token",
            "learned",
        )

    def to_config(self, config: ViTConfig, eos: int | None) -> dict[str, Any]:
        return {
            "model_type": self.name,
            "architectures": [ARCHITECTURE],
            "image_size": config.image,
            "num_channels": config.channels,
            "patch_size": config.patch,
            "hidden_size": config.width,
            "num_hidden_layers": config.layers,
            "num_attention_heads": config.heads,
            "intermediate_size": config.ffn,
            "hidden_dropout_prob": config.dropout,
            "layer_norm_eps": config.eps,
            **WANTED,
            "id2label": dict(enumerate(config.labels)),
            "label2id": {x: i for i, x in enumerate(config.labels)},
            "image_mean": list(config.mean),  # transformers keeps these in preprocessor_config.json, which we write too
            "image_std": list(config.std),
            "dtype": "float32",
        }

    def from_config(self, values: dict[str, Any], where: str) -> ViTConfig:
        for name, value in WANTED.items():
            if values.get(name, value) != value:
                raise CheckpointError(f"{where}: {name} is {values[name]!r}, we read only {value!r}")
        architecture = (values.get("architectures") or [ARCHITECTURE])[0]
        if architecture != ARCHITECTURE:
            raise CheckpointError(f"{where}: {architecture} is not one we read; there is: {ARCHITECTURE}")
        return ViTConfig(
            image=values.get("image_size", 224),
            channels=values.get("num_channels", 3),
            patch=values.get("patch_size", 16),
            width=values.get("hidden_size", 768),
            layers=values.get("num_hidden_layers", 12),
            heads=values.get("num_attention_heads", 12),
            ffn=values.get("intermediate_size", 3072),
            dropout=values.get("hidden_dropout_prob", 0.0),
            eps=values.get("layer_norm_eps", 1e-12),
            labels=labels_of(values),
            mean=tuple(values.get("image_mean", (0.5,))),
            std=tuple(values.get("image_std", (0.5,))),
        )

    def to_weights(self, state: dict[str, Tensor], config: ViTConfig) -> dict[str, Tensor]:
        published = {}
        for name, tensor in state.items():
            names = theirs(name)
            for n, piece in zip(names, tensor.chunk(len(names)), strict=True):
                published[n] = piece.reshape(shape(name, piece, config)).contiguous()
        return published

    def from_weights(self, published: dict[str, Tensor], wanted: list[str], config: ViTConfig) -> dict[str, Tensor]:
        published = {n: t for n, t in published.items() if not n.startswith("vit.pooler.")}  # nothing reads it here
        ours = {}
        for name in wanted:
            tensor = torch.cat([published.pop(n) for n in theirs(name)])
            if name == "stem.weight":
                tensor = tensor.flatten(1)  # D C p p -> D C·p·p
            ours[name] = tensor.flatten() if name == "first" else tensor[0] if name == "place.table" else tensor
        if published:
            raise RuntimeError(f"it has more than that: {', '.join(sorted(published)[:3])}")
        return ours


def theirs(name: str) -> list[str]:
    """Our name of a parameter -> theirs; several for a fused map."""
    if name in ALONE:
        return [ALONE[name]]
    _, index, rest = name.split(".", 2)
    part, kind = rest.rsplit(".", 1)
    return [f"vit.encoder.layer.{index}.{piece}.{kind}" for piece in PARTS[part]]


def shape(name: str, tensor: Tensor, c: ViTConfig) -> tuple[int, ...]:
    """Theirs: a convolution's, and with an axis for the batch."""
    own = tuple(tensor.shape)
    published = {
        "first": (1, 1, *own),
        "place.table": (1, *own),
        "stem.weight": (c.width, c.channels, c.patch, c.patch),
    }
    return published.get(name, own)
