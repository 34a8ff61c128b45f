"""The layouts of transformers' `VisionEncoderDecoderModel`: of a ViT with Marian's decoder, and with GPT-2."""

from dataclasses import fields, replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from regard.errors import CheckpointError
from regard.models.captioner import CaptionerConfig, GPTCaptionerConfig
from regard.models.gpt import GPTConfig
from regard.models.published.gpt2 import GPT2Layout
from regard.models.published.layout import Layout, with_prefix
from regard.models.published.marian import DECODER, MarianLayout, padding
from regard.models.published.vit import ENCODER, ViTLayout
from regard.models.transformer import TransformerConfig
from regard.models.vit import ViTConfig

VIT, MARIAN, GPT2 = ViTLayout(), MarianLayout(), GPT2Layout()
TABLE, HEAD = "decoder.model.decoder.embed_tokens.weight", "decoder.lm_head.weight"  # tied


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
        return type(config) is self.config and VIT.fits(config.encoder)

    def extra_settings(self, config: CaptionerConfig, eos: int | None) -> dict[str, Any]:
        decoder = MARIAN.to_config(text_config(config), eos) | {
            "architectures": ["MarianForCausalLM"],
            "is_decoder": True,
            "add_cross_attention": True,
            "is_encoder_decoder": False,
        }
        return {"encoder": vision_settings(config.encoder), "decoder": decoder, **padding(config.vocab)}

    def from_config(self, values: dict[str, Any], where: str) -> CaptionerConfig:
        kinds = values["encoder"].get("model_type"), values["decoder"].get("model_type")
        if kinds == ("vit", "gpt2"):
            return GPTCaptionerLayout().from_config(values, where)
        if kinds != ("vit", "marian"):
            what = f"an encoder {kinds[0]} with a decoder {kinds[1]}"
            raise CheckpointError(f"{where}: {what}; we read vit with gpt2 or marian")
        vit = vision_config(values, where)
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


GPT_DECODER = {
    "norm1": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "norm2": "ln_cross_attn",
    "cross.query": "crossattention.q_attn",
    "cross.kv": "crossattention.c_attn",
    "cross.out": "crossattention.c_proj",
    "norm3": "ln_2",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}


class GPTCaptionerLayout(CaptionerLayout):
    """A ViT and GPT-2 with cross-attention, like `nlpconnect/vit-gpt2-image-captioning`."""

    config = GPTCaptionerConfig
    written = {"is_encoder_decoder": True, "tie_word_embeddings": False}
    tensors = {
        **with_prefix("vision.", ENCODER, "encoder."),
        **with_prefix("decoder.*.", GPT_DECODER, "decoder.transformer.h.*."),
        "token.weight": "decoder.transformer.wte.weight",
        "decoder_place.table": "decoder.transformer.wpe.weight",
        "decoder_norm": "decoder.transformer.ln_f",
    }
    spare = r"^encoder\.pooler\.|^decoder\.lm_head|\.(attn|crossattention)\.(masked_)?bias$"
    transposed = True

    def extra_settings(self, config: Any, eos: int | None) -> dict[str, Any]:
        text = GPTConfig(vocab=config.vocab - 1, context=config.max_length, layers=config.decoder_layers,
                         **{name: getattr(config, name) for name in ("width", "heads", "ffn", "dropout")})  # fmt: skip
        decoder = GPT2.to_config(text, config.start) | {"add_cross_attention": True, "is_decoder": True}
        marks = dict.fromkeys(("eos_token_id", "pad_token_id", "decoder_start_token_id"), config.start)
        return {"encoder": vision_settings(config.encoder), "decoder": decoder, **marks}

    def from_config(self, values: dict[str, Any], where: str) -> GPTCaptionerConfig:
        vit = vision_config(values, where)
        text = GPT2.from_config({**values["decoder"], "add_cross_attention": False}, where)
        if (text.width, text.heads, text.ffn) != (vit.width, vit.heads, vit.ffn):
            raise CheckpointError(f"{where}: encoder and decoder differ in size; we read only equal ones")
        ends = (values.get("decoder_start_token_id"), values["decoder"].get("bos_token_id"), text.vocab - 1)
        return GPTCaptionerConfig(
            **{name: getattr(vit, name) for name in shared(CaptionerConfig, vit) if name != "dropout"},
            dropout=text.dropout,
            vocab=text.vocab + 1,
            start=next(end for end in ends if end is not None),
            eps=vit.eps,
            encoder_layers=vit.layers,
            decoder_layers=text.layers,
            max_length=text.context,
        )

    def to_weights(self, state: dict[str, Tensor], config: Any) -> dict[str, Tensor]:
        return super(CaptionerLayout, self).to_weights(state, config)

    def to_theirs(self, name: str, tensor: Tensor, config: Any) -> Tensor:
        """The decoder's linear layers transposed; the embedding table without padding."""
        if name == "token.weight":
            return tensor[:-1]
        if name.startswith("decoder.") and tensor.ndim == 2:
            return tensor.T
        return super().to_theirs(name, tensor, config)

    def to_ours(self, name: str, tensor: Tensor, config: Any) -> Tensor:
        if name == "token.weight":
            return F.pad(tensor, (0, 0, 0, 1))
        if name.startswith("decoder.") and tensor.ndim == 2:
            return tensor.T
        return super().to_ours(name, tensor, config)


def vision_settings(config: ViTConfig) -> dict[str, Any]:
    """The encoder's part of config.json."""
    return {k: v for k, v in VIT.to_config(config, None).items() if k not in ("id2label", "label2id")}


def vision_config(values: dict[str, Any], where: str) -> ViTConfig:
    return replace(VIT.from_config({**values["encoder"], "architectures": None}, where), labels=())


def text_config(config: CaptionerConfig) -> TransformerConfig:
    """The config of the translator whose decoder the captioner has."""
    return TransformerConfig(**{name: getattr(config, name) for name in shared(TransformerConfig, config)})


def shared(cls: type, config: Any) -> list[str]:
    """The fields of `cls` that `config` also has."""
    return [field.name for field in fields(cls) if hasattr(config, field.name)]
