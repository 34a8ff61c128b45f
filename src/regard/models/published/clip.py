"""The layout of transformers' `CLIPModel`: settings and tensors of two towers."""

from typing import Any

from torch import Tensor

from regard.errors import CheckpointError
from regard.models.clip import CLIPConfig
from regard.models.published.layout import (
    ACTIVATIONS,
    COMMON,
    PUBLISHED_ACTIVATIONS,
    Layout,
    check_fixed,
    with_prefix,
)

LAYER = {
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": "self_attn.out_proj",
    "norm1": "layer_norm1",
    "mlp.up": "mlp.fc1",
    "mlp.down": "mlp.fc2",
    "norm2": "layer_norm2",
}
IMAGE = COMMON | {"image": "image_size", "channels": "num_channels", "patch": "patch_size"}
TEXT = {f"text_{ours}": theirs for ours, theirs in COMMON.items()}
TEXT |= {"vocab": "vocab_size", "context": "max_position_embeddings"}
USUAL_IMAGE = dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)
USUAL_IMAGE |= dict(image_size=224, num_channels=3, patch_size=32)  # what published files leave out
USUAL_TEXT = dict(hidden_size=512, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=8)
USUAL_TEXT |= dict(vocab_size=49408, max_position_embeddings=77)


class CLIPLayout(Layout):
    name, architecture, config = "clip", "CLIPModel", CLIPConfig
    settings = {"shared": "projection_dim"}
    tensors = {
        "sharpness": "logit_scale",
        "first": "vision_model.embeddings.class_embedding",
        "stem": "vision_model.embeddings.patch_embedding",
        "place.table": "vision_model.embeddings.position_embedding.weight",
        "before": "vision_model.pre_layrnorm",
        **with_prefix("image_tower.layers.*.", LAYER, "vision_model.encoder.layers.*."),
        "image_norm": "vision_model.post_layernorm",
        "image_map": "visual_projection",
        "token": "text_model.embeddings.token_embedding",
        "text_place.table": "text_model.embeddings.position_embedding.weight",
        **with_prefix("text_tower.layers.*.", LAYER, "text_model.encoder.layers.*."),
        "text_norm": "text_model.final_layer_norm",
        "text_map": "text_projection",
    }
    spare = r"\.position_ids$"

    def extra_settings(self, config: CLIPConfig, eos: int | None) -> dict[str, Any]:
        both = {
            "hidden_act": PUBLISHED_ACTIVATIONS.get(config.activation, config.activation),
            "layer_norm_eps": config.eps,
            "attention_dropout": 0.0,
            "projection_dim": config.shared,
        }
        image = {theirs: getattr(config, ours) for ours, theirs in IMAGE.items()}
        text = {theirs: getattr(config, ours) for ours, theirs in TEXT.items()}
        ends = {"eos_token_id": config.vocab - 1, "bos_token_id": config.vocab - 2, "pad_token_id": config.vocab - 1}
        return {
            "vision_config": {"model_type": "clip_vision_model", **image, **both},
            "text_config": {"model_type": "clip_text_model", **text, **both, **ends},
        }

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        image: dict[str, Any] = USUAL_IMAGE | (values.get("vision_config") or values.get("vision_config_dict") or {})
        text: dict[str, Any] = USUAL_TEXT | (values.get("text_config") or values.get("text_config_dict") or {})
        usual: dict[str, Any] = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
        shared = {name: image.get(name, value) for name, value in usual.items()}
        if any(text.get(name, usual[name]) != value for name, value in shared.items()):
            raise CheckpointError(f"{where}: {' or '.join(usual)} of the two towers differ; we read only equal ones")
        check_fixed(image, {"attention_dropout": 0.0}, where)
        fields = {ours: image[theirs] for ours, theirs in IMAGE.items()}
        fields |= {ours: text[theirs] for ours, theirs in TEXT.items()}
        activation = ACTIVATIONS.get(shared["hidden_act"], shared["hidden_act"])
        return fields | {"activation": activation, "eps": shared["layer_norm_eps"]}

    def to_theirs(self, name: str, tensor: Tensor, config: CLIPConfig) -> Tensor:
        """The patch embedding as a convolution's weight."""
        return tensor.unflatten(1, (config.channels, config.patch, config.patch)) if name == "stem.weight" else tensor

    def to_ours(self, name: str, tensor: Tensor, config: CLIPConfig) -> Tensor:
        return tensor.flatten(1) if name == "stem.weight" else tensor
