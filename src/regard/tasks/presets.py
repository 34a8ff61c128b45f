"""What `regard train TASK` does unless told otherwise: one table a task, by device and model."""

from typing import Any

from regard.tasks.base import Preset
from regard.train.settings import Optim, Schedule

Presets = dict[tuple[str, str], Preset]
LAST: dict[str, Any] = dict(smoothing=0.0, average=False, keep=1)  # one best checkpoint, plain cross-entropy


def adamw(lr: float, betas: tuple[float, float] = (0.9, 0.99), decay: float = 0.01, eps: float = 1e-8) -> Optim:
    return Optim(name="adamw", lr=lr, betas=betas, eps=eps, weight_decay=decay)


def linear(warmup: int) -> Schedule:
    return Schedule(kind="linear", warmup=warmup)


def on_cpu(optim: Optim, warmup: int, **run: Any) -> dict[str, Any]:
    return dict(optim=optim, schedule=linear(warmup), precision="fp32", **run)


def on_gpu(optim: Optim, warmup: int, **run: Any) -> dict[str, Any]:
    return dict(optim=optim, schedule=linear(warmup), precision="bf16", **run)


MUON = Optim(name="muon", lr=0.01, adam_lr=8e-3)  # AdamW learns next to nothing in four minutes of two cores
MUON_GPU = Optim(name="muon", lr=0.01, adam_lr=5e-3)
TRANSLATE: Presets = {
    ("cpu", "transformer"): Preset(
        vocab=4000,
        model=dict(dropout=0.0),  # most sentences are seen once
        shape=dict(encoder_layers=2, decoder_layers=2, ffn=512),  # shallow and wide in the middle beats deeper models
        run=on_cpu(MUON, 200, minutes=4.0, tokens=1536),
    ),
    ("cpu", "seq2seq"): Preset(vocab=4000, model=dict(dropout=0.0), run=on_cpu(MUON, 200, minutes=4.0, tokens=1536)),
    ("cuda", "transformer"): Preset(
        size="small", vocab=8000, model=dict(dropout=0.2), run=on_gpu(MUON_GPU, 400, minutes=10.0, tokens=16384)
    ),
    ("cuda", "seq2seq"): Preset(
        size="base", vocab=8000, model=dict(dropout=0.3), run=on_gpu(MUON_GPU, 400, minutes=10.0, tokens=16384)
    ),
}

NEXT_TOKEN: dict[str, Any] = dict(smoothing=0.0, average=False)


def language_muon(lr: float, adam_lr: float) -> Optim:
    return Optim(name="muon", lr=lr, adam_lr=adam_lr, betas=(0.9, 0.99))


def _language(device: str, lr: float, context: int, compile: bool) -> Preset:
    shape = dict(context=context) if context else {}
    if device == "cpu":
        run = on_cpu(language_muon(lr, 5e-3), 50, minutes=3.0, tokens=768, **NEXT_TOKEN)
        return Preset(vocab=4000, model=dict(dropout=0.0), shape=shape, run=run)
    run = on_gpu(language_muon(lr, 3e-3), 100, minutes=10.0, tokens=16384, compile=compile, **NEXT_TOKEN)
    return Preset(size="small", vocab=8000, model=dict(dropout=0.2), shape=shape, run=run)


LANGUAGE: Presets = {
    ("cpu", ""): _language("cpu", 0.02, 64, compile=False),
    ("cpu", "rnn_lm"): _language("cpu", 0.01, 0, compile=False),
    ("cuda", ""): _language("cuda", 0.02, 256, compile=True),
    ("cuda", "rnn_lm"): _language("cuda", 0.01, 0, compile=False),
}

MASKED: Presets = {
    ("cpu", ""): Preset(
        vocab=4000,
        model=dict(dropout=0.0, attention_dropout=0.0),
        run=on_cpu(Optim(name="muon", lr=0.02, adam_lr=5e-3, eps=1e-8), 50, minutes=5.0, tokens=2048, **NEXT_TOKEN),
    ),
    ("cuda", ""): Preset(
        size="small",
        vocab=16000,
        model=dict(dropout=0.1, attention_dropout=0.0),
        run=on_gpu(
            Optim(name="muon", lr=0.01, adam_lr=2e-3, eps=1e-8, weight_decay=0.01),
            200,
            minutes=10.0,
            tokens=32768,
            compile=True,
            **NEXT_TOKEN,
        ),
    ),
}

