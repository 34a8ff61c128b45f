"""All models by name, and how to build one from its config."""

from typing import Any, overload

import torch

from regard import limits
from regard.errors import ConfigError, LimitError
from regard.models.audio_classifier import AudioTransformer, AudioTransformerConfig
from regard.models.bart import Bart, BartConfig
from regard.models.base import EncoderDecoder, LanguageModel
from regard.models.bert import Bert, BertConfig
from regard.models.captioner import (
    Captioner,
    CaptionerConfig,
    GPTCaptioner,
    GPTCaptionerConfig,
    ShowAttendTell,
    ShowAttendTellConfig,
)
from regard.models.clip import CLIP, CLIPConfig
from regard.models.forecaster import Forecaster, ForecasterConfig
from regard.models.gemma import Gemma, GemmaConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.llama import Llama, LlamaConfig
from regard.models.modernbert import ModernBert, ModernBertConfig
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
from regard.models.t5 import T5, T5Config
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.vit import ViT, ViTConfig
from regard.models.whisper import Whisper, WhisperConfig
from regard.nn.init import skip_init

TranslatorConfig = TransformerConfig | Seq2SeqConfig | T5Config | BartConfig
LanguageModelConfig = GPTConfig | LlamaConfig | GemmaConfig | RecurrentLMConfig
LabellerConfig = BertConfig | RecurrentClassifierConfig
ImageConfig = ViTConfig | ConvConfig | MLPConfig
CaptioningConfig = CaptionerConfig | GPTCaptionerConfig | ShowAttendTellConfig
SeriesModelConfig = SeriesTransformerConfig | SeriesRecurrentConfig
AudioModelConfig = WhisperConfig | AudioTransformerConfig
ModelConfig = (
    TranslatorConfig
    | LanguageModelConfig
    | LabellerConfig
    | ImageConfig
    | CaptioningConfig
    | SeriesModelConfig
    | ForecasterConfig
    | AudioModelConfig
    | CLIPConfig
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
    | AudioTransformer
    | CLIP
)

DEEPEST = 2_000  # layers, of encoder and decoder together; published ones have at most 1,000 (Wang et al. 2022)

MODELS: dict[str, tuple[type[Any], type[Model]]] = {
    "transformer": (TransformerConfig, Transformer),
    "seq2seq": (Seq2SeqConfig, Seq2Seq),
    "t5": (T5Config, T5),
    "bart": (BartConfig, Bart),
    "gpt": (GPTConfig, GPT),
    "llama": (LlamaConfig, Llama),
    "gemma": (GemmaConfig, Gemma),
    "rnn_lm": (RecurrentLMConfig, RecurrentLM),
    "modernbert": (ModernBertConfig, ModernBert),  # before its base class
    "bert": (BertConfig, Bert),
    "rnn_classifier": (RecurrentClassifierConfig, RecurrentClassifier),
    "vit": (ViTConfig, ViT),
    "clip": (CLIPConfig, CLIP),
    "conv": (ConvConfig, Conv),
    "mlp": (MLPConfig, MLP),
    "gpt_captioner": (GPTCaptionerConfig, GPTCaptioner),  # before its base class
    "captioner": (CaptionerConfig, Captioner),
    "show_attend_tell": (ShowAttendTellConfig, ShowAttendTell),
    "series": (SeriesTransformerConfig, SeriesTransformer),
    "rnn_series": (SeriesRecurrentConfig, SeriesRecurrent),
    "forecaster": (ForecasterConfig, Forecaster),
    "whisper": (WhisperConfig, Whisper),
    "sound_classifier": (AudioTransformerConfig, AudioTransformer),  # as folders name it
}


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
def build(config: AudioTransformerConfig) -> AudioTransformer: ...
@overload
def build(config: ModelConfig) -> Model: ...
def build(config: ModelConfig) -> Model:
    if depth(config) > DEEPEST:
        raise ConfigError(f"{depth(config):,} layers; the deepest model that can be built has {DEEPEST:,}")
    model: Any = MODELS[model_type(config)][1]
    return model(config)


def depth(config: ModelConfig) -> int:
    """Layers, those of encoder and decoder together."""
    return sum(getattr(config, f"{name}layers", 0) for name in ("", "encoder_", "decoder_", "text_"))


def outline(config: ModelConfig) -> Model:
    """A model on the meta device, to count parameters at almost no cost."""
    try:
        with torch.device("meta"), skip_init():
            return build(config)
    except (RuntimeError, OverflowError, TypeError):
        raise LimitError("this model has too many parameters to count; make it smaller") from None


def check_memory(config: ModelConfig) -> None:
    """Raise `LimitError` if memory has no room for the model's parameters, without building it."""
    count = sum(p.numel() for p in outline(config).parameters())
    what = f"a {model_type(config)} of {depth(config):,} layers and {count:,} parameters"
    limits.require(4 * count, what, "make it smaller with --size or --set model.…")
