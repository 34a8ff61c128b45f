"""One file a lecture. `TASK_ARCHS` names what can be trained for what; `build` makes a model from its config."""

from collections.abc import Callable
from typing import Any, overload

from regard.config import unknown
from regard.models.base import EncoderDecoder, LanguageModel
from regard.models.bert import Bert, BertConfig
from regard.models.captioner import Captioner, CaptionerConfig, ShowAttendTell, ShowAttendTellConfig
from regard.models.forecaster import Forecaster, ForecasterConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.llama import Llama, LlamaConfig
from regard.models.plain import MLP, Conv, ConvConfig, MLPConfig
from regard.models.rnn_classifier import RecurrentClassifier, RecurrentClassifierConfig
from regard.models.rnn_lm import RecurrentLM, RecurrentLMConfig
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.series import (
    SeriesModel,
    SeriesRecurrent,
    SeriesRecurrentConfig,
    SeriesTransformer,
    SeriesTransformerConfig,
)
from regard.models.sound_classifier import SoundClassifier, SoundClassifierConfig
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.vit import ViT, ViTConfig
from regard.models.whisper import Whisper, WhisperConfig

TranslatorConfig = TransformerConfig | Seq2SeqConfig
LanguageModelConfig = GPTConfig | LlamaConfig | RecurrentLMConfig
LabellerConfig = BertConfig | RecurrentClassifierConfig
ImageConfig = ViTConfig | ConvConfig | MLPConfig
CaptioningConfig = CaptionerConfig | ShowAttendTellConfig
SeriesModelConfig = SeriesTransformerConfig | SeriesRecurrentConfig
SoundConfig = WhisperConfig | SoundClassifierConfig
ModelConfig = (
    TranslatorConfig
    | LanguageModelConfig
    | LabellerConfig
    | ImageConfig
    | CaptioningConfig
    | SeriesModelConfig
    | ForecasterConfig
    | SoundConfig
)
Model = (
    EncoderDecoder
    | LanguageModel
    | Bert
    | RecurrentClassifier
    | ViT
    | Conv
    | MLP
    | SeriesModel
    | Forecaster
    | SoundClassifier
)

