"""The layouts of transformers' `ViTForImageClassification`, DeiT and DINOv2, and of their encoders alone."""

from typing import Any

from torch import Tensor

from regard.models.published.layout import COMMON, Layout, Names, label_settings, read_labels, with_prefix
from regard.models.vit import ViTConfig

STEM = {
    "first": "embeddings.cls_token",
    "place.table": "embeddings.position_embeddings",
    "stem": "embeddings.patch_embeddings.projection",
    "norm": "layernorm",
}
ATTENTION: dict[str, Names] = {
    "attention.qkv": tuple(f"attention.attention.{part}" for part in ("query", "key", "value")),
    "attention.out": "attention.output.dense",
}
LAYER = ATTENTION | {
    "norm1": "layernorm_before",
    "mlp.up": "intermediate.dense",
    "mlp.down": "output.dense",
    "norm2": "layernorm_after",
}
ENCODER = STEM | with_prefix("layers.*.", LAYER, "encoder.layer.*.")  # without the prefix, for captioners
SCALED = ATTENTION | {
    "norm1": "norm1",
    "norm2": "norm2",
    "scale1.weight": "layer_scale1.lambda1",
    "scale2.weight": "layer_scale2.lambda1",
}
FORWARD = {"gelu": ("fc1", "fc2"), "swiglu": ("weights_in", "weights_out")}
SIZES = {
    "image": "image_size",
    "channels": "num_channels",
    "patch": "patch_size",
    "dropout": "hidden_dropout_prob",
}


class ViTLayout(Layout):
    """Linear patch embedding, an image token, learned positions: the model of the paper."""

    name, architecture, config = "vit", "ViTForImageClassification", ViTConfig
    alone = "ViTModel"  # the class of the encoder without a head
    prefix = "vit."  # of the encoder's names; absent without a head
    settings = COMMON | SIZES
    optional = tuple(settings)
    fixed = {"hidden_act": "gelu", "qkv_bias": True, "attention_probs_dropout_prob": 0.0}
    tensors = ENCODER | {"classifier": "classifier"}
    heads: tuple[str, ...] = ("classifier.",)
    spare = r"^pooler\.|\.mask_token$"  # we do not use them
    traits: dict[str, Any] = {"pool": "token", "distilled": "", "layer_scale": 0.0, "forward": "gelu"}
    usual_eps = 1e-12

    def classes(self) -> tuple[str, ...]:
        return self.architecture, self.alone

    def fits(self, config: Any) -> bool:
        if not super().fits(config) or (config.stem, config.positions) != ("patch", "learned"):
            return False
        return all(getattr(config, name) == value for name, value in self.traits.items())

    def extra_settings(self, config: ViTConfig, eos: int | None) -> dict[str, Any]:
        # Transformers stores mean and std in preprocessor_config.json, which we also write.
        pixels = {"image_mean": list(config.mean), "image_std": list(config.std)}
        values = {"layer_norm_eps": config.eps, **label_settings(config.labels), **pixels}
        return values | ({} if config.labels else {"architectures": [self.alone]})

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        return {
            "eps": values.get("layer_norm_eps", self.usual_eps),
            "labels": () if self.class_of(values, where) == self.alone else read_labels(values),
            "mean": tuple(values.get("image_mean", (0.5,))),
            "std": tuple(values.get("image_std", (0.5,))),
        }

    def prefixed(self, name: str, config: ViTConfig) -> str:
        return self.prefix + name if config.labels and not name.startswith(self.heads) else name

    def to_theirs(self, name: str, tensor: Tensor, config: ViTConfig) -> Tensor:
        """The patch embedding as a convolution's weight; tokens and positions with a batch axis."""
        if name == "stem.weight":
            return tensor.unflatten(1, (config.channels, config.patch, config.patch))  # D C·p·p -> D C p p
        return tensor[None, None] if name in ("first", "second") else tensor[None] if name == "place.table" else tensor

    def to_ours(self, name: str, tensor: Tensor, config: ViTConfig) -> Tensor:
        if name == "stem.weight":
            return tensor.flatten(1)
        return tensor.flatten() if name in ("first", "second") else tensor[0] if name == "place.table" else tensor


