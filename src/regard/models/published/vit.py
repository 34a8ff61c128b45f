"""The layout of transformers' `ViTForImageClassification`."""

from typing import Any

from torch import Tensor

from regard.errors import CheckpointError
from regard.models.published.layout import COMMON, Layout, label_settings, read_labels, with_prefix
from regard.models.vit import ViTConfig

ENCODER = {  # without the prefix, which a captioner has not
    "first": "embeddings.cls_token",
    "place.table": "embeddings.position_embeddings",
    "stem": "embeddings.patch_embeddings.projection",
    "layers.*.attention.qkv": tuple(
        f"encoder.layer.*.attention.attention.{part}" for part in ("query", "key", "value")
    ),
    "layers.*.attention.out": "encoder.layer.*.attention.output.dense",
    "layers.*.norm1": "encoder.layer.*.layernorm_before",
    "layers.*.mlp.up": "encoder.layer.*.intermediate.dense",
    "layers.*.mlp.down": "encoder.layer.*.output.dense",
    "layers.*.norm2": "encoder.layer.*.layernorm_after",
    "norm": "layernorm",
}


class ViTLayout(Layout):
    """Patches by one map, a token for the image, learned places: the model of the paper."""

    name, architecture, config = "vit", "ViTForImageClassification", ViTConfig
    settings = COMMON | {
        "image": "image_size",
        "channels": "num_channels",
        "patch": "patch_size",
        "dropout": "hidden_dropout_prob",
    }
    optional = tuple(settings)
    fixed = {"hidden_act": "gelu", "qkv_bias": True, "attention_probs_dropout_prob": 0.0}
    tensors = with_prefix("", ENCODER, "vit.") | {"classifier": "classifier"}
    spare = r"^vit\.pooler\."  # nothing reads it here

    def fits(self, config: Any) -> bool:
        paper = "patch", "token", "learned"
        return super().fits(config) and (config.stem, config.pool, config.positions) == paper

    def extra_settings(self, config: ViTConfig, eos: int | None) -> dict[str, Any]:
        # Transformers keeps mean and std in preprocessor_config.json, which we write too.
        pixels = {"image_mean": list(config.mean), "image_std": list(config.std)}
        return {"layer_norm_eps": config.eps, **label_settings(config.labels), **pixels}

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        architecture = (values.get("architectures") or [self.architecture])[0]
        if architecture != self.architecture:
            raise CheckpointError(f"{where}: {architecture} is not one we read; there is: {self.architecture}")
        return {
            "eps": values.get("layer_norm_eps", 1e-12),
            "labels": read_labels(values),
            "mean": tuple(values.get("image_mean", (0.5,))),
            "std": tuple(values.get("image_std", (0.5,))),
        }

    def to_theirs(self, name: str, tensor: Tensor, config: ViTConfig) -> Tensor:
        """A convolution's weight, and an axis for the batch."""
        if name == "stem.weight":
            return tensor.unflatten(1, (config.channels, config.patch, config.patch))  # D C·p·p -> D C p p
        return tensor[None, None] if name == "first" else tensor[None] if name == "place.table" else tensor

    def to_ours(self, name: str, tensor: Tensor, config: ViTConfig) -> Tensor:
        if name == "stem.weight":
            return tensor.flatten(1)
        return tensor.flatten() if name == "first" else tensor[0] if name == "place.table" else tensor