MODELS: dict[str, tuple[type[Any], type[Model]]] = {
    "transformer": (TransformerConfig, Transformer),
    "seq2seq": (Seq2SeqConfig, Seq2Seq),
    "gpt": (GPTConfig, GPT),
    "llama": (LlamaConfig, Llama),
    "rnn_lm": (RecurrentLMConfig, RecurrentLM),
    "bert": (BertConfig, Bert),
    "rnn_classifier": (RecurrentClassifierConfig, RecurrentClassifier),
    "vit": (ViTConfig, ViT),
    "conv": (ConvConfig, Conv),
    "mlp": (MLPConfig, MLP),
    "captioner": (CaptionerConfig, Captioner),
    "show_attend_tell": (ShowAttendTellConfig, ShowAttendTell),
    "series": (SeriesTransformerConfig, SeriesTransformer),
    "rnn_series": (SeriesRecurrentConfig, SeriesRecurrent),
    "forecaster": (ForecasterConfig, Forecaster),
    "whisper": (WhisperConfig, Whisper),
    "sound_classifier": (SoundClassifierConfig, SoundClassifier),
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
    "gpt": {
        "tiny": dict(width=128, layers=4, heads=4, ffn=512, context=256),
        "small": dict(width=384, layers=6, heads=6, ffn=1536, context=256),
        "gpt2": dict(width=768, layers=12, heads=12, ffn=3072),  # Radford et al. 2019, table 2, as do the next three
        "medium": dict(width=1024, layers=24, heads=16, ffn=4096),
        "large": dict(width=1280, layers=36, heads=20, ffn=5120),
        "xl": dict(width=1600, layers=48, heads=25, ffn=6400),
    },
    "llama": {
        "tiny": dict(width=128, layers=4, heads=4, kv_heads=2, head_width=32, ffn=352, context=256),
        "small": dict(width=384, layers=6, heads=6, kv_heads=2, head_width=64, ffn=1024, context=256),
        "smollm2-135m": dict(theta=100_000.0, context=8192),  # Allal et al. 2025, as does the next
        "smollm2-360m": dict(width=960, layers=32, heads=15, kv_heads=5, ffn=2560, theta=100_000.0, context=8192),
        "tinyllama": dict(width=2048, layers=22, heads=32, kv_heads=4, ffn=5632, tied=False),  # Zhang et al. 2024
        "llama2-7b": dict(
            width=4096, layers=32, heads=32, kv_heads=32, head_width=128, ffn=11008, context=4096, tied=False
        ),
    },
    "rnn_lm": {
        "tiny": dict(embedding=128, width=128),
        "small": dict(embedding=256, width=512),
        "medium": dict(embedding=650, width=650, layers=2, dropout=0.5),  # Zaremba et al. 2014, as does the next
        "large": dict(embedding=1500, width=1500, layers=2, dropout=0.65),
    },
    "bert": {
        "tiny": dict(width=128, layers=2, heads=2, ffn=512),  # Turc et al. 2019, as do the next three
        "mini": dict(width=256, layers=4, heads=4, ffn=1024),
        "small": dict(width=512, layers=4, heads=8, ffn=2048),
        "medium": dict(width=512, layers=8, heads=8, ffn=2048),
        "minilm-l6": dict(width=384, layers=6, heads=12, ffn=1536),  # Wang et al. 2020, every second layer
        "base": dict(width=768, layers=12, heads=12, ffn=3072),  # Devlin et al. 2019, as does the next
        "large": dict(width=1024, layers=24, heads=16, ffn=4096),
    },
    "rnn_classifier": {
        "tiny": dict(embedding=128, width=128),
        "small": dict(embedding=256, width=256),
        "base": dict(embedding=512, width=512, layers=2),
    },
    "vit": {
        "tiny": dict(width=96, layers=4, heads=4, ffn=192),
        "small": dict(width=384, layers=7, heads=6, ffn=1152),
        "ti": dict(width=192, layers=12, heads=3, ffn=768),  # Touvron et al. 2021, as does the next
        "s": dict(width=384, layers=12, heads=6, ffn=1536),
        "b": dict(width=768, layers=12, heads=12, ffn=3072),  # Dosovitskiy et al. 2021, table 1, as does the next
        "l": dict(width=1024, layers=24, heads=16, ffn=4096),
    },
    "captioner": {
        "tiny": dict(width=128, ffn=256, encoder_layers=4, decoder_layers=2),
        "small": dict(width=256, ffn=1024, encoder_layers=6, decoder_layers=3),
        "base": dict(width=512, ffn=2048, heads=8, encoder_layers=8, decoder_layers=6),
    },
    "show_attend_tell": {
        "tiny": dict(regions=128, embedding=128, width=256, ffn=256),
        "small": dict(regions=256, embedding=256, width=512, ffn=1024, encoder_layers=6),
    },
    "sound_classifier": {
        "tiny": dict(width=96, layers=3, heads=4, ffn=192),
        "small": dict(width=192, layers=6, heads=6, ffn=768),
        "base": dict(width=384, layers=4, heads=6, ffn=1536),  # the encoder of Whisper tiny
    },
    "conv": {"tiny": dict(width=16), "small": dict(width=32), "base": dict(width=64, layers=3)},
    "mlp": {"tiny": dict(width=128, layers=1), "small": dict(width=512), "base": dict(width=1024, layers=3)},
    "series": {
        "tiny": dict(width=64, layers=2, heads=4, ffn=128),
        "small": dict(width=128, layers=4, heads=8, ffn=256),
        "base": dict(width=192, layers=8, heads=12, ffn=384),
    },
    "rnn_series": {
        "tiny": dict(width=64, layers=1),
        "small": dict(width=128, layers=2),
        "base": dict(width=256, layers=2),
    },
    "forecaster": {
        "tiny": dict(width=16, layers=2, heads=4, ffn=64),
        "small": dict(width=16, layers=3, heads=4, ffn=128),  # Nie et al. 2023 for ETTh1 and ETTh2
        "base": dict(width=128, layers=3, heads=16, ffn=256),  # and for the larger sets
    },
}

