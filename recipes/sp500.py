"""Bullish or bearish? Will the S&P 500 be higher in 20 trading days, from the last 60 days' returns: on a CPU.

    regard train recipes/sp500.py --name sp500
    regard evaluate runs/sp500/transformer-seed0          # and lstm-seed0

Days 1999 to 2010 to train, to 2014 to validate, to 2018 to test, with a gap of 20 days before each split.

No edge: on 990 test days (two busy cores, 2026-11-15, one seed) the Transformer and the LSTM both say "up" every day
and are right on 64.3 % of them, exactly as often as always saying up. Nearest neighbours of summary statistics get
55.1 %.
"""

from regard import Run
from regard.data.series import SeriesConfig
from regard.models import config_for
from regard.training.settings import Optim, Schedule


def with_arch(arch: str) -> Run:
    return Run(
        task="series",
        data=SeriesConfig(name="sp500-direction"),
        model=config_for(arch, "tiny", task="series", dropout=0.3),
        optim=Optim(name="adamw", lr=5e-4, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1),
        schedule=Schedule(kind="linear", warmup=50),
        steps=400,
        batch=32,
        smoothing=0.0,
        average=False,
        keep=1,
    )


def recipe() -> dict[str, Run]:
    return {arch: with_arch(arch) for arch in ("transformer", "lstm")}
