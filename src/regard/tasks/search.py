"""Hyperparameter search: each trial is a run in its own folder, judged on the validation set alone.

Optuna's tree-structured Parzen estimator (Bergstra et al. 2011) proposes a trial from the scores of those before it.
The runs and their scores are in the trials' folders, so a search resumes where it stopped.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.checkpoint import write_atomic
from regard.config import override
from regard.errors import CheckpointError, ConfigError, MissingExtra
from regard.explain.curves import outcome, read_metrics
from regard.jsonfile import expect, parse
from regard.run_folder import OF_SEVERAL, new_run
from regard.tasks.jobs import PLAN, SEARCH, Job, read_plan, save_plan, train_all
from regard.tasks.plan import run_from_dict
from regard.ticks import Console
from regard.training.parallel import join
from regard.training.run import Run
from regard.training.select import score

DECAYS = (0.0, 0.01, 0.1)
RATES = 8  # how many times lower or higher than the preset a learning rate may be


def need_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingExtra("--search", "search") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def begin_search(
    run: Run, folder: Path, trials: int, device: str, console: Console, force: bool
) -> list[dict[str, Any]]:
    """Train `run` and `trials` - 1 variants of it in `folder`; returns label, folder, seed and outcome of each."""
    need_optuna()
    with join(device).together():
        if join(device).main:
            new_run(folder, force, OF_SEVERAL)
            settings = {"trials": trials, "run": run.to_dict()}
            write_atomic(folder / SEARCH, (json.dumps(settings, indent=2) + "\n").encode())
    return search(run, folder, trials, device, console)


def resume_search(folder: Path, device: str, console: Console) -> list[dict[str, Any]]:
    """Resume the interrupted trial, and run those after it."""
    path = folder / SEARCH
    try:
        settings = expect(parse(path.read_bytes()), dict)
        run, trials = run_from_dict(settings["run"]), int(settings["trials"])
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, ConfigError) as e:
        raise CheckpointError(f"{path}: cannot be read ({e}); resume its trials one by one") from None
    return search(run, folder, trials, device, console)


def search(run: Run, folder: Path, trials: int, device: str, console: Console) -> list[dict[str, Any]]:
    world, results = join(device), []
    jobs = read_plan(folder) if (folder / PLAN).is_file() else []
    for number in range(trials):
        if number == len(jobs):
            changes = world.broadcast(proposed(run, jobs, number) if world.main and number else {})
            words = [f"{name}={value}" for name, value in changes.items()]
            jobs.append((", ".join(words) or "preset", folder / f"trial-{number + 1:03}", override(run, words)))
            if world.main:
                save_plan(folder, jobs)
        console.say(f"trial {number + 1} of {trials}: {jobs[number][0]}")
        try:
            results += train_all([jobs[number]], folder, device, console, resume=True)
        except SystemExit:
            console.say(f"or to resume the whole search of {trials} trials: regard train --resume {folder}")
            raise
    return results


def proposed(run: Run, jobs: Sequence[Job], number: int) -> dict[str, float]:
    """The settings of the next trial; the same ones after an interruption."""
    optuna, space = need_optuna(), search_space(run)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=run.seed + number))
    for _, place, trained in jobs:
        params = {name: setting(trained, name) for name in space}
        metrics: Any = outcome(read_metrics(place))
        value = score(metrics["metrics"])
        if value > float("-inf"):  # otherwise it diverged
            study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=value))
    return {name: float(f"{value:.3g}") for name, value in study.ask(space).params.items()}


def search_space(run: Run) -> dict[str, Any]:
    """The search space: learning rates around the run's own, weight decay, and dropout if the model has it."""
    distributions = need_optuna().distributions
    rates = ("optim.lr", "optim.adam_lr") if run.optim.name == "muon" else ("optim.lr",)
    space = {
        name: distributions.FloatDistribution(setting(run, name) / RATES, setting(run, name) * RATES, log=True)
        for name in rates
    }
    space["optim.weight_decay"] = distributions.CategoricalDistribution(sorted({*DECAYS, run.optim.weight_decay}))
    if hasattr(run.model, "dropout"):
        space["model.dropout"] = distributions.FloatDistribution(0.0, max(0.5, run.model.dropout))
    return space


def setting(run: Run, name: str) -> float:
    group, _, field = name.partition(".")
    return getattr(getattr(run, group), field)
