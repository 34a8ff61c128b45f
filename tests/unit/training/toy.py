"""A toy model, task and loader with dropout, a tied table and a tail of odd batches: all a loop can stumble over.

`python -m tests.unit.training.toy FOLDER [key=value …]` trains it in a process of its own, which tests can kill.
"""

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import checkpoint
from regard.data.prepare import PairsConfig
from regard.models import TransformerConfig
from regard.objectives.base import Objective
from regard.training.loop import Result, train
from regard.training.parts import Parts
from regard.training.run import Run
from regard.training.settings import Optim, Schedule

VOCAB, WIDTH = 13, 8


@dataclass(frozen=True)
class Batch:
    x: Tensor  # B T
    y: Tensor  # B T

    def to(self, device) -> "Batch":
        return Batch(self.x.to(device), self.y.to(device))

    def split(self) -> list["Batch"]:
        half = len(self.x) // 2
        return [Batch(self.x[:half], self.y[:half]), Batch(self.x[half:], self.y[half:])] if half else [self]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(VOCAB, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(WIDTH, VOCAB)
        self.head.weight = self.token.weight  # tied

    def forward(self, x: Tensor) -> Tensor:
        h = self.token(x)
        return self.head(h + self.down(self.drop(torch.relu(self.up(h)))))


class Task(Objective):
    name = "toy"

    def count(self, batch: Batch) -> int:
        return batch.y.numel()

    def loss_sum(self, model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch.x).flatten(0, 1), batch.y.flatten(), reduction="sum")

    def held_out(self, model: nn.Module, batches) -> dict[str, float]:
        batches = list(batches)
        total = sum(self.loss_sum(model, b).item() for b in batches)
        return {"loss": total / sum(self.count(b) for b in batches)}


class Loader:
    """Endless batches of uneven size; x -> 5x + 2 is to be learned."""

    def __init__(self, seed: int = 0):
        self.seed, self.position = seed, 0

    def __next__(self) -> Batch:
        random = torch.Generator().manual_seed(1000 * self.seed + self.position)
        self.position += 1
        x = torch.randint(0, VOCAB, (2 + self.position % 3, 1 + self.position % 4), generator=random)
        return Batch(x, (5 * x + 2) % VOCAB)

    def state(self) -> dict[str, int]:
        return {"position": self.position}

    def restore(self, state: dict[str, int]) -> None:
        self.position = state["position"]


def valid_batches() -> list[Batch]:
    loader = Loader(seed=7)
    return [next(loader) for _ in range(3)]


def save_model(folder: Path, model: nn.Module) -> None:
    checkpoint.write_atomic(folder / "config.json", b"{}\n")
    checkpoint.save_state(folder / "model.safetensors", checkpoint.weights(model), {})


def toy_run(**settings) -> Run:
    optim = settings.pop("optim", Optim(lr=0.01, name=settings.pop("name", "adamw"), adam_lr=0.02))
    defaults = dict(
        model=TransformerConfig(vocab=VOCAB, width=WIDTH, heads=2),
        data=PairsConfig(),
        optim=optim,
        schedule=Schedule(kind="cosine", warmup=3),
        steps=24,
        eval_every=4,
        save_every=3,
        log_every=5,
        keep=3,
        accumulate=2,
    )
    return Run(**(defaults | settings))


def toy_train(folder: Path, run: Run | None = None, **settings) -> Result:
    """Train from a fresh model, as a new process would."""
    run = run or toy_run()
    torch.manual_seed(run.seed)
    how = {name: settings.pop(name) for name in ("resume", "force", "on_log", "extend") if name in settings}
    how["quiet"] = settings.pop("quiet", True)
    return train(toy_parts(run, **settings), folder, **how)


def toy_parts(run: Run, **settings) -> Parts:
    defaults = dict(
        model=Model(), objective=Task(), loader=Loader(), valid_batches=valid_batches, save_model=save_model
    )
    return Parts(run=run, **(defaults | settings))


def outcome(folder: Path) -> dict:
    """All that must be equal, bit for bit, however often a run was stopped."""
    results: dict = {}
    for path in sorted([folder / "state.safetensors", folder / "model.safetensors", *folder.glob("checkpoints/*")]):
        tensors, meta = checkpoint.load_state(path)
        meta.get("progress", {}).pop("seconds", None)
        for name, tensor in tensors.items():
            results[f"{path.name}:{name}"] = (
                tensor.contiguous().view(torch.uint8).tolist() if tensor.ndim else tensor.item()
            )
        results[path.name] = json.dumps(meta)
    for i, line in enumerate((folder / "metrics.jsonl").read_text().splitlines()):
        event = json.loads(line)
        results[f"metrics:{i}"] = {k: v for k, v in event.items() if k not in ("seconds", "targets_per_second")}
    results["files"] = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if "tensorboard" not in p.parts)
    return results


def kill_at(call: int) -> None:
    """This process dies by SIGKILL just before its `call`-th write, fsync or rename."""
    done = 0

    def dying(real):
        def wrapped(*args, **kwargs):
            nonlocal done
            done += 1
            if done == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return wrapped

    os.write, os.fsync, os.replace = dying(os.write), dying(os.fsync), dying(os.replace)


def main() -> None:
    folder, settings = Path(sys.argv[1]), dict(pair.split("=") for pair in sys.argv[2:])
    torch.set_num_threads(1)
    if "kill_at" in settings:
        kill_at(int(settings["kill_at"]))
    pause = float(settings.get("pause", 0))

    class Slow(Loader):
        def __next__(self) -> Batch:
            time.sleep(pause)
            return super().__next__()

    print("ready", flush=True)
    toy_train(
        folder,
        toy_run(name=settings.get("name", "adamw")),
        loader=Slow(),
        resume="resume" in settings,
        quiet="quiet" in settings,
    )


if __name__ == "__main__":
    main()
