"""The command line as functions: `regard.train`, `finetune`, `resume`, `evaluate`, `look` and `compare`.

The command line calls these and prints what they return. `docs/python.md` has examples.
"""

import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data import memory
from regard.data.hub import data_file
from regard.errors import ConfigError
from regard.explain.picture import check_picture
from regard.models.fetched import resolve
from regard.tasks.base import Task
from regard.tasks.jobs import RUNS, pick_folder, resume_all, runs_folder, spread, train_all
from regard.tasks.load import load
from regard.tasks.plan import adjusted, data_settings, default_run, finetune_run, load_recipe
from regard.tasks.registry import get
from regard.tasks.use import Comparison, Options, Verdict, note, pick_device, with_overlap
from regard.ticks import Console
from regard.training.parallel import join
from regard.training.run import Run

if TYPE_CHECKING:
    from regard.inside.looked import Looked

TABLES = "tables"  # folder next to the runs: tables passed in memory, named by their content
TABLE = "a table in memory"  # what a score on one is recorded as being on
FILES = ("source", "target", "labels")  # options of `evaluate` and `compare` that name files


@dataclasses.dataclass(frozen=True)
class Trained:
    """The result of training: the folder, and for each run its label, folder, seed, steps, seconds and metrics."""

    folder: Path
    runs: list[dict[str, Any]]

    @property
    def best(self) -> dict[str, Any]:
        """The run with the best score on the validation set."""
        from regard.training.select import score

        return max(self.runs, key=lambda run: score(run["metrics"]))

    @property
    def metrics(self) -> dict[str, float]:
        """The validation metrics of the best run."""
        return self.best["metrics"]

    def load(self, device: str = "auto") -> Any:
        """The predictor of the best run, as `regard.load` returns it."""
        return load(self.best["folder"], device)


# -- training -----------------------------------------------------------------------------------------------------


def train(
    task: str,
    data: Any = "",
    *,
    start: str | Path = "",
    arch: str = "",
    size: str = "",
    lora: bool = False,
    rank: int = 16,
    probe: bool = False,
    minutes: float | None = None,
    steps: int = 0,
    seeds: int = 1,
    search: int = 0,
    seed: int | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    track: str = "",
    name: str = "",
    force: bool = False,
    device: str = "auto",
    quiet: bool = False,
    **options: Any,
) -> Trained:
    """Train a model, as `regard train TASK` does, or with `start` fine-tune one, as `regard finetune` does.

    `data` is the name of a data set, a file, a folder, or a table: pandas, polars, pyarrow, a dict of columns or a list
    of dicts. `options` are the task's options on the command line (`text`, `label`, `valid`, …); `settings` are all
    others by their dotted names, such as {"model.width": 256}. `search` trains that many variants of the settings;
    `track` also logs to wandb or mlflow.

    A table in memory is saved in `runs/tables/`, so that the run can be resumed and evaluated later.
    """
    chosen, console = pick_device(device), Console(quiet=quiet)
    planned = plan(
        task, data, start=start, arch=arch, size=size, lora=lora, rank=rank, probe=probe, minutes=minutes, steps=steps,
        seed=seed, settings=settings, track=track, device=chosen, tables=runs_folder(name) / TABLES, console=console,
        **options,
    )  # fmt: skip
    what = start or data
    try:
        return train_planned(
            planned, task, what if isinstance(what, str | Path) else "", name=name, seeds=seeds, search=search,
            force=force, device=chosen, console=console,
        )  # fmt: skip
    except SystemExit as stop:  # Ctrl-C, after the run was saved
        raise KeyboardInterrupt from stop


def finetune(model: str | Path, task: str, data: Any, **how: Any) -> Trained:
    """Fine-tune a published or trained model, as `regard finetune MODEL TASK` does; `how` as for `train`."""
    return train(task, data, start=model, **how)


def resume(
    folder: str | Path,
    *,
    minutes: float = 0,
    steps: int = 0,
    epochs: float = 0,
    device: str = "auto",
    quiet: bool = False,
) -> Trained:
    """Continue an interrupted run, or a folder of several, as `regard train --resume` does; `minutes`, `steps` or
    `epochs` extend a finished one."""
    longer = {name: value for name, value in dict(minutes=minutes, steps=steps, epochs=epochs).items() if value}
    if len(longer) > 1:
        raise ConfigError("use only one of --minutes, --steps and --epochs")
    return Trained(Path(folder), resume_all(Path(folder), pick_device(device), Console(quiet=quiet), longer))


