"""Runs on the command line: their settings, their folder, their training, and the table of what came out."""

import dataclasses
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.common import SURROGATES, check_text, show
from regard.errors import ConfigError, MissingExtra
from regard.jsonfile import group, read_json_if_any
from regard.ticks import Console

if TYPE_CHECKING:
    from regard.tasks.jobs import Job
    from regard.training.run import Run


def data_config(name: str, data: str, own: dict[str, str]) -> Any:
    """What `--data` and the options beside it say, as the settings of the task."""
    from regard.config import from_dict
    from regard.data.catalog import is_known
    from regard.data.folders import user_path
    from regard.data.hub import data_file
    from regard.tasks.registry import get

    task = get(name)
    if wrong := [f"--{key.replace('_', '-')}" for key, value in own.items() if value and key not in task.data_options]:
        raise ConfigError(f"{', '.join(wrong)}: not for the task {name}; see: regard train {name} --help")
    values: dict[str, Any] = {key: own[key] for key in task.data_options if own.get(key)}
    if "source" in task.options:
        if data and values:
            raise ConfigError("--data names a whole data set; leave out --source, --target and the --valid files")
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


def adjusted(run: "Run", *, minutes: float | None, steps: int, seed: int | None, settings: list[str]) -> "Run":
    """The run with the flags of the command line applied, `--set` last."""
    from regard.config import override
    from regard.tasks.plan import resolve_config

    if minutes == 0:
        raise ConfigError("--minutes 0 is no time at all; type a number above it, as --minutes 0.5")
    if minutes and steps:
        raise ConfigError("--minutes or --steps, not both")
    if minutes or steps:
        schedule = run.schedule.fitted(steps) if steps else run.schedule
        run = dataclasses.replace(run, minutes=minutes or 0.0, steps=steps, epochs=0.0, schedule=schedule)
    if seed is not None:
        run = dataclasses.replace(run, seed=seed)
    first = [setting for setting in settings if setting.startswith("data.")]  # on which the model depends
    run = override(run, first)
    run = resolve_config(dataclasses.replace(run, data=anywhere(run.data)))
    return resolve_config(override(run, [setting for setting in settings if setting not in first]))


def anywhere(data: Any) -> Any:
    """The same files, whichever folder they are looked for from."""
    from regard.data.folders import user_path
    from regard.data.hub import data_file

    names = [field.name for field in dataclasses.fields(data) if field.metadata.get("file")]
    where: Any = {name: str(user_path(data_file(value)).absolute()) for name in names if (value := getattr(data, name))}
    return dataclasses.replace(data, **where)


def pick_folder(name: str, what: str, data: str, labels: list[str], force: bool, device: str) -> tuple[Path, bool]:
    """runs/NAME, which must be free unless forced; a name we made up is numbered until it is. Rank 0 picks it. And
    whether to resume what is there: a process that torchrun has restarted goes on with the run that it had begun."""
    from regard.run_folder import check_free
    from regard.training.parallel import join

    world, folder, resume = join(device), Path(), False
    with world.together():
        if world.main:
            begun: list[Path] = []
            if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)):
                there = itertools.takewhile(Path.exists, candidates(name, what, data, labels))
                begun = [place for place in there if begun_by_this_launch(place)]
            free = (p for p in candidates(name, what, data, labels) if name or force or not p.exists())
            folder, resume = (begun[0], True) if begun else (next(free), False)
            if name and not resume:
                check_free(folder, force)
    return world.broadcast((folder, resume))


def candidates(name: str, what: str, data: str, labels: list[str]) -> Iterator[Path]:
    if name:
        check_text("--name", name)  # weights are stored under no other
        yield Path(name) if "/" in name else Path("runs") / name
        return
    recipe = Path(what).stem if what.endswith(".py") else ""
    base = SURROGATES.sub("_", recipe or "-".join([Path(data).stem.lower() or what.lower(), *labels]))
    for number in itertools.count(1):
        yield Path("runs") / (base if number == 1 else f"{base}-{number}")


