"""Character GPT on Shakespeare, for two CPU cores: validation loss 1.814 in 47 seconds, start and evaluations included.

    regard train recipes/shakespeare_char_cpu.py --name chars-cpu

The loss is over the whole of nanoGPT's validation set (the last tenth, 111,539 characters, in windows of 64). One
seed, 2 cores of an AMD EPYC, 2026-11-15. nanoGPT's own setting for a CPU, this model with 2,000 steps of AdamW, ends
at 1.88.
"""

from regard import Run
from regard.data.text import TextConfig
from regard.models import config_for
from regard.training.settings import Optim, Schedule


def recipe() -> Run:
    return Run(
        task="lm",
        data=TextConfig(name="shakespeare", tokens="chars", vocab=65),
        model=config_for("gpt", "tiny", 65, task="lm", context=64),
        optim=Optim(name="muon", lr=0.02, adam_lr=5e-3, betas=(0.9, 0.99)),
        schedule=Schedule(kind="linear", warmup=50),
        minutes=0.9,
        tokens=768,
        smoothing=0.0,
        average=False,
    )
