"""Where a token stands, said in six ways: the same small GPT on the same text, on two CPU cores.

    export REGARD_DATA=...     # a folder that holds shakespeare/input.txt, see: regard data get shakespeare
    regard train recipes/positions.py --name positions

NOT run to its end by us yet: no figure is claimed.
"""

from regard import Run
from regard.data.text import TextConfig
from regard.models import config_for
from regard.models.gpt import POSITIONS
from regard.train.optim import Optim
from regard.train.schedule import Schedule


def with_positions(positions: str) -> Run:
    return Run(
        task="lm",
        data=TextConfig(name="shakespeare", tokens="chars", vocab=65),
        model=config_for("gpt", "tiny", 65, task="lm", context=64, positions=positions),
        optim=Optim(name="muon", lr=0.02, adam_lr=5e-3, betas=(0.9, 0.99)),
        schedule=Schedule(kind="linear", warmup=50),
        steps=600,
        tokens=1024,
        smoothing=0.0,
        average=False,
    )


def recipe() -> dict[str, Run]:
    return {positions: with_positions(positions) for positions in POSITIONS}
