"""Runs: from defaults, from a recipe, and from the run.json they are stored in."""

import dataclasses
import runpy
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard import checkpoint
from regard.config import from_dict, no_run, override, unknown
from regard.data.catalog import is_known
from regard.data.folders import user_path
from regard.data.hub import data_file
from regard.data.mixture import mixture
from regard.data.settings import BEFORE
from regard.errors import CheckpointError, ConfigError, RegardError
from regard.jsonfile import read_json
from regard.models.published import read_config
from regard.models.registry import MODELS, model_type
from regard.tasks.base import Task
from regard.tasks.registry import TASKS, get
from regard.training.run import Run


def default_run(task: str = "translate", arch: str = "", size: str = "", data: Any = None, device: str = "cpu") -> Run:
    """A good run for this device; an empty `arch`, `size` or `data.vocab` takes the preset's."""
    entry = get(task)
    data = entry.settings() if data is None else data
    return entry.default_run(arch.lower() or entry.arch, size, data, device.split(":")[0])


def finetune_run(start: Path, task: str, data: Any, device: str = "cpu", lora: int = 0) -> Run:
    """A good run that starts from the model in the folder `start`, with its tokenizer."""
    entry = get(task)
    if not entry.can_finetune:
        able = [name for name, other in TASKS.items() if other.can_finetune]
        raise ConfigError(f"{task} has no fine-tuning; these tasks do: {', '.join(able)}")
    check_start(start, entry)
    return entry.finetune_run(start, split_as(start, data), device.split(":")[0], lora)


def check_start(start: Path, task: Task) -> None:
    """Raise `ConfigError`, with what would work, for a model that cannot be fine-tuned to this task."""
    model = model_type(read_config(start))
    if model in task.starts:
        return
    able = [name for name, other in TASKS.items() if other.can_finetune and model in other.starts]
    ways = f"it can be fine-tuned to: {', '.join(able)}" if able else f"models that can: {', '.join(task.starts)}"
    raise ConfigError(f"{start} is of the type {model}, which cannot be fine-tuned to {task.name}; {ways}")


def split_as(start: Path, data: Any) -> Any:
    """`data` split by the rule of the run that is fine-tuned, so that its training data stays out of validation."""
    if not hasattr(data, "split_rule") or not (start / "run.json").is_file():
        return data
    return dataclasses.replace(data, split_rule=getattr(read_run(start).data, "split_rule", data.split_rule))


def resolve_config(run: Run) -> Run:
    """The run with the model settings implied by its data settings: vocabulary, image size."""
    if run.start:
        return run
    return run.with_model(**get(run.task).settings_from_data(run))


def config_for(arch: str, size: str, vocab: int = 0, task: str = "translate", **settings: Any) -> Any:
    """The config of a named architecture in a named size, for a task. Names ignore case; a `vocab` of 0: none."""
    return get(task).config(arch, size, **({"vocab": vocab} if vocab else {}), **settings)


def check_run(run: Run) -> None:
    """Raise `ConfigError` for an unknown task, or for the data settings of another task."""
    task = get(run.task)
    if not isinstance(run.data, task.settings):
        raise ConfigError(f"the task {run.task} takes {task.settings.__name__} as data, got {type(run.data).__name__}")


def run_from_dict(values: dict[str, Any]) -> Run:
    """The inverse of `Run.to_dict`."""
    values = dict(values)
    arch = values.pop("arch", "")
    if arch not in MODELS:
        raise unknown("architecture", str(arch), MODELS)
    if isinstance(values.get("model"), dict):
        values["model"] = from_dict(MODELS[arch][0], values["model"], "model.")
    if isinstance(values.get("data"), dict):
        settings: Any = get(str(values.get("task"))).settings
        before = {name: value for name, value in BEFORE.items() if hasattr(settings, name)}
        values["data"] = from_dict(settings, before | values["data"], "data.")
    run = from_dict(Run, values)
    check_run(run)
    return run


def read_run(folder: str | Path) -> Run:
    path = Path(folder) / "run.json"
    if not path.is_file():
        if (path.parent / "config.json").is_file():
            raise CheckpointError(f"{folder} is a model but not a run: it has no run.json, so it cannot be resumed")
        raise no_run(path.parent)
    try:
        settings = read_json(path)
        checkpoint.check_format(path, settings)
        return run_from_dict({k: v for k, v in settings.items() if k not in ("format_version", "versions")})
    except (ValueError, AttributeError, TypeError, KeyError, ArithmeticError, ConfigError) as e:
        raise CheckpointError(f"{path}: cannot be read ({e})") from None


