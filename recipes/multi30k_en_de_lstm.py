"""Multi30k English to German, LSTM with Bahdanau attention, tokenised text: 38.24 ± 0.52 BLEU on test2016.

    regard train recipes/multi30k_en_de_lstm.py --name m30k-lstm --device cuda
    regard evaluate runs/m30k-lstm --beam 5 --length-penalty 1.0

Seeds 0, 1, 2 gave 37.64, 38.51, 38.57 (sacreBLEU, tokenize none, beam 5, length penalty chosen on val). Without
attention (--set model.attention=false) seed 0 gave 27.17. One H200, 2026-11-15; 100 seconds with eleven other runs
on the same GPU.
"""

from regard import Run
from regard.data.prepare import PairsConfig
from regard.models import config_for
from regard.training.settings import Optim, Schedule


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
