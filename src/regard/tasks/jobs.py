"""Runs and their folders: one, or several that plan.json lists and that are resumed together."""

import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from regard.checkpoint import write_atomic
from regard.config import inside
from regard.errors import CheckpointError, ConfigError
from regard.explain.curves import outcome, read_metrics
from regard.jsonfile import expect, group, parse, read_json_if_any
from regard.run_folder import OF_SEVERAL, check_free, new_run
from regard.tasks import extend_run, train_run
from regard.tasks.plan import read_run, run_from_dict
from regard.ticks import Console
from regard.training.parallel import join
from regard.training.run import Run, launch_id
from regard.words import SURROGATES, check_text

RUNS = Path("runs")
PLAN, _, SEARCH = OF_SEVERAL
Job = tuple[str, Path, Run]  # a label for the table, its folder, the run


def write_plan(folder: Path, jobs: Sequence[Job], force: bool) -> None:
    """Write plan.json for several runs; `force` replaces an existing plan."""
    new_run(folder, force, OF_SEVERAL)
    save_plan(folder, jobs)


def save_plan(folder: Path, jobs: Sequence[Job]) -> None:
    plan = [{"label": label, "folder": place.name, "run": run.to_dict()} for label, place, run in jobs]
    write_atomic(folder / PLAN, (json.dumps(plan, indent=2) + "\n").encode())


def read_plan(folder: Path) -> list[Job]:
    """The jobs that `write_plan` wrote. A run that is not in its own folder directly below `folder` is refused."""
    path = folder / PLAN
    try:
        plan = expect(parse(path.read_bytes()), list)
        if not plan:
            raise ValueError("expected a list of runs")
        jobs = [(str(job["label"]), str(job["folder"]), run_from_dict(job["run"])) for job in plan]
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, ConfigError) as e:
        why = f"there is no {e}" if isinstance(e, KeyError) else e
        raise CheckpointError(f"{path}: cannot be read ({why}); resume its runs one by one") from None
    for _, name, _ in jobs:
        if len(PurePath(name).parts) != 1:
            raise CheckpointError(f"{path}: {name!r} is not a folder in {folder}; resume its runs one by one")
    return [(label, inside(folder, name, path), run) for label, name, run in jobs]


def runs_folder(name: str) -> Path:
    """Where the run `name` goes: runs/, unless its name has a slash."""
    return Path(name).parent if "/" in name else RUNS


def pick_folder(
    name: str, what: str, data: str | Path, labels: list[str], force: bool, device: str
) -> tuple[Path, bool]:
    """runs/NAME, which must be free unless forced; a generated name is numbered until it is. Rank 0 picks it. And
    whether to resume: a process that torchrun restarted continues its own run."""
    world, folder, resume = join(device), Path(), False
    with world.together():
        if world.main:
            begun: list[Path] = []
            if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)):
                taken = itertools.takewhile(Path.exists, candidates(name, what, data, labels))
                begun = [place for place in taken if begun_by_this_launch(place)]
            free = (p for p in candidates(name, what, data, labels) if name or force or not p.exists())
            folder, resume = (begun[0], True) if begun else (next(free), False)
            if name and not resume:
                check_free(folder, force)
    return world.broadcast((folder, resume))


def candidates(name: str, what: str, data: str | Path, labels: list[str]) -> Iterator[Path]:
    if name:
        check_text("--name", name)  # weights cannot be stored under other names
        yield Path(name) if "/" in name else RUNS / name
        return
    recipe = Path(what).stem if what.endswith(".py") else ""
    base = SURROGATES.sub("_", recipe or "-".join([Path(data).stem.lower() or what.lower(), *labels]))
    for number in itertools.count(1):
        yield RUNS / (base if number == 1 else f"{base}-{number}")


def begun_by_this_launch(folder: Path) -> bool:
    """Whether a run in the folder, or one of several, was started by this process's torchrun."""
    runs = [folder / "run.json", *folder.glob("*/run.json")]
    return any(group(read_json_if_any(run), "versions").get("launch") == launch_id() for run in runs)


def spread(runs: dict[str, Run], folder: Path, seeds: int) -> list[Job]:
    """A job for every architecture and seed; a single run is in the folder itself. Names that agree up to a slash, such
    as the folds of a cross-validation, share a label."""
    if len(runs) == 1 and seeds == 1:
        return [(label, folder, run) for label, run in runs.items()]
    return [
        (
            name.split("/")[0],
            folder / f"{name.replace('/', '-')}-seed{run.seed + k}",
            dataclasses.replace(run, seed=run.seed + k),
        )
        for k in range(seeds)
        for name, run in runs.items()
    ]


def train_all(
    jobs: list[Job],
    folder: Path,
    device: str,
    console: Console,
    *,
    resume: bool = False,
    force: bool = False,
    longer: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Train every job, or with `resume` those unfinished; `longer` extends all. On rank 0, returns label, folder, seed
    and outcome of each."""
    several, world = len(jobs) > 1, join(device)
    with world.together():
        if several and not resume and world.main:
            write_plan(folder, jobs, force)
    results = []
    for number, (label, place, run) in enumerate(jobs, 1):
        started = resume and (place / "run.json").is_file()
        result = outcome(read_metrics(place)) if started and (place / "metrics.jsonl").is_file() else None
        if result is not None and not longer:
            console.say(f"{place} is finished; for longer: regard train --resume {place} --minutes 5")
        else:
            if several:
                console.say(f"run {number} of {len(jobs)}: {place}")
            try:
                if longer:
                    extend_run(place, **longer, device=device, quiet=console.quiet)
                else:
                    train_run(run, place, device=device, resume=started, force=force, quiet=console.quiet)
            except SystemExit:
                if several:
                    console.say(f"or to resume all unfinished ones of {len(jobs)} runs: regard train --resume {folder}")
                raise
            if not world.main:
                continue
            result = outcome(read_metrics(place))
            assert result is not None, "a finished run records its result in its metrics"
        results.append({"label": label, "folder": str(place), "seed": run.seed, **result})
    return results


def resume_all(
    folder: Path, device: str, console: Console, longer: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Resume one run, or all unfinished runs of several or of a search; or extend them."""
    if (folder / SEARCH).is_file() and not longer:
        from regard.tasks.search import resume_search

        return resume_search(folder, device, console)
    jobs = read_plan(folder) if (folder / PLAN).is_file() else [(folder.name, folder, read_run(folder))]
    return train_all(jobs, folder, device, console, resume=True, longer=longer)
