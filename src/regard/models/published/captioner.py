"""The layout of transformers' VisionEncoderDecoderModel, of a ViT and Marian's decoder."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from regard.errors import CheckpointError
from regard.models.captioner import CaptionerConfig
from regard.models.published.layout import Layout
from regard.models.published.marian import Marian
from regard.models.published.vit import ViTLayout
from regard.models.transformer import TransformerConfig

VIT, MARIAN = ViTLayout(), Marian()
ARCHITECTURE = "VisionEncoderDecoderModel"
HEAD = "decoder.lm_head.weight"  # a second copy of the table of words


class CaptionerLayout(Layout):
    name = "vision-encoder-decoder"

    def fits(self, config: Any) -> bool:
        return isinstance(config, CaptionerConfig) and VIT.fits(config.encoder)

    def to_config(self, config: CaptionerConfig, eos: int | None) -> dict[str, Any]:
        marks = {"eos_token_id": 0, "pad_token_id": config.vocab - 1, "decoder_start_token_id": config.vocab - 1}
        decoder = MARIAN.to_config(text_part(config), eos) | {
            "architectures": ["MarianForCausalLM"],
            "is_decoder": True,
            "add_cross_attention": True,
            "is_encoder_decoder": False,
        }
        encoder = VIT.to_config(config.encoder, None) | {"architectures": ["ViTModel"]}
        return {
            "model_type": self.name,
            "architectures": [ARCHITECTURE],
            "is_encoder_decoder": True,
            "tie_word_embeddings": True,
            "encoder": {k: v for k, v in encoder.items() if k not in ("id2label", "label2id")},
            "decoder": decoder,
            **marks,
            "dtype": "float32",
        }

    def from_config(self, values: dict[str, Any], where: str) -> CaptionerConfig:
        kinds = values["encoder"].get("model_type"), values["decoder"].get("model_type")
        if kinds != ("vit", "marian"):
            raise CheckpointError(f"{where}: an encoder {kinds[0]} with a decoder {kinds[1]}; we read vit with marian")
        vit = replace(VIT.from_config({**values["encoder"], "architectures": None}, where), labels=())
        text = MARIAN.from_config(values["decoder"], where)
        config = CaptionerConfig(
            vocab=text.vocab,
            image=vit.image,
            channels=vit.channels,
            patch=vit.patch,
            width=vit.width,
            encoder_layers=vit.layers,
            decoder_layers=text.decoder_layers,
            heads=vit.heads,
            ffn=vit.ffn,
            dropout=vit.dropout,
            max_length=text.max_length,
            mean=vit.mean,
            std=vit.std,
        )
        if (text.width, text.heads, text.ffn, text.activation) != (vit.width, vit.heads, vit.ffn, "relu"):
            raise CheckpointError(f"{where}: encoder and decoder differ in size; we read only equal ones")
        return config

    def to_weights(self, state: dict[str, Tensor], config: CaptionerConfig) -> dict[str, Tensor]:
        image = {n.removeprefix("vision."): t for n, t in state.items() if n.startswith("vision.")}
        words = {n: t for n, t in state.items() if not n.startswith("vision.")}
        published = {f"encoder.{n.removeprefix('vit.')}": t for n, t in VIT.to_weights(image, config.encoder).items()}
        text = MARIAN.to_weights(words, text_part(config))
        text.pop("final_logits_bias")
        table = text.pop("model.shared.weight")
        published |= {f"decoder.{n}": t for n, t in text.items()}
        return published | {"decoder.model.decoder.embed_tokens.weight": table, HEAD: table.clone()}

    def from_weights(
        self, published: dict[str, Tensor], wanted: list[str], config: CaptionerConfig
    ) -> dict[str, Tensor]:
        image = {
            f"vit.{n.removeprefix('encoder.')}": t
            for n, t in published.items()
            if n.startswith("encoder.") and not n.startswith("encoder.pooler.")
        }
        names = [n.removeprefix("vision.") for n in wanted if n.startswith("vision.")]
        ours = {f"vision.{n}": t for n, t in VIT.from_weights(image, names, config.encoder).items()}
        words = {n.removeprefix("decoder."): t for n, t in published.items() if n.startswith("decoder.")}
        words["model.shared.weight"] = published["decoder.model.decoder.embed_tokens.weight"]
        return ours | MARIAN.from_weights(words, [n for n in wanted if not n.startswith("vision.")], text_part(config))


def text_part(c: CaptionerConfig) -> TransformerConfig:
    """The translator whose decoder a captioner has."""
    return TransformerConfig(
        vocab=c.vocab,
        width=c.width,
        encoder_layers=c.encoder_layers,
        decoder_layers=c.decoder_layers,
        heads=c.heads,
        ffn=c.ffn,
        dropout=c.dropout,
        max_length=c.max_length,
    )
