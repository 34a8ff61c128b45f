"""Run: everything that decides what a training run computes. A recipe returns one; run.json keeps it."""

import json
import os
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from regard import checkpoint
from regard.config import MAX_SEED, at_least, fraction, to_dict, unknown
from regard.errors import ConfigError
from regard.models.registry import model_type
from regard.training.settings import TRACKERS, Optim, Parallel, Schedule

PRECISIONS = ("fp32", "bf16", "fp8")
AT_LEAST = dict(steps=0, minutes=0, epochs=0, tokens=1, batch=1, accumulate=1, consistency=0, lora=0, eval_every=0,
                sampled=0, save_every=0, log_every=1, patience=0, keep=1, seed=0)  # fmt: skip
AT_MOST = dict(seed=MAX_SEED, minutes=60 * 24 * 3653)  # ten years


@dataclass(frozen=True, kw_only=True)
class Run:
    """The settings of a run. `steps`, `minutes` or `epochs` set its length: with `minutes` the clock decides, and
    `steps` is 0 until the end; with `epochs` it is computed when the data is read."""

    task: str = "translate"
    model: Any  # the config of a model of `models.registry`
    data: Any  # the task's settings, a dataclass of data/settings.py
    start: str = ""  # the model folder whose weights training starts from; "": random ones
    lora: int = 0  # rank of the small matrices trained next to the frozen ones (Hu et al. 2021); 0: all is trained
    merge: bool = False  # whether LoRA's run folder holds the whole model, not only the adapter
    frozen: bool = False  # train only the head, on the frozen states of the model it starts from
    freeze: tuple[str, ...] = ()  # parameters that are not trained, as patterns of their names: stem.*, layers.0.*
    optim: Optim = field(default_factory=Optim)
    schedule: Schedule = field(default_factory=Schedule)
    steps: int = 0
    minutes: float = 0.0
    epochs: float = 0.0
    tokens: int = 4096  # padded tokens of the larger side of a micro-batch of text
    batch: int = 64  # samples of a micro-batch that is not text
    accumulate: int = 1  # micro-batches per step
    smoothing: float = 0.1
    sampled: int = 0  # words besides those of the batch in the softmax of a translator's step (Jean 2015); 0: all words
    consistency: float = 0.0  # weight of the disagreement of two passes with different dropout (Liang et al. 2021)
    teachers: tuple[str, ...] = ()  # models whose mean probabilities are learned, too (Hinton et al. 2015)
    taught: float = 0.5  # share of the loss that comes from them
    eval_every: int = 0  # 0: eight times in a run, with `minutes` fewer if that would take long
    save_every: int = 0  # 0: at each evaluation
    log_every: int = 20
    patience: int = 0  # evaluations without a better score before stopping; 0: never
    keep: int = 3  # best evaluations whose weights are kept, and averaged at the end
    average: bool = True
    keep_state: bool = False  # whether a finished run keeps its optimiser and the weights of its best evaluations
    track: str = ""  # also log to wandb or mlflow, which the extra `track` installs
    seed: int = 0
    precision: str = "fp32"
    compile: bool = False
    parallel: Parallel = field(default_factory=Parallel)

    def __post_init__(self):
        if self.steps == 0 and self.minutes == 0 and self.epochs == 0:
            raise ConfigError("how long? set steps, minutes or epochs: --steps 2000, or --minutes 4")
        at_least(self, **AT_LEAST)
        for name, most in AT_MOST.items():
            if getattr(self, name) > most:
                raise ConfigError(f"{name} is {getattr(self, name)}; must be at most {most}")
        fraction(self, "smoothing")
        if not 0 < self.taught <= 1:
            raise ConfigError(f"taught is {self.taught}; must be in (0, 1]")
        if self.frozen and (self.lora or not self.start):
            raise ConfigError("frozen needs a model to start from, and excludes LoRA: regard finetune MODEL --probe")
        if self.track and self.track not in TRACKERS:
            raise unknown("tracker", self.track, TRACKERS)
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        name = "context" if hasattr(self.data, "context") else "max_length"
        length = getattr(self.data, name, 0)
        room = getattr(self.model, name, 0) or length
        if length > room:
            fixed = f"a trained model keeps them, so at most {room}"
            way = fixed if self.start else f"add --set model.{name}={length}"
            raise ConfigError(f"data.{name} is {length}, but the model has {room} positions; {way}")

    def with_model(self, **settings: Any) -> "Run":
        """The run with these settings of its model changed."""
        return replace(self, model=replace(self.model, **settings))

    def to_dict(self) -> dict[str, Any]:
        return {"arch": model_type(self.model), **to_dict(self)}


def write_run(folder: str | Path, run: Run) -> None:
    """Write the resolved settings, and the id of the torchrun, to run.json."""
    versions = checkpoint.versions() | ({"launch": launch_id()} if launch_id() else {})
    settings = {"format_version": checkpoint.FORMAT_VERSION, "versions": versions, **run.to_dict()}
    checkpoint.write_atomic(Path(folder) / "run.json", (json.dumps(settings, indent=2) + "\n").encode())


def launch_id() -> str:
    """The id of the torchrun that started this process, the same after a restart; "" without one."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return f"{socket.gethostname()}-{os.getppid()}" if name == "none" else name
