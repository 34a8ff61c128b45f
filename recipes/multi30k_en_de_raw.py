"""Multi30k English to German from raw text, with our own tokeniser only: 39.89 BLEU (13a) on test2016.

    regard train recipes/multi30k_en_de_raw.py --name m30k-raw --device cuda
    regard evaluate runs/m30k-raw --beam 5 --length-penalty 1.4

One seed, one H200, 2026-11-15; length penalty chosen on val (41.30). Cased, with real punctuation: not to be compared
with scores on the tokenised, lower-cased text.
"""

from regard import Run
from regard.data.prepare import PairsConfig
from regard.models import config_for
from regard.training.settings import Optim, Schedule


def recipe() -> Run:
    return Run(
        data=PairsConfig(name="multi30k-en-de", vocab=10_000),
        model=config_for("transformer", "tiny", vocab=10_000, norm="pre", dropout=0.3),
        optim=Optim(name="muon", lr=0.02, adam_lr=5e-3),
        schedule=Schedule(kind="linear", warmup=200),
        tokens=4096,
        steps=5000,
        eval_every=400,
        keep=5,
        compile=True,
    )
