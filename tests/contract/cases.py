"""One `Case` per model: its config, a ragged batch, and how to call it. A new model joins every property by a line."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.audio import padded
from regard.data.batch import Batch, Tokens, collate, collate_labelled
from regard.data.masking import MaskedBatch
from regard.models.audio_classifier import AudioTransformerConfig
from regard.models.bart import BartConfig
from regard.models.bert import BertConfig
from regard.models.captioner import CaptionerConfig, GPTCaptionerConfig, ShowAttendTellConfig
from regard.models.gemma import GemmaConfig
from regard.models.gpt import POSITIONS, GPTConfig
from regard.models.llama import LlamaConfig
from regard.models.modernbert import ModernBertConfig
from regard.models.plain import ConvConfig, MLPConfig
from regard.models.rnn_classifier import RecurrentClassifierConfig
from regard.models.rnn_lm import RecurrentLMConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.t5 import T5Config
from regard.models.transformer import TransformerConfig
from regard.models.vit import ViTConfig
from regard.models.whisper import WhisperConfig
from regard.nn.positions import Stretch
from regard.nn.recurrent import GATES
from regard.objectives.caption import CaptionLoss
from regard.objectives.classify import ClassifyImages, ClassifyLoss, ClassifySamples
from regard.objectives.masked_token import MaskedToken
from regard.objectives.next_token import NextToken
from regard.objectives.tag import TagLoss
from regard.objectives.translate import TranslateLoss

from .case import (
    EOS,
    LABELS,
    PAD,
    VOCAB,
    Case,
    generator,
    row,
    samples,
    scores,
    words,
)
from .series_cases import SERIES_CASES

# -- translators: three sources and targets of different lengths ------------------------------------------------------


class Ragged:
    """Three sources and targets of different lengths, padded on the right."""

    lengths = torch.tensor([7, 4, 2])
    target_lengths = torch.tensor([6, 3, 5])

    def __init__(self):
        g = generator(3)
        self.source = torch.randint(1, PAD, (3, 7), generator=g)
        self.target = torch.randint(1, PAD, (3, 6), generator=g)
        self.source[torch.arange(3), self.lengths - 1] = EOS
        self.source[torch.arange(7) >= self.lengths[:, None]] = PAD
        self.target[torch.arange(3), self.target_lengths - 1] = EOS
        self.real = torch.arange(6) < self.target_lengths[:, None]
        self.target[~self.real] = PAD
        self.inputs = torch.cat((torch.full((3, 1), PAD), self.target[:, :-1]), 1)

    def batch(self) -> Batch:
        cut = lambda rows, sizes: [r[: n - 1].tolist() for r, n in zip(rows, sizes, strict=True)]  # noqa: E731
        return collate(cut(self.source, self.lengths), cut(self.target, self.target_lengths), EOS, PAD)


RAGGED = Ragged()
small = dict(vocab=VOCAB, width=16, heads=2, ffn=24, encoder_layers=2, decoder_layers=2, max_length=32)
TRANSLATORS = {
    "transformer": TransformerConfig(**small),
    "transformer-pre": TransformerConfig(**small, norm="pre"),
    "transformer-interleaved": TransformerConfig(**small, positions="interleaved"),
    "transformer-learned": TransformerConfig(**small, positions="learned", activation="gelu"),
    **{
        cell + name: Seq2SeqConfig(vocab=VOCAB, cell=cell, attention=attention, embedding=12, width=16)
        for name, attention in (("", True), ("-bottleneck", False))
        for cell in ("rnn", "gru", "lstm")
    },
    "lstm-deep": Seq2SeqConfig(vocab=VOCAB, cell="lstm", embedding=12, width=16, encoder_layers=2),
    "t5": T5Config(**{k: v for k, v in small.items() if k != "max_length"}, head_width=4, buckets=8, furthest=16),
    "bart": BartConfig(**small, start=PAD),
}


def translator(config: Any) -> Case:
    sizes = RAGGED.lengths.tolist(), RAGGED.target_lengths.tolist()
    return Case(
        config,
        (RAGGED.source, RAGGED.lengths, RAGGED.inputs),
        words,
        (3, 6, VOCAB),
        TranslateLoss(0.1),
        RAGGED.batch(),
        lengths=tuple(map(slice, sizes[1])),
        alone=lambda x, b: (row(x[0], b, sizes[0][b]), None, row(x[2], b, sizes[1][b])),
        classes=VOCAB,
        first_loss=(0.0, 0.8),
        words=2,
        decodes=True,
        looks=6 * getattr(config, "attention", True),
        hidden=(1, 4),
    )


# -- language models --------------------------------------------------------------------------------------------------

IDS = torch.randint(0, VOCAB, (3, 12), generator=generator(4))
flat = dict(vocab=VOCAB, width=16, layers=2, heads=4, ffn=24, context=32, dropout=0.1)
LANGUAGE_MODELS = {
    **{f"gpt-{positions}": GPTConfig(**flat, positions=positions) for positions in POSITIONS},
    "llama": LlamaConfig(**flat, kv_heads=2, head_width=6),
    "llama-untied": LlamaConfig(**flat, kv_heads=4, head_width=4, tied=False),
    "llama-windowed": LlamaConfig(
        **flat, kv_heads=2, head_width=6, window=8, qkv_bias=True, qk_norm=True, stretch=Stretch(factor=4.0, context=16)
    ),
    "gemma": GemmaConfig(**flat | dict(layers=3), kv_heads=2, head_width=6, window=4, global_every=2),
    **{cell: RecurrentLMConfig(vocab=VOCAB, cell=cell, embedding=12, width=16, dropout=0.1) for cell in GATES},
    "lstm-deep": RecurrentLMConfig(vocab=VOCAB, cell="lstm", embedding=12, width=16, layers=3, dropout=0.1),
}


def distinct_words(model: nn.Module) -> None:
    """Words that differ enough from each other to be told apart."""
    with torch.no_grad():
        model.token.weight.mul_(0.5 / model.token.weight[:VOCAB].std())


def language_model(config: Any) -> Case:
    recurrent = isinstance(config, RecurrentLMConfig)
    return Case(
        config,
        (IDS,),
        words,
        (3, 12, VOCAB),
        NextToken(0.1),
        Tokens(ids=IDS),
        classes=VOCAB,
        first_loss=(-0.2, 0.2),
        words=0,
        looks=0 if recurrent else 2,
        shake=2.0 if recurrent else 8.0,
        prepare=distinct_words,
    )


# -- encoders of text -------------------------------------------------------------------------------------------------

LENGTHS = torch.tensor([9, 2, 6])
REAL = torch.arange(9) < LENGTHS[:, None]
SENTENCES = torch.tensor([[0] * 4 + [1] * 5, [0] * 9, [0, 0, 0, 1, 1, 1, 0, 0, 0]])
TEXTS = torch.randint(1, PAD, (3, 9), generator=generator(5)).masked_fill(~REAL, PAD)
bert = dict(vocab=VOCAB, width=16, layers=2, heads=4, ffn=24, max_length=12, dropout=0.1)
modern = bert | dict(window=4, global_every=2)
MARKS = [[int(n) % 3 if t else -1 for t, n in enumerate(r[:k])] for r, k in zip(TEXTS, LENGTHS.tolist(), strict=True)]


def labelled_texts(per_piece: bool) -> Batch:
    texts = [(r[:n].tolist(), n, m) for r, n, m in zip(TEXTS, LENGTHS.tolist(), MARKS, strict=True)]
    return collate_labelled([(i, 0, m if per_piece else [m[-1]]) for i, _, m in texts], PAD, per_piece)


def masked_texts() -> MaskedBatch:
    hidden = torch.zeros_like(REAL)
    hidden[0, [1, 5]] = hidden[1, 1] = hidden[2, [2, 3]] = True
    targets = TEXTS.masked_fill(~hidden, -1)
    flat = targets.flatten()
    where = (flat >= 0).nonzero()[:, 0]
    sizes = LENGTHS.numpy()
    return MaskedBatch(TEXTS.masked_fill(hidden, 3), SENTENCES, LENGTHS, None, where, flat[where],
                       torch.tensor([0, 1, 1]), np.arange(3), targets.numpy(), sizes, 5, 5 / 3)  # fmt: skip


def of_pretraining(model: nn.Module, *inputs: Any) -> Tensor:
    hidden = model(*inputs)
    return torch.cat((model.logits(hidden), model.follows(hidden)), -1)


def of_text(model: nn.Module, ids: Tensor, lengths: Tensor | None, sentences: Tensor | None) -> Tensor:
    return model.scores(model.summary(model(ids, lengths, sentences), lengths))


def encoder(config: Any) -> Case:
    sizes, recurrent = LENGTHS.tolist(), isinstance(config, RecurrentClassifierConfig)
    forward = {"sequence": of_text, "token": scores, "pretraining": of_pretraining}[config.head]
    per_piece = config.head != "sequence"
    return Case(
        config,
        (TEXTS, LENGTHS, None if recurrent else SENTENCES),
        forward,
        {"sequence": (3, 3), "token": (3, 9, 3), "pretraining": (3, 9, VOCAB + 2)}[config.head],
        {"sequence": ClassifyLoss(0.1), "token": TagLoss(0.1), "pretraining": MaskedToken(0.1)}[config.head],
        masked_texts() if config.head == "pretraining" else labelled_texts(per_piece),
        lengths=tuple(map(slice, sizes)) if per_piece else (slice(None),) * 3,
        alone=lambda x, b: (row(x[0], b, sizes[b]), None, row(x[2], b, sizes[b])),
        classes=VOCAB if config.head == "pretraining" else 3,
        first_loss=(-0.3, 0.8),
        looks=0 if recurrent else 2,
        hidden=(1, 2),
        shake=2.0 if recurrent else 8.0,
    )


ENCODERS = {
    "bert": BertConfig(**bert, head="pretraining"),
    "bert-sequence": BertConfig(**bert, head="sequence", labels=LABELS),
    "bert-mean": BertConfig(**bert, head="sequence", labels=LABELS, pooling="mean"),
    "bert-token": BertConfig(**bert, head="token", labels=LABELS),
    "modernbert": ModernBertConfig(**modern, head="sequence", labels=LABELS, pooling="mean"),
    "modernbert-token": ModernBertConfig(**modern, head="token", labels=LABELS),
    **{
        f"{cell}-{pooling}": RecurrentClassifierConfig(
            vocab=VOCAB, cell=cell, embedding=12, width=16, layers=2, dropout=0.1, pooling=pooling, labels=LABELS
        )
        for cell, pooling in (("lstm", "mean"), ("gru", "last"), ("rnn", "mean"))
    },
    "lstm-token": RecurrentClassifierConfig(
        vocab=VOCAB, embedding=12, width=16, dropout=0.1, head="token", labels=LABELS
    ),
}

# -- images, and their captions ---------------------------------------------------------------------------------------

PIXELS = torch.randint(0, 256, (3, 2, 8, 8), generator=generator(2), dtype=torch.uint8)
vit = dict(image=8, channels=2, patch=4, width=16, layers=2, heads=2, ffn=24, dropout=0.1, labels=LABELS)
IMAGES = {
    "vit": ViTConfig(**vit),
    "vit-mean": ViTConfig(**vit, pool="mean", mean=(0.2, 0.3), std=(0.1, 0.4)),
    "vit-sine": ViTConfig(**vit, positions="sine"),
    "vit-conv": ViTConfig(**vit, stem="conv"),
    "conv": ConvConfig(image=8, channels=2, width=4, dropout=0.1, labels=LABELS),
    "mlp": MLPConfig(shape=(2, 8, 8), width=8, dropout=0.5, labels=LABELS, mean=(0.4,), std=(0.3,)),
}
image = dict(vocab=VOCAB, image=8, channels=2, patch=4, max_length=12)
one = dict(heads=2, ffn=24, encoder_layers=1)
CAPTIONERS = {
    "captioner": CaptionerConfig(**image, width=16, heads=2, ffn=24, encoder_layers=2, decoder_layers=2),
    "captioner-conv": CaptionerConfig(**image, **one, width=16, decoder_layers=1, stem="conv"),
    "captioner-gpt": GPTCaptionerConfig(
        **image, width=16, heads=2, ffn=24, encoder_layers=2, decoder_layers=2, start=1
    ),
    "captioner-lstm": ShowAttendTellConfig(**image, **one, regions=16, embedding=12, width=16),
    "captioner-gru": ShowAttendTellConfig(**image, **one, regions=8, embedding=12, width=16, cell="gru"),
}
CAPTIONS = torch.randint(1, PAD, (3, 6), generator=generator(3))
TARGETS = CAPTIONS.roll(-1, 1).masked_fill(~(torch.arange(6) < torch.tensor([[6], [3], [5]])), -1)


def image_classifier(config: Any) -> Case:
    looks = config.layers if isinstance(config, ViTConfig) else 0
    return Case(config, (PIXELS,), scores, (3, 3), ClassifyImages(0.1), samples(PIXELS), classes=3, looks=looks)


def captioner(config: Any) -> Case:
    return Case(
        config,
        (PIXELS, None, CAPTIONS),
        words,
        (3, 6, VOCAB),
        CaptionLoss(0.1),
        samples(PIXELS, CAPTIONS, targets=TARGETS),
        classes=VOCAB,
        words=2,
        decodes=True,
        looks=3,
    )


# -- sound ------------------------------------------------------------------------------------------------------------

WHISPER = WhisperConfig(
    vocab=VOCAB, mels=6, width=16, heads=2, ffn=24, encoder_layers=2, decoder_layers=2, places=10, max_length=12,
    dropout=0.1,
)  # fmt: skip
CLIPS = AudioTransformerConfig(mels=6, frames=40, width=16, heads=2, ffn=24, layers=2, dropout=0.1, labels=LABELS)
WINDOWS = torch.randn(3, 6, 20, generator=generator(2)).double()
ALONE = [torch.randn(6, n, generator=generator(n)).double() for n in (33, 8, 17)]  # clips of three lengths
PICTURES, FRAMES = padded(ALONE)


def sound() -> dict[str, Case]:
    hearing = captioner(WHISPER)
    whisper = replace(
        hearing,
        inputs=(WINDOWS, None, CAPTIONS),
        batch=samples(WINDOWS, CAPTIONS, targets=TARGETS),
        looks=6,
        shake=3.0,
    )
    clips = Case(
        CLIPS,
        (PICTURES, FRAMES),
        scores,
        (3, 3),
        ClassifySamples(0.1),
        samples(PICTURES, FRAMES),
        alone=lambda x, b: (ALONE[b][None], None),
        classes=3,
        first_loss=(-0.6, 0.6),
        looks=2,
        hidden=(1, 4),
    )
    return {"whisper": whisper, "clips": clips}


CASES: dict[str, Case] = {
    **{name: translator(config) for name, config in TRANSLATORS.items()},
    **{f"lm-{name}": language_model(config) for name, config in LANGUAGE_MODELS.items()},
    **{f"text-{name}": encoder(config) for name, config in ENCODERS.items()},
    **{name: image_classifier(config) for name, config in IMAGES.items()},
    **{name: captioner(config) for name, config in CAPTIONERS.items()},
    **sound(),
    **SERIES_CASES,
}
GUESSING = {name: math.log(case.classes) for name, case in CASES.items() if case.classes}
