"""`regard clean`: remove what finished runs no longer need."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.common import Json, argument, flag, show
from regard.errors import ConfigError
from regard.ticks import Console
from regard.words import table

WHERE = "Runs, or folders of runs; runs/ if none is named."


def clean(
    ctx: typer.Context,
    folders: Annotated[list[Path] | None, argument("[RUN]...", WHERE)] = None,
    yes: Annotated[bool, flag("--yes", "Remove what is listed.")] = False,
    json: Json = False,
) -> None:
    """List what finished runs no longer need, and with --yes remove it.

    That is the optimiser's state and the weights of evaluations. The model stays, and the run can be extended with a
    new optimiser. Unfinished runs, and those trained with --set keep_state=true, are left alone.

    \b
    Examples:
      regard clean
      regard clean runs/demo --yes
    """
    from regard.checkpoint import locked
    from regard.training.progress import reduce_state, reducible

    if missing := [path for path in folders or () if not path.is_dir()]:
        raise ConfigError(f"{missing[0]}: no such folder; name a run, or a folder of runs")
    console: Console = ctx.obj
    sizes = {run: size for run in finished_runs(folders or [Path("runs")]) if (size := reducible(run))}
    if yes:
        for run in sizes:
            with locked(run):
                reduce_state(run)
    total = sum(sizes.values())
    if json:
        show({"removed": yes, "bytes": total, "runs": {str(run): size for run, size in sizes.items()}})
        return
    if not sizes:
        console.say("nothing to remove")
        return
    rows = [*((str(run), size) for run, size in sizes.items()), ("total", total)]
    print(table([(name, f"{size / 1e6:,.1f} MB") for name, size in rows], right=[1]))
    console.say("removed" if yes else "nothing was removed; to remove this, add --yes")


def finished_runs(folders: list[Path]) -> list[Path]:
    """The finished runs at or below these folders, except those that keep their state."""
    from regard.explain.curves import outcome, read_metrics
    from regard.jsonfile import read_json_if_any

    runs = sorted({file.parent for folder in folders for file in folder.rglob("run.json")})
    return [
        run
        for run in runs
        if (run / "metrics.jsonl").is_file()
        and outcome(read_metrics(run)) is not None
        and not read_json_if_any(run / "run.json").get("keep_state")
    ]
