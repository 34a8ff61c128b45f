"""Settings of the optimiser, the learning rate and the processes; importable without torch."""

from dataclasses import dataclass, replace

from regard.config import unknown
from regard.errors import ConfigError

ITERATIONS = (3, 4, 5)  # of Newton-Schulz, for which Muon has coefficients
NAMES = ("adamw", "adam", "muon")
TRACKERS = ("wandb", "mlflow")


@dataclass(frozen=True, kw_only=True)
class Optim:
    """The optimiser. With muon, `adam_lr` is for all but the hidden matrices; `momentum`, `iterations` and `block` are
    muon's."""

    name: str = "adamw"
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-9
    weight_decay: float = 0.0  # of matrices; vectors (biases, norms) are left alone
    clip: float = 1.0  # the largest gradient norm; 0: no limit
    layer_decay: float = 1.0  # the rate of a layer over that of the one above it: below 1 the lower ones change less
    unfreeze: float = 0.0  # fraction of the steps over which layers are unfrozen, from the head down; 0: all at once
    adam_lr: float = 2e-3
    momentum: float = 0.95
    iterations: int = 5  # of Newton-Schulz; 3 or 4 are cheaper and less exact
    block: int = 0  # rows orthogonalised together; 0: all of a matrix. Smaller is cheaper: 64 rows are one head

    def __post_init__(self):
        if self.name not in NAMES:
            raise unknown("optimiser", self.name, NAMES)
        for name in ("lr", "adam_lr", "eps"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"optim.{name} is {getattr(self, name)}; must be greater than 0")
        for name in ("weight_decay", "clip", "block"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"optim.{name} is {getattr(self, name)}; must be at least 0")
        if not 0 < self.layer_decay <= 1 or not 0 <= self.unfreeze <= 1:
            raise ConfigError(
                f"optim.layer_decay is {self.layer_decay} and optim.unfreeze {self.unfreeze}; must be in (0, 1], [0, 1]"
            )
        if self.name == "muon" and (self.layer_decay != 1 or self.unfreeze):
            raise ConfigError("optim.layer_decay and optim.unfreeze go with adamw or adam; add --set optim.name=adamw")
        if self.iterations not in ITERATIONS:
            raise ConfigError(f"optim.iterations is {self.iterations}; there are: {', '.join(map(str, ITERATIONS))}")
        if len(self.betas) != 2 or not all(0 <= b < 1 for b in (*self.betas, self.momentum)):
            raise ConfigError(
                f"optim.betas are {self.betas} and momentum {self.momentum}; expected two betas, and all in [0, 1)"
            )


LAYOUTS = ("", "ddp", "fsdp", "hsdp")


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """How several processes hold the model: `ddp` all of it in each; `fsdp` a shard in each; `hsdp` copies, each in
    `shard` shards. An empty kind is chosen by the memory of the device."""

    kind: str = ""
    shard: int = 0  # for hsdp: processes that share one copy; 0: those of one machine
    checkpoint: bool = False  # recompute each block for its gradients instead of keeping its activations

    def __post_init__(self):
        if self.kind not in LAYOUTS:
            raise unknown("layout", self.kind, LAYOUTS[1:])
        if self.shard and self.kind != "hsdp":
            raise ConfigError("parallel.shard is only for hsdp; add --set parallel.kind=hsdp, or leave it out")


WARMUP_SHARE = 0.1  # of the steps, at most, where their number follows from minutes, epochs or --steps
KINDS = ("noam", "inverse_sqrt", "cosine", "linear", "constant")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The learning rate: linear warm-up over `warmup` steps, then decay as `kind` says."""

    kind: str = "cosine"
    warmup: int = 200

    def __post_init__(self):
        if self.kind not in KINDS:
            raise unknown("schedule", self.kind, KINDS)
        least = 1 if self.kind in ("noam", "inverse_sqrt") else 0
        if self.warmup < least:
            raise ConfigError(f"schedule.warmup is {self.warmup}; {self.kind} needs at least {least}")

    def fitted(self, steps: int) -> "Schedule":
        """The schedule with a warm-up of at most a tenth of `steps`; noam's stays, since its peak depends on it."""
        if self.kind == "noam":
            return self
        return replace(self, warmup=min(self.warmup, max(1, int(WARMUP_SHARE * steps))))
