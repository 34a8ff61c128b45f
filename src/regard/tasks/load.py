"""A trained model, ready for use: `load("runs/demo").translate(["Where is the station?"])`."""

from pathlib import Path
from typing import Any

from regard.checkpoint import check_format
from regard.config import no_run
from regard.errors import CheckpointError, ConfigError
from regard.jsonfile import read_json_if_any
from regard.malloc import keep_freed_memory
from regard.models.fetched import resolve
from regard.models.published import load_model
from regard.models.registry import model_type
from regard.nn.stored import check_weights, store_
from regard.tasks.base import Task
from regard.tasks.registry import TASKS
from regard.tasks.use import pick_device


def load(path: str | Path, device: str = "cpu", weights: str = "fp32", *, int8: bool = False) -> Any:
    """The predictor for a run or model folder, a GGUF file, or a name from `regard model list`; call it with inputs.

    `device` is cpu, cuda, cuda:N or auto. `weights` is how a CPU stores them: "fp32", "fp16" or "int8", which
    `int8=True` also chooses.
    """
    return open_model(path, pick_device(device), "int8" if int8 else weights)[1]


def open_model(path: str | Path, device: str = "cpu", weights: str = "fp32", verb: str = "") -> tuple[Task, Any]:
    """The task of a model, and its predictor; of several tasks, one that `regard VERB` uses."""
    check_weights(weights)
    if weights != "fp32" and device != "cpu":
        raise ConfigError(f"weights in {weights} are for CPUs, the device is {device}; type --device cpu")
    folder = resolve(path)
    if not (folder / "config.json").is_file():
        raise no_run(folder)
    about = read_about(folder)
    if device == "cpu":
        keep_freed_memory()
    model: Any = load_model(folder)
    task = task_of(model.config, about, folder, verb)
    if weights != "fp32":
        store_(model, weights)
    try:
        predictor = task.predictor(model, folder, about, device)
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as e:  # from settings of the wrong type
        what = f"its settings are not those of a model for {task.name}"
        raise CheckpointError(f"{folder}: {what} ({type(e).__name__}: {e})") from e
    predictor.task, predictor.folder = task, folder
    return task, predictor


def read_about(folder: Path) -> dict[str, Any]:
    """regard.json; empty for folders that regard did not write."""
    about = read_json_if_any(folder / "regard.json")
    if about:
        check_format(folder / "regard.json", about)
    return about


def task_of(config: Any, about: dict[str, Any], folder: Path, verb: str = "") -> Task:
    """The task the folder names, if its model can do it; otherwise the first that such a model does.

    With a `verb`, a task that it uses comes first.
    """
    named = TASKS.get(str(about.get("task")))
    able = [task for task in TASKS.values() if task.serves(config)]
    taught = named is not None and not named.can_finetune and model_type(config) in named.starts  # by another task
    if named is not None and (named in able or taught):
        able.insert(0, named)
    if able:
        return next((task for task in able if verb in task.verbs), able[0])
    raise CheckpointError(f"{folder}: no task uses a {type(config).__name__} as it is; fine-tune it first")
