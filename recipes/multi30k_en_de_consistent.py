"""The same with the consistency loss of R-Drop: two passes with different dropout must agree."""

from regard import Run
from regard.data.prepare import PairsConfig
from regard.models import config_for
from regard.train.optim import Optim
from regard.train.schedule import Schedule


def recipe() -> Run:
    return Run(
        data=PairsConfig(name="multi30k-en-de-tok", split="spaces", vocab=10_000),
        model=config_for("transformer", "tiny", vocab=10_000, norm="pre", dropout=0.3),
        optim=Optim(name="muon", lr=0.02, adam_lr=5e-3),
        schedule=Schedule(kind="linear", warmup=200),
        consistency=5.0,
        tokens=4096,
        steps=8000,
        eval_every=650,
        keep=5,
        compile=True,
    )