LABELS: Presets = {
    ("cpu", "bert"): Preset(
        vocab=8000,
        model=dict(dropout=0.3, attention_dropout=0.3),
        run=on_cpu(adamw(5e-4), 50, minutes=3.0, tokens=1024, **LAST),
    ),
    ("cpu", "rnn_classifier"): Preset(
        vocab=8000, model=dict(dropout=0.5), run=on_cpu(adamw(2e-3), 50, minutes=3.0, tokens=1024, **LAST)
    ),
    ("cuda", "bert"): Preset(
        size="mini",
        vocab=8000,
        model=dict(dropout=0.3, attention_dropout=0.3),
        run=on_gpu(adamw(5e-4), 100, minutes=5.0, tokens=8192, **LAST),
    ),
    ("cuda", "rnn_classifier"): Preset(
        size="small",
        vocab=8000,
        model=dict(dropout=0.5),
        run=on_gpu(adamw(2e-3), 100, minutes=5.0, tokens=8192, **LAST),
    ),
}

IMAGE_MUON = Optim(name="muon", lr=0.01, adam_lr=2e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.02)
IMAGES: Presets = {
    ("cpu", "vit"): Preset(model=dict(dropout=0.0), run=on_cpu(IMAGE_MUON, 50, minutes=4.0, batch=64, **LAST)),
    ("cpu", ""): Preset(
        size="small", model=dict(dropout=0.2), run=on_cpu(adamw(1e-3), 50, minutes=2.0, batch=64, **LAST)
    ),
    ("cuda", "vit"): Preset(
        size="small",
        model=dict(dropout=0.1),
        shape=dict(stem="conv", pool="mean"),
        run=on_gpu(IMAGE_MUON, 200, minutes=5.0, batch=512, **LAST),
    ),
    ("cuda", ""): Preset(
        size="base", model=dict(dropout=0.2), run=on_gpu(adamw(1e-3), 200, minutes=3.0, batch=512, **LAST)
    ),
}

ROWS: Presets = {
    (device, ""): Preset(
        model=dict(dropout=0.2),
        shape=dict(width=64, layers=2),
        run=on_cpu(adamw(2e-3), 20, epochs=40.0, batch=32, **LAST),
    )
    for device in ("cpu", "cuda")
}

AUDIO: Presets = {
    ("cpu", ""): Preset(
        model=dict(dropout=0.1), run=on_cpu(adamw(1e-3, (0.9, 0.98), 0.05), 100, minutes=4.0, batch=32, **LAST)
    ),
    ("cuda", ""): Preset(
        size="small",
        model=dict(dropout=0.1),
        run=on_gpu(adamw(1e-3, (0.9, 0.98), 0.05), 200, minutes=3.0, batch=64, **LAST),
    ),
}

CAPTIONS: Presets = {
    ("cpu", ""): Preset(
        vocab=2000,
        model=dict(dropout=0.1),
        run=dict(
            optim=adamw(1e-3, (0.9, 0.98), 0.05, 1e-9),
            schedule=Schedule(kind="cosine", warmup=200),
            minutes=10.0,
            batch=32,
            average=False,
            keep=1,
        ),
    ),
    ("cuda", ""): Preset(
        size="small",
        vocab=4000,
        model=dict(dropout=0.3),
        shape=dict(stem="conv"),
        run=dict(
            optim=adamw(1e-3, (0.9, 0.98), 0.05, 1e-9),
            schedule=Schedule(kind="cosine", warmup=500),
            precision="bf16",
            minutes=8.0,
            batch=256,
            average=False,
            keep=1,
        ),
    ),
}

SERIES: Presets = {
    ("cpu", ""): Preset(run=on_cpu(adamw(1e-3), 50, minutes=3.0, batch=32, **LAST)),
    ("cuda", ""): Preset(size="small", run=on_gpu(adamw(1e-3), 50, minutes=3.0, batch=128, **LAST)),
}

FORECAST: Presets = {
    ("cpu", ""): Preset(run=on_cpu(adamw(1e-3), 100, minutes=3.0, batch=32, **LAST)),
    ("cuda", ""): Preset(run=on_gpu(adamw(1e-3), 100, minutes=3.0, batch=128, **LAST)),
}
