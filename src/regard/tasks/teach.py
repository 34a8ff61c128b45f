"""What a run learns from besides its targets: teachers, and the agreement of two passes."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from torch import nn

from regard.errors import ConfigError
from regard.models.fetched import resolve
from regard.models.published import load_model
from regard.objectives.base import Objective
from regard.objectives.regularised import Regularised
from regard.tasks.base import Task
from regard.training.run import Run

READ = ("tokenizer.json", "preprocessor_config.json")  # how a model reads its inputs


def check_teachers(task: Task, run: Run) -> Run:
    """The run with its teachers as absolute paths; raises `ConfigError` if the task cannot learn from any."""
    if (run.consistency or run.teachers) and not scores_classes(task.objective(run)):
        name = "teachers" if run.teachers else "consistency"
        raise ConfigError(f"{name}: {task.name} does not choose among words or classes; leave the setting out")
    return dataclasses.replace(run, teachers=tuple(str(resolve(name).absolute()) for name in run.teachers))


def scores_classes(objective: Objective) -> bool:
    return type(objective).scored is not Objective.scored


def training_objective(task: Task, run: Run, data: Any = None, device: str = "cpu") -> Objective:
    """The loss; with `data`, also the teachers and the scores of the validation set."""
    own = task.objective(run, data)
    if not run.consistency and not run.teachers:
        return own
    teachers = [] if data is None else [load_teacher(Path(name), task, run, data).to(device) for name in run.teachers]
    return Regularised(own, run.consistency, teachers, run.taught)


def load_teacher(folder: Path, task: Task, run: Run, data: Any) -> nn.Module:
    """The model in `folder`, which must read the same inputs and choose among the same classes as the run's own."""
    teacher: Any = load_model(folder)
    for name in ("vocab", "labels"):
        if getattr(teacher.config, name, None) != getattr(run.model, name, None):
            raise ConfigError(f"the teacher {folder} has another {name} than this run; {same_way(name, folder)}")
    with tempfile.TemporaryDirectory() as draft:
        task.write_files(Path(draft), run, data)
        for name in READ:
            ours, theirs = (
                path.read_bytes() if path.is_file() else b"" for path in (Path(draft) / name, folder / name)
            )
            if ours != theirs:
                raise ConfigError(f"the teacher {folder} has another {name} than this run; {same_way(name, folder)}")
    return teacher


def same_way(name: str, folder: Path) -> str:
    """What to type for a teacher that differs in `name`."""
    if name in ("vocab", "tokenizer.json"):
        return f"to use its tokens, add --set data.tokenizer={folder}"
    return "train both on the same classes, read in the same way"
