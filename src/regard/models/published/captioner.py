"""The layout of transformers' `VisionEncoderDecoderModel`, of a ViT and Marian's decoder."""

from dataclasses import fields, replace
from typing import Any

from torch import Tensor

from regard.errors import CheckpointError
from regard.models.captioner import CaptionerConfig
from regard.models.published.layout import Layout, with_prefix
from regard.models.published.marian import DECODER, MarianLayout, padding
from regard.models.published.vit import ENCODER, ViTLayout
from regard.models.transformer import TransformerConfig

VIT, MARIAN = ViTLayout(), MarianLayout()
TABLE, HEAD = "decoder.model.decoder.embed_tokens.weight", "decoder.lm_head.weight"  # tied: the same numbers


class CaptionerLayout(Layout):
    name, architecture, config = "vision-encoder-decoder", "VisionEncoderDecoderModel", CaptionerConfig
    settings = {}
    written = {"is_encoder_decoder": True, "tie_word_embeddings": True, "eos_token_id": 0}
    tensors = {
        **with_prefix("vision.", ENCODER, "encoder."),
        **with_prefix("decoder.*.", DECODER, "decoder.model.decoder.layers.*."),
        "token.weight": TABLE,
    }
    spare = r"^encoder\.pooler\.|^decoder\.(lm_head|final_logits_bias|model\.decoder\.embed_positions)"

    def fits(self, config: Any) -> bool:
        return super().fits(config) and VIT.fits(config.encoder)

    def extra_settings(self, config: CaptionerConfig, eos: int | None) -> dict[str, Any]:
        encoder = VIT.to_config(config.encoder, None) | {"architectures": ["ViTModel"]}
        decoder = MARIAN.to_config(text_config(config), eos) | {
            "architectures": ["MarianForCausalLM"],
            "is_decoder": True,
            "add_cross_attention": True,
            "is_encoder_decoder": False,
        }
        encoder = {k: v for k, v in encoder.items() if k not in ("id2label", "label2id")}
        return {"encoder": encoder, "decoder": decoder, **padding(config.vocab)}

    def from_config(self, values: dict[str, Any], where: str) -> CaptionerConfig:
        kinds = values["encoder"].get("model_type"), values["decoder"].get("model_type")
        if kinds != ("vit", "marian"):
            raise CheckpointError(f"{where}: an encoder {kinds[0]} with a decoder {kinds[1]}; we read vit with marian")
        vit = replace(VIT.from_config({**values["encoder"], "architectures": None}, where), labels=())
        text = MARIAN.from_config(values["decoder"], where)
        if (text.width, text.heads, text.ffn, text.activation) != (vit.width, vit.heads, vit.ffn, "relu"):
            raise CheckpointError(f"{where}: encoder and decoder differ in size; we read only equal ones")
        return CaptionerConfig(
            **{name: getattr(vit, name) for name in shared(CaptionerConfig, vit)},
            vocab=text.vocab,
            encoder_layers=vit.layers,
            decoder_layers=text.decoder_layers,
            max_length=text.max_length,
        )

    def to_weights(self, state: dict[str, Tensor], config: CaptionerConfig) -> dict[str, Tensor]:
        published = super().to_weights(state, config)
        return published | {HEAD: published[TABLE].clone()}

    def to_theirs(self, name: str, tensor: Tensor, config: CaptionerConfig) -> Tensor:
        return VIT.to_theirs(name.removeprefix("vision."), tensor, config.encoder)

    def to_ours(self, name: str, tensor: Tensor, config: CaptionerConfig) -> Tensor:
        return VIT.to_ours(name.removeprefix("vision."), tensor, config.encoder)


def text_config(config: CaptionerConfig) -> TransformerConfig:
    """The translator whose decoder a captioner has."""
    return TransformerConfig(**{name: getattr(config, name) for name in shared(TransformerConfig, config)})


def shared(cls: type, config: Any) -> list[str]:
    """The fields of `cls` that a config has too."""
    return [field.name for field in fields(cls) if hasattr(config, field.name)]
