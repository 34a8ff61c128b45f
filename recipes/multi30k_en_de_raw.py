"""Multi30k English to German from raw text: no tokeniser but our own, scored on real German by sacreBLEU's 13a."""

from regard import Run
from regard.data.prepare import PairsConfig
from regard.models import config_for
from regard.train.optim import Optim
from regard.train.schedule import Schedule


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
