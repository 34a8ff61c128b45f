"""Where the numbers of a run go besides its own log: TensorBoard if it is installed, and Weights & Biases or MLflow if
requested by `--track`. Both find their server, or stay offline, by their own settings: WANDB_MODE, MLFLOW_TRACKING_URI.
"""

import hashlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from regard.config import inside
from regard.errors import MissingExtra
from regard.run_folder import claim_written
from regard.training.settings import TRACKERS

PROJECT = "regard"
LONGEST = 500  # characters of a setting that MLflow accepts

Numbers = Mapping[str, float]


class Tracker(Protocol):
    def add(self, numbers: Numbers, step: int) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    def __init__(self, folder: Path, step: int):
        from torch.utils.tensorboard import SummaryWriter

        place = inside(folder, "tensorboard", folder)
        before = set(place.iterdir()) if place.is_dir() else set()
        self.board = SummaryWriter(str(place), purge_step=step + 1)
        claim_written(folder, (f"{place.name}/{path.name}" for path in set(place.iterdir()) - before))

    def add(self, numbers: Numbers, step: int) -> None:
        for name, value in numbers.items():
            self.board.add_scalar(name, value, step)

    def close(self) -> None:
        self.board.close()


class WandB:
    def __init__(self, folder: Path, settings: Mapping[str, Any]):
        import wandb

        self.run = wandb.init(
            project=PROJECT, name=folder.name, id=identity(folder), resume="allow", config=dict(settings)
        )

    def add(self, numbers: Numbers, step: int) -> None:
        self.run.log(dict(numbers), step=step)

    def close(self) -> None:
        self.run.finish()


class MLflow:
    def __init__(self, folder: Path, settings: Mapping[str, Any]):
        from mlflow import MlflowClient

        self.client = MlflowClient()
        experiment = self.client.get_experiment_by_name(PROJECT)
        experiment_id = experiment.experiment_id if experiment else self.client.create_experiment(PROJECT)
        tag = {"regard.run": identity(folder)}
        runs = self.client.search_runs([experiment_id], f"tags.`regard.run` = '{identity(folder)}'", max_results=1)
        run = runs[0] if runs else self.client.create_run(experiment_id, run_name=folder.name, tags=tag)
        self.id = run.info.run_id
        for name, value in {} if runs else settings.items():
            self.client.log_param(self.id, name, str(value)[:LONGEST])

    def add(self, numbers: Numbers, step: int) -> None:
        for name, value in numbers.items():
            self.client.log_metric(self.id, name, value, step=step)

    def close(self) -> None:
        self.client.set_terminated(self.id)


BY_NAME = dict(zip(TRACKERS, (WandB, MLflow), strict=True))


def check_tracker(name: str) -> None:
    """Refuse a tracker that is not installed, before anything is written."""
    if name and find_spec(name) is None:
        raise MissingExtra(f"--track {name}", "track")


def open_trackers(folder: Path, step: int, name: str, settings: Mapping[str, Any]) -> list[Tracker]:
    """TensorBoard if installed, and the tracker requested; a resumed run continues its own curves."""
    board = [TensorBoard(folder, step)] if find_spec("tensorboard") else []
    return [*board, *([BY_NAME[name](folder, flat(settings))] if name else [])]


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names, as `--set` takes them."""
    pairs: dict[str, Any] = {}
    for name, value in settings.items():
        pairs |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return pairs


def identity(folder: Path) -> str:
    """An id by which a resumed run is found again."""
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