class DeiTLayout(ViTLayout):
    """With a second token and, if distilled, a second head; models without are published as ViTs."""

    name, architecture, alone, prefix = "deit", "DeiTForImageClassificationWithTeacher", "DeiTModel", "deit."
    one_head = "DeiTForImageClassification"
    tensors = ENCODER | {"second": "embeddings.distillation_token", "teacher": "distillation_classifier"}
    heads = ("classifier.", "cls_classifier.", "distillation_classifier.")

    def classes(self) -> tuple[str, ...]:
        return *super().classes(), self.one_head

    def fits(self, config: Any) -> bool:
        return isinstance(config, ViTConfig) and bool(config.distilled)

    def names(self, name: str, config: ViTConfig) -> tuple[str, ...]:
        module, _, part = name.partition(".")
        if module == "classifier":
            return (f"{'cls_' if config.distilled == 'head' else ''}classifier.{part}",)
        return super().names(name, config)

    def extra_settings(self, config: ViTConfig, eos: int | None) -> dict[str, Any]:
        one_head = {"architectures": [self.one_head]} if config.distilled == "token" else {}
        return one_head | super().extra_settings(config, eos)

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        distilled = "head" if self.class_of(values, where) == self.architecture else "token"
        return super().extra_fields(values, where) | {"distilled": distilled}


class DINOv2Layout(ViTLayout):
    """Scaled residual branches; classifies by the image token and the mean of the patches."""

    name, architecture, alone, prefix = "dinov2", "Dinov2ForImageClassification", "Dinov2Model", "dinov2."
    settings = {ours: theirs for ours, theirs in COMMON.items() if ours != "ffn"} | SIZES
    settings |= {"layer_scale": "layerscale_value"}
    optional = tuple(settings)
    fixed = {**ViTLayout.fixed, "drop_path_rate": 0.0}
    written = {"use_mask_token": False}
    tensors = STEM | with_prefix("layers.*.", SCALED, "encoder.layer.*.") | {"classifier": "classifier"}
    usual_eps = 1e-6

    def fits(self, config: Any) -> bool:
        scaled = isinstance(config, ViTConfig) and config.layer_scale > 0 and config.pool == "both"
        return scaled and (config.stem, config.positions) == ("patch", "learned") and bool(ratio_of(config))

    def names(self, name: str, config: ViTConfig) -> tuple[str, ...]:
        for ours, theirs in zip(("up", "down"), FORWARD[config.forward], strict=True):
            if f".mlp.{ours}." in name:
                return (name.replace("layers.", "encoder.layer.").replace(f"mlp.{ours}", f"mlp.{theirs}"),)
        return super().names(name, config)

    def extra_settings(self, config: ViTConfig, eos: int | None) -> dict[str, Any]:
        sizes = {"mlp_ratio": ratio_of(config), "use_swiglu_ffn": config.forward == "swiglu"}
        return sizes | super().extra_settings(config, eos)

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        forward = "swiglu" if values.get("use_swiglu_ffn") else "gelu"
        width = values.get("hidden_size", 768)
        sizes = {"pool": "both", "forward": forward, "ffn": ffn_of(width, values.get("mlp_ratio", 4), forward)}
        sizes |= {"patch": values.get("patch_size", 14), "layer_scale": values.get("layerscale_value", 1.0)}
        return super().extra_fields(values, where) | sizes


def ffn_of(width: int, ratio: float, forward: str) -> int:
    """The hidden width; if gated, two thirds of it, rounded up to a multiple of 8."""
    ffn = int(width * ratio)
    return (ffn * 2 // 3 + 7) // 8 * 8 if forward == "swiglu" else ffn


def ratio_of(config: ViTConfig) -> int:
    """The feed-forward width as a multiple of the width, as in DINOv2's settings; 0 if no integer fits."""
    return next((n for n in range(1, 65) if ffn_of(config.width, n, config.forward) == config.ffn), 0)