CELLS = ("lstm", "gru", "rnn")
ARCHS: dict[str, Callable[..., TranslatorConfig]] = {
    "transformer": TransformerConfig,
    **{
        cell + suffix: lambda cell=cell, attention=attention, **kw: Seq2SeqConfig(cell=cell, attention=attention, **kw)
        for suffix, attention in (("", True), ("-bottleneck", False))
        for cell in CELLS
    },
}
LM_ARCHS: dict[str, Callable[..., LanguageModelConfig]] = {
    "gpt": GPTConfig,
    "llama": LlamaConfig,
    **{cell: lambda cell=cell, **kw: RecurrentLMConfig(cell=cell, **kw) for cell in CELLS},
}
BERT_ARCHS: dict[str, Callable[..., BertConfig]] = {"bert": BertConfig}
LABEL_ARCHS: dict[str, Callable[..., LabellerConfig]] = {
    "transformer": BertConfig,
    **{cell: lambda cell=cell, **kw: RecurrentClassifierConfig(cell=cell, **kw) for cell in CELLS},
}
IMAGE_ARCHS: dict[str, Callable[..., ImageConfig]] = {"vit": ViTConfig, "conv": ConvConfig, "mlp": MLPConfig}
CAPTION_ARCHS: dict[str, Callable[..., CaptioningConfig]] = {
    "transformer": CaptionerConfig,
    "lstm": ShowAttendTellConfig,
}
SERIES_ARCHS: dict[str, Callable[..., SeriesModelConfig]] = {
    "transformer": SeriesTransformerConfig,
    **{cell: lambda cell=cell, **kw: SeriesRecurrentConfig(cell=cell, **kw) for cell in CELLS},
}
FORECAST_ARCHS: dict[str, Callable[..., ForecasterConfig]] = {"transformer": ForecasterConfig}
LABEL_TASKS = ("classify", "pair", "tag")
TASK_ARCHS: dict[str, dict[str, Callable[..., Any]]] = {
    "translate": ARCHS,
    "lm": LM_ARCHS,
    "mlm": BERT_ARCHS,
    **dict.fromkeys(LABEL_TASKS, LABEL_ARCHS),
    "image": IMAGE_ARCHS,
    "table": {"mlp": MLPConfig},
    "caption": CAPTION_ARCHS,
    "series": SERIES_ARCHS,
    "fill-series": SERIES_ARCHS,
    "forecast": FORECAST_ARCHS,
    "audio": {"transformer": SoundClassifierConfig},
}
TRANSFORMERS = dict.fromkeys(LABEL_TASKS, "bert")  # which of MODELS a transformer is; to others, "transformer"
TRANSFORMERS |= {"caption": "captioner", "series": "series", "fill-series": "series", "forecast": "forecaster"}
TRANSFORMERS |= {"audio": "sound_classifier"}
RECURRENT = {"translate": "seq2seq", "lm": "rnn_lm"}  # which of MODELS serves rnn, gru and lstm
RECURRENT |= dict.fromkeys(LABEL_TASKS, "rnn_classifier") | {"caption": "show_attend_tell"}
RECURRENT |= dict.fromkeys(("series", "fill-series"), "rnn_series")


def config_for(arch: str, size: str, vocab: int = 0, task: str = "translate", **settings: Any) -> Any:
    """The config of a named architecture in a named size, for a task. Names ignore case; a `vocab` of 0: no words."""
    arch, size, task = arch.lower(), size.lower(), task.lower()
    if task not in TASK_ARCHS:
        raise unknown("task", task, TASK_ARCHS)
    archs = TASK_ARCHS[task]
    if arch not in archs:
        raise unknown("architecture", arch, archs)
    kind = TRANSFORMERS.get(task, arch) if arch == "transformer" else arch
    sizes = SIZES[kind if kind in SIZES else RECURRENT[task]]
    if size not in sizes:
        raise unknown("size", size, sizes)
    if vocab:  # 0: nothing is read that has one
        settings["vocab"] = vocab
    return archs[arch](**{**sizes[size], **settings})


def model_type(config: ModelConfig) -> str:
    """The key of `MODELS` a config belongs to."""
    return next(name for name, (cls, _) in MODELS.items() if isinstance(config, cls))


@overload
def build(config: TranslatorConfig) -> EncoderDecoder: ...
@overload
def build(config: LanguageModelConfig) -> LanguageModel: ...
@overload
def build(config: BertConfig) -> Bert: ...
@overload
def build(config: RecurrentClassifierConfig) -> RecurrentClassifier: ...
@overload
def build(config: WhisperConfig) -> Whisper: ...
@overload
def build(config: SoundClassifierConfig) -> SoundClassifier: ...
@overload
def build(config: ModelConfig) -> Model: ...
def build(config: ModelConfig) -> Model:
    model: Any = MODELS[model_type(config)][1]
    return model(config)