def plan(
    task: str,
    data: Any = "",
    *,
    start: str | Path = "",
    arch: str = "",
    size: str = "",
    lora: bool = False,
    rank: int = 16,
    probe: bool = False,
    minutes: float | None = None,
    steps: int = 0,
    seed: int | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    track: str = "",
    device: str = "cpu",
    tables: Path = RUNS / TABLES,
    console: Console = Console(),  # noqa: B008 - frozen
    **options: Any,
) -> dict[str, Run]:
    """The runs that `train` would train, by label: one per architecture, or those of a recipe."""

    def runs() -> dict[str, Run]:
        if task.endswith(".py"):
            return load_recipe(task)
        if start:
            run = _finetuned(task, data, start, rank if lora else 0, probe, device, tables, console, options)
            return {task: get(task).within(run, minutes) if minutes else run}
        return _from_scratch(task, data, arch, size, device, tables, options)

    words = [f"{k}={_as_word(v)}" for k, v in settings.items()] if isinstance(settings, Mapping) else list(settings)
    words += [f"track={track}"] * bool(track)
    how: Any = dict(minutes=minutes, steps=steps, seed=seed, settings=words)
    planned = join(device).first(runs)  # one process of each machine fetches a model, or writes a table
    with join(device).together():
        return {label: adjusted(run, **how) for label, run in planned.items()}


def _from_scratch(
    name: str, data: Any, arch: str, size: str, device: str, tables: Path, options: dict[str, Any]
) -> dict[str, Run]:
    task = get(name).for_arch(arch.strip().lower())
    archs = list(dict.fromkeys(a.strip().lower() for a in (arch or task.arch).split(",") if a.strip()))
    if arch and not archs:
        raise ConfigError(f"--arch is empty; for example: --arch {task.arch},lstm")
    config = data_settings(task, *as_files(task, data, options, tables))
    return {a: default_run(task.name, a, size, config, device) for a in archs or [""]}


def _finetuned(
    name: str, data: Any, start: str | Path, lora: int, probe: bool, device: str, tables: Path, console: Console,
    options: dict[str, Any],
) -> Run:  # fmt: skip

    if isinstance(data, str) and not data and not options.get("source"):
        raise ConfigError(f"fine-tune on what? type: regard finetune {start} {name} --data FILE")
    task = get(name)
    config = data_settings(task, *as_files(task, data, options, tables))
    run = finetune_run(resolve(start, console.say), task.name, config, device, lora=lora)
    if not probe:
        return run
    if lora:
        raise ConfigError(f"--probe does not combine with --lora; type: regard finetune {start} {name} --probe")
    return task.probe(run)


def as_files(task: Task, data: Any, options: Mapping[str, Any], tables: Path) -> tuple[str, dict[str, str]]:
    """`data` and `options` as typed on the command line; tables in memory are written to the folder `tables`."""
    fields = dataclasses.fields(task.settings) if dataclasses.is_dataclass(task.settings) else ()
    files = {field.name for field in fields if field.metadata.get("file")} | set(FILES)

    def word(value: Any, may_be_table: bool = True) -> str:
        if may_be_table and memory.is_table(value):
            return str(memory.write(value, tables, task.table_ending, files=task.reads in ("images", "audio")))
        return _as_word(value)

    return word(data), {name: word(value, name in files) for name, value in options.items()}


