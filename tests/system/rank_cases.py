"""What groups of processes train: a small model of every family, without dropout, in float64."""

import copy
import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import torch

from regard.config import override
from regard.data.loader import Loader
from regard.models import LlamaConfig
from regard.objectives import next_token, translate
from regard.objectives.losses import plain_cross_entropy_sum
from regard.tasks import assemble
from regard.tasks.plan import read_run
from regard.training.loop import train
from regard.training.parallel import join
from regard.training.parts import Parts

STEPS = 20
RUNS = {
    "gpt": "lm-gpt",
    "llama": "lm-gpt",
    "bert": "mlm",
    "transformer": "translate-transformer",
    "seq2seq": "translate-lstm",
    "vit": "image-vit",
    "series": "series",
}
OFTEN = [f"steps={STEPS}", "log_every=1", f"eval_every={STEPS}", "save_every=0", "schedule.warmup=5", "keep=1"]
LLAMA = LlamaConfig(vocab=298, width=16, layers=1, heads=4, kv_heads=2, ffn=16, context=48)


def parts_of(name: str, *settings: str) -> Parts:
    """A fixture's run without dropout, BERT's rows packed."""
    run = override(read_run(f"runs/{RUNS[name]}"), OFTEN)
    if name == "llama":
        run = dataclasses.replace(run, model=LLAMA)
    if hasattr(run.model, "dropout"):
        run = override(run, ["model.dropout=0"])
    run = override(run, settings)
    parts = assemble(run, say=lambda _: None)
    if name == "bert":
        source = dataclasses.replace(parts.loader.source, packed=True)
        parts = dataclasses.replace(parts, loader=Loader(source, source.plan, run.seed, **parts.loader.fingerprint))
    return parts


class Double:
    """Batches whose fractions have 64 bits."""

    def __init__(self, loader: Any):
        self.loader = loader
        self.skip, self.state, self.restore = loader.skip, loader.state, loader.restore

    def __next__(self) -> Any:
        return double(next(self.loader))


def double(batch: Any) -> Any:
    return batch._changed("moves", lambda x, _: x.double() if x.is_floating_point() else x)


CASES = [f"{name}-{optim}" for name in RUNS for optim in ("adamw", "muon")]
SHARDED = ["gpt-muon", "bert-adamw", "gpt-adamw", "llama-muon", "transformer-muon", "seq2seq-muon", "vit-adamw",
           "series-muon"]  # fmt: skip


BY_THREE = [case for number, case in enumerate(CASES) if number % 4 in (0, 3)]  # the optimisers by turns


def train_cases(folder: Path, cases: list[str] = CASES, settings: tuple[str, ...] = ()) -> None:
    """Models with optimisers, in float64."""
    in_double()
    for case in cases:
        train(doubled(case, *settings), folder / case, quiet=True, world=join())


def in_double() -> None:
    """What the product rounds to 32 bits stays as it is."""
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    for objective in (next_token, translate):
        objective.chunked_cross_entropy_sum = plain_cross_entropy_sum  # the other one sums in 32 bits


def doubled(case: str, *settings: str) -> Parts:
    name, optim = case.split("-")
    parts = PARTS[name]
    accumulate = 6 if case == "gpt-muon" else 1  # whole micro-batches for 2 and for 3 ranks
    run = override(parts.run, [f"optim.name={optim}", f"accumulate={accumulate}", *settings])
    parts.loader.restore(STARTS[name])
    return dataclasses.replace(parts, run=run, model=copy.deepcopy(parts.model).double(), loader=Double(parts.loader))


PARTS: dict[str, Parts] = {}  # assembled once, for every fork
STARTS: dict[str, dict[str, int]] = {}  # of their loaders


def assemble_all() -> None:
    """Adam divides gradients by their size, so that near zero their rounding would be all there is: not with this
    `eps`."""
    for name in RUNS:
        parts = parts_of(name, "optim.weight_decay=0.01", "optim.eps=1e-4")
        valid = [double(batch) for batch in parts.valid_batches()]
        PARTS[name] = dataclasses.replace(parts, valid_batches=partial(list, valid), metric=None)
        STARTS[name] = parts.loader.state()
