"""FordA: is there a fault in this engine? From its noise, 500 points; the UCR archive's own test set.

    regard train recipes/forda.py --name forda
    regard evaluate runs/forda

Test accuracy 93.9 % (1,320 series; calibration error 1.3 %), nearest neighbour on summary statistics 79.5 %: one seed,
800 steps, the checkpoint chosen on a tenth of the training set, two busy cores, 2026-11-15.
"""

from regard import Run
from regard.data.series import SeriesConfig
from regard.models import config_for
from regard.training.settings import Optim, Schedule


def recipe() -> Run:
    patches = dict(patch=32, stride=4, width=96, layers=2, heads=4, ffn=256, dropout=0.1)
    return Run(
        task="series",
        data=SeriesConfig(name="forda", window=256),  # trained on halves, scored on the whole
        model=config_for("transformer", "tiny", task="series", **patches),
        optim=Optim(name="adamw", lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="cosine", warmup=100),
        steps=800,
        batch=32,
        smoothing=0.0,
        average=False,
        keep=1,
    )