def _as_word(value: Any) -> str:
    """A value as typed on the command line: lists joined by commas."""
    if value is None:
        return ""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def train_planned(
    runs: dict[str, Run],
    what: str,
    data: str | Path,
    *,
    name: str,
    seeds: int,
    search: int,
    force: bool,
    device: str,
    console: Console,
    on_folder: Callable[[Path], object] | None = None,
) -> Trained:
    """Train the runs of `plan` into a new folder; `on_folder` is called with it before they start."""
    if search and (seeds > 1 or len(runs) > 1):
        raise ConfigError("--search varies one run; leave out --seeds, and name one --arch")
    folder, resume = pick_folder(name, what, data, list(runs), force, device)
    for run in runs.values():
        if run.start and os.path.realpath(folder) == os.path.realpath(run.start):
            raise ConfigError(f"{folder} is the model being fine-tuned; choose another --name")
    if on_folder is not None:
        on_folder(folder)
    if resume:
        return Trained(folder, resume_all(folder, device, console))
    if search:
        from regard.tasks.search import begin_search

        (run,) = runs.values()
        return Trained(folder, begin_search(run, folder, search, device, console, force))
    return Trained(folder, train_all(spread(runs, folder, seeds), folder, device, console, force=force))


# -- scoring ------------------------------------------------------------------------------------------------------


def evaluate(model: Any, data: Any = "", *, device: str = "auto", quiet: bool = False, **options: Any) -> Verdict:
    """Score a model, as `regard evaluate` does: on `data`, a file or a table, else on its own test or validation set.

    `model` is what `regard.load` takes or returns; `options` are those of the command line. The score is also recorded
    in the run's scores.jsonl.
    """
    predictor, console = _opened(model, device), Console(quiet=quiet)
    task, folder = predictor.task, predictor.folder
    with _scored_on(task, data, options) as chosen:
        if task.scored:
            chosen.refuse_others("evaluate", task.name, task.evaluate_takes)
        if chosen.picture:
            check_picture(chosen.picture)
        verdict = with_overlap(task.evaluate(predictor, folder, chosen, console), task, predictor, folder)
        on = verdict.on if isinstance(data, str | Path) else TABLE
        verdict = dataclasses.replace(verdict, task=task.name, on=on, outputs=list(verdict.outputs))
    note(folder, verdict.noted())
    return verdict


def look(model: Any, text: str = "", *, device: str = "auto", **question: Any) -> "Looked":
    """Run a model once and keep what it computed, as `regard look` and the studio do.

    `look(model, "A text.").attention["self"].weights` are the weights of all layers and heads, L H T S. `question` are
    the fields of `regard.inside.looked.Question`: a second text, a given translation, a file for images and audio.
    """
    from regard.inside.look import look as watched
    from regard.inside.looked import Question

    return watched(_opened(model, device), Question(text=text, **question))


def compare(
    first: Any,
    second: Any,
    data: Any = "",
    *,
    samples: int = 1000,
    device: str = "auto",
    quiet: bool = False,
    **options: Any,
) -> Comparison:
    """Compare two models on the same examples, as `regard compare` does, with the p-value of each difference."""
    predictors, console = [_opened(model, device) for model in (first, second)], Console(quiet=quiet)
    task, other = (predictor.task for predictor in predictors)
    if not isinstance(other, type(task)) and not isinstance(task, type(other)):
        tasks = f"{task.name} and {other.name}"
        raise ConfigError(f"{first} and {second} do not do the same task ({tasks}); compare two models of one task")
    if not task.compare_takes:
        scores = f"regard evaluate {first} ; regard evaluate {second}"
        raise ConfigError(f"models for {task.name} are not compared example by example; read both scores: {scores}")
    with _scored_on(task, data, options) as chosen:
        chosen.refuse_others("compare", task.name, task.compare_takes)
        folder = predictors[0].folder
        sets = [task.compared_set(predictor, folder, chosen, console) for predictor in predictors]
        outcomes = [task.outcomes(p, test, chosen, console) for p, test in zip(predictors, sets, strict=True)]
        differences = task.differences(sets[0], outcomes, chosen, samples)
    on = sets[0].on if isinstance(data, str | Path) else TABLE
    return Comparison(on=on, examples=len(sets[0].targets), unit=task.unit, differences=differences)


def _opened(model: Any, device: str) -> Any:
    return load(model, device) if isinstance(model, str | Path) else model


@contextmanager
def _scored_on(task: Task, data: Any, options: Mapping[str, Any]) -> Iterator[Options]:
    """The options for scoring; tables in memory are written to files that last as long as the block."""
    with tempfile.TemporaryDirectory() as folder:
        words, files = as_files(task, data, {n: options[n] for n in FILES if n in options}, Path(folder))
        yield Options.of({**options, **files, "data": data_file(words)})
