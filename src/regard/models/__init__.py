"""One file a lecture. `ARCHS` names what can be trained; `build` makes a model from its config."""

from collections.abc import Callable
from typing import Any

from regard.config import unknown
from regard.models.base import EncoderDecoder
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.transformer import Transformer, TransformerConfig

ModelConfig = TransformerConfig | Seq2SeqConfig

MODELS: dict[str, tuple[type[Any], type[EncoderDecoder]]] = {
    "transformer": (TransformerConfig, Transformer),
    "seq2seq": (Seq2SeqConfig, Seq2Seq),
}

SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "transformer": {
        "tiny": dict(width=128, ffn=256, heads=4, encoder_layers=4, decoder_layers=4),  # Wu et al. 2021
        "small": dict(width=256, ffn=1024, heads=4, encoder_layers=3, decoder_layers=3),
        "base": dict(width=512, ffn=2048, heads=8, encoder_layers=6, decoder_layers=6),  # table 3 of the paper
        "big": dict(width=1024, ffn=4096, heads=16, encoder_layers=6, decoder_layers=6, dropout=0.3),
    },
    "seq2seq": {
        "tiny": dict(embedding=128, width=128),
        "small": dict(embedding=256, width=256),
        "base": dict(embedding=512, width=512),
        "big": dict(embedding=620, width=1000),  # Bahdanau et al. 2015, appendix A
    },
}

ARCHS: dict[str, Callable[..., ModelConfig]] = {
    "transformer": TransformerConfig,
    **{
        cell + suffix: lambda cell=cell, attention=attention, **kw: Seq2SeqConfig(cell=cell, attention=attention, **kw)
        for suffix, attention in (("", True), ("-bottleneck", False))
        for cell in ("lstm", "gru", "rnn")
    },
}


def config_for(arch: str, size: str, vocab: int, **settings: Any) -> ModelConfig:
    """The config of a named architecture in a named size. Names ignore case."""
    arch, size = arch.lower(), size.lower()
    if arch not in ARCHS:
        raise unknown("architecture", arch, ARCHS)
    sizes = SIZES["transformer" if arch == "transformer" else "seq2seq"]
    if size not in sizes:
        raise unknown("size", size, sizes)
    return ARCHS[arch](vocab=vocab, **{**sizes[size], **settings})


def model_type(config: ModelConfig) -> str:
    """The key of `MODELS` a config belongs to."""
    return next(name for name, (cls, _) in MODELS.items() if isinstance(config, cls))


def build(config: ModelConfig) -> EncoderDecoder:
    return MODELS[model_type(config)][1](config)
