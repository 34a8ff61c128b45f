"""Multi30k English to German with an LSTM and Bahdanau attention, on the tokenised text."""

from regard import Run
from regard.data.prepare import PairsConfig
from regard.models import config_for
from regard.train.optim import Optim
from regard.train.schedule import Schedule


def recipe() -> Run:
    return Run(
        data=PairsConfig(name="multi30k-en-de-tok", split="spaces", vocab=10_000),
        model=config_for("lstm", "small", vocab=10_000, dropout=0.3),
        optim=Optim(name="adamw", lr=3e-3),
        schedule=Schedule(kind="linear", warmup=200),
        tokens=4096,
        steps=2500,
        eval_every=200,
        keep=5,
    )