def begun_by_this_launch(folder: Path) -> bool:
    """Whether a run in the folder, or one of its several, was begun by the torchrun that started this process."""
    from regard.training.run import launch_id

    runs = [folder / "run.json", *folder.glob("*/run.json")]
    return any(group(read_json_if_any(run), "versions").get("launch") == launch_id() for run in runs)


def spread(runs: dict[str, "Run"], folder: Path, seeds: int) -> list["Job"]:
    """(label, folder, run) for every architecture and seed; a single run lives in the folder itself. Names that agree
    up to a slash, as the parts of a cross-validation, share a label."""
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
    jobs: list["Job"],
    folder: Path,
    device: str,
    flags: Console,
    *,
    resume: bool = False,
    force: bool = False,
    longer: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Train every job, or with `resume` what is left of them, and gather what came out. `longer` extends all."""
    from regard.explain.curves import outcome, read_metrics
    from regard.tasks import extend_run, train_run
    from regard.tasks.jobs import write_plan
    from regard.training.parallel import join

    several, world = len(jobs) > 1, join(device)
    with world.together():
        if several and not resume and world.main:
            write_plan(folder, jobs, force)
    results = []
    for number, (label, place, run) in enumerate(jobs, 1):
        started = resume and (place / "run.json").is_file()
        result = outcome(read_metrics(place)) if started and (place / "metrics.jsonl").is_file() else None
        if result is not None and not longer:
            flags.say(f"{place} is finished; for longer: regard train --resume {place} --minutes 5")
        else:
            if several:
                flags.say(f"run {number} of {len(jobs)}: {place}")
            try:
                if longer:
                    extend_run(place, **longer, device=device, quiet=flags.quiet)
                else:
                    train_run(run, place, device=device, resume=started, force=force, quiet=flags.quiet)
            except SystemExit:
                if several:
                    flags.say(f"and with all that is left of {len(jobs)} runs: regard train --resume {folder}")
                raise
            if not world.main:
                continue
            result = outcome(read_metrics(place))
            assert result is not None, "a run that ends well says so in its metrics"
        results.append({"label": label, "folder": str(place), "seed": run.seed, **result})
    return {"folder": str(folder), "runs": results}


def resume_folder(folder: Path, device: str, flags: Console, longer: dict[str, Any] | None = None) -> dict[str, Any]:
    """Go on with one run, or with all that is left of several; or extend them."""
    from regard.tasks.jobs import PLAN, read_plan
    from regard.tasks.plan import read_run

    if (folder / PLAN).is_file():
        return train_all(read_plan(folder), folder, device, flags, resume=True, longer=longer)
    return train_all([(folder.name, folder, read_run(folder))], folder, device, flags, resume=True, longer=longer)


def report(results: dict[str, Any], json: bool, flags: Console) -> None:
    """One table; for several runs also one picture."""
    from regard.explain.curves import draw, results_table
    from regard.tasks.registry import get
    from regard.training.select import score

    runs, folder = results["runs"], results["folder"]
    if not runs:  # rank 0 reports
        return
    groups: dict[str, list[Any]] = {}
    for run in runs:
        groups.setdefault(run["label"], []).append(run)
    if len(runs) > 1:
        try:
            curves = {label: [run["folder"] for run in group] for label, group in groups.items()}
            results["picture"] = str(draw(curves, Path(folder) / "curves.png"))
        except MissingExtra as e:
            flags.say(f"no picture: {e}")
    if json:
        show(results)
        return
    print(results_table({label: [run["metrics"] for run in group] for label, group in groups.items()}))
    best = max(runs, key=lambda run: score(run["metrics"]))["folder"]
    if "picture" in results:
        flags.say(f"curves: {results['picture']}")
    settings, about = (read_json_if_any(Path(best) / name) for name in ("run.json", "regard.json"))
    task = get(str(settings.get("task")))
    use = task.answering if about.get("template") and task.answering else task.card.use
    used = use.format(best)
    judged = f"\n  {task.how_to_score(best, group(settings, 'data'))}" if task.scored else ""
    flags.say(f"next:\n  regard {used}{judged}\n  regard info {best}")
