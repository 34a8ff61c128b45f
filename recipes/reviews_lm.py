"""An LSTM vs. a GPT on 25,000 film reviews: the same tokens, as many of them. For a GPU.

    regard train recipes/reviews_lm.py --name reviews --device cuda
    regard next runs/reviews/lstm "I grew up in France, I speak fluent" --word " French"
    regard next runs/reviews/gpt "I love to drink" --word " coffee" --word " water"

On one H200, 2026-11-15, two other models training at the same time: validation loss 4.140 of the GPT (27 M parameters,
116 s) and 4.494 of the LSTM (28 M, 153 s), perplexity 62.8 and 89.5. " French" is the GPT's 16th guess (0.68 %; "
English" its 4th, 4.8 %) and the LSTM's 141st (0.04 %); " water" its 33rd (0.43 %), the LSTM's 251st (0.02 %); "
coffee" its 95th (0.11 %), the LSTM's 2,195th. Film reviews seldom mention drinks; docs/lectures.md compares SmolLM2.
"""

from regard import Run
from regard.data.text import TextConfig
from regard.models import config_for
from regard.training.settings import Optim, Schedule

VOCAB, CONTEXT = 16000, 256


def learned_by(arch: str, size: str, **settings) -> Run:
    return Run(
        task="lm",
        data=TextConfig(name="movie-reviews", vocab=VOCAB, context=CONTEXT),
        model=config_for(arch, size, VOCAB, task="lm", dropout=0.1, **settings),
        optim=Optim(name="muon", lr=0.01, adam_lr=2e-3, betas=(0.9, 0.99), weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=100),
        steps=2000,
        tokens=32768,
        smoothing=0.0,
        average=False,
        keep=1,
        precision="bf16",
        compile=arch == "gpt",
    )


def recipe() -> dict[str, Run]:
    return {"gpt": learned_by("gpt", "small", width=512, heads=8, ffn=2048), "lstm": learned_by("lstm", "medium")}
