"""Sentiment from scratch: an LSTM on the 6,920 sentences of SST-2, to compare with sst2_minilm.py.

    regard train recipes/sst2_lstm.py --seeds 3 --name sst2-lstm
    regard evaluate runs/sst2-lstm/sst2_lstm-seed0

Accuracy on dev 79.1, 80.5 and 81.9, so 80.5 ± 1.4 (two CPU cores, 2026-11-15; of eight evaluations on dev the best is
kept). A bag of words gets 80.4.
"""

from regard import Run
from regard.data.labelled import LabelledConfig
from regard.models import config_for
from regard.training.settings import Optim, Schedule

VOCAB = 8000


def recipe() -> Run:
    return Run(
        task="classify",
        data=LabelledConfig(name="sst2", vocab=VOCAB),
        model=config_for("lstm", "tiny", VOCAB, task="classify", dropout=0.5),
        optim=Optim(name="adamw", lr=2e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=50),
        epochs=8.0,
        tokens=1024,
        smoothing=0.0,
        average=False,
        keep=1,
    )
