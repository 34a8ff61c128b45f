"""Six positional encodings: the same small GPT on the same text, on two CPU cores.

    regard train recipes/positions.py --name positions

Validation loss after 600 steps of 1,024 characters, one seed each, on one thread of a CPU (2026-11-15): rotary 1.685,
ALiBi 1.747, learned 1.761, sines then cosines 1.796, sines and cosines interleaved 1.805, none 1.933 (its causal mask
still shows what came before, not how far back). The table is printed at the end; the curves: runs/positions/curves.png.
"""

from regard import Run
from regard.data.text import TextConfig
from regard.models import config_for
from regard.models.gpt import POSITIONS
from regard.training.settings import Optim, Schedule


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