def load_recipe(path: str | Path) -> dict[str, Run]:
    """What `recipe()` of a Python file returns: a run, or several by name. Executes the file: it must be trusted."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"{path}: no such recipe; a recipe is a Python file with a function recipe() -> Run")
    if path.suffix != ".py":
        raise ConfigError(f"{path}: not a Python file; a recipe's name ends in .py")
    try:
        make = runpy.run_path(str(path), run_name=f"recipe_{path.stem}").get("recipe")  # unlike import, no __pycache__
        if not callable(make):
            raise ConfigError("it has no function recipe(), which should return regard.Run(...)")
        run = make()
    except RegardError as e:
        raise type(e)(f"{path}: {e}") if type(e) is ConfigError else e from None
    except Exception as e:
        raise ConfigError(f"{path}{_line(e, path)}: {type(e).__name__}: {e}") from e
    runs = run if isinstance(run, dict) else {path.stem: run}
    for run in runs.values():
        if not isinstance(run, Run):
            raise ConfigError(f"{path}: recipe() returned {type(run).__name__}; it should return regard.Run(...)")
        check_run(run)
    return runs


def _line(error: Exception, path: Path) -> str:
    """The line of the recipe where an error occurred."""
    if isinstance(error, SyntaxError):
        return f" line {error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == path.name]
    return f" line {lines[-1]}" if lines else ""


def data_settings(task: Task, data: str, options: Mapping[str, str]) -> Any:
    """The data settings of a task from `--data` and its options."""
    own = task.data_options
    if wrong := [f"--{name.replace('_', '-')}" for name, value in options.items() if value and name not in own]:
        raise ConfigError(f"{', '.join(wrong)}: not for the task {task.name}; see: regard train {task.name} --help")
    values: dict[str, Any] = {name: options[name] for name in own if options.get(name)}
    if "source" in task.options:
        if data and values:
            raise ConfigError("--data is a complete data set; leave out --source, --target and the --valid files")
        return from_dict(task.settings, {"name": data, "vocab": 0, **values})
    if data and not is_known(data):
        path = user_path(data_file(data))
        if not path.exists():
            raise ConfigError(f"--data {data}: no such file or folder, and no data set of that name (regard data list)")
        values["path"] = str(path)
    elif data:
        values["name"] = data.lower()
    if hasattr(task.settings, "vocab"):
        values["vocab"] = 0
    return from_dict(task.settings, values)


def adjusted(run: Run, *, minutes: float | None, steps: int, seed: int | None, settings: Sequence[str]) -> Run:
    """The run with another length or seed, then with `settings`, each a `name=value` as for `--set`."""
    if minutes == 0:
        raise ConfigError("--minutes 0: must be above 0, for example --minutes 0.5")
    if minutes and steps:
        raise ConfigError("--minutes or --steps, not both")
    if minutes or steps:
        schedule = run.schedule.fitted(steps) if steps else run.schedule
        run = dataclasses.replace(run, minutes=minutes or 0.0, steps=steps, epochs=0.0, schedule=schedule)
    if seed is not None:
        run = dataclasses.replace(run, seed=seed)
    both = ("data.", "model.context=", "model.max_length=")  # the rest of the model depends on these; checked together
    first = [setting for setting in settings if setting.startswith(both)]
    run = override(run, first)
    run = resolve_config(dataclasses.replace(run, data=absolute_paths(run.data)))
    return resolve_config(override(run, [setting for setting in settings if setting not in first]))


def absolute_paths(data: Any) -> Any:
    """The data settings with absolute paths."""
    names = [field.name for field in dataclasses.fields(data) if field.metadata.get("file")]
    where: Any = {name: str(user_path(data_file(value)).absolute()) for name in names if (value := getattr(data, name))}
    if mix := getattr(data, "mix", ""):
        where["mix"] = ",".join(f"{user_path(path).absolute()}:{weight:g}" for path, weight in mixture(mix).items())
    return dataclasses.replace(data, **where)
