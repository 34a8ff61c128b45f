"""`regard train`: one run, or several architectures and seeds side by side."""

from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import typer

import regard
from regard.cli import tasks
from regard.cli.common import argument, option, pick_device, show
from regard.cli.dry_run import as_text, describe
from regard.cli.jobs import report
from regard.cli.processes import PROCESSES, first_process, share_between
from regard.cli.studio import live
from regard.cli.tasks import TaskGroup, command, data_options, declare, has_option, model_options, take_data_options
from regard.errors import ConfigError

RUN = [tasks.STEPS, tasks.SEEDS, tasks.SEARCH, tasks.FIRST_SEED, tasks.SETTINGS, tasks.NAME, tasks.FORCE,
       tasks.TRACK, tasks.STUDIO, tasks.DRY_RUN, PROCESSES, tasks.DEVICE, tasks.JSON]  # fmt: skip
RECIPE = declare("recipe", str, ..., argument("RECIPE.py", "A Python file with recipe() -> Run."))
RESUME = declare("resume", str, "", option("RUN", "Continue an interrupted run folder, or extend a finished one."))
LONGER = [
    declare("minutes", float, 0.0, option("M", "Extend a finished run by M minutes.", min=0)),
    declare("steps", int, 0, option("N", "Extend it by N steps.", min=0)),
    declare("epochs", float, 0.0, option("E", "Extend it by E passes over its data.", min=0)),
]
HELP = """Train a model on your data.

The run folder is the finished model: `regard translate`, `regard.load` and transformers open it as it is.

\b
Examples:
  regard train translate --data tatoeba-en-fr --name demo
  regard train lm --data my.txt --arch rnn,lstm,gpt --minutes 3
  regard train classify --data reviews.csv --text review --label sentiment
  regard train image --data photos/ --seeds 3
  regard train classify --help                 # what one task takes
  regard train recipes/multi30k_en_de.py --set model.width=256
  regard train --resume runs/demo
  regard train --resume runs/demo --minutes 10    # a finished run goes on

Ctrl-C saves and prints the command that resumes. Several architectures (--arch a,b) or seeds give a folder of runs,
one table (mean ± standard deviation over the seeds) and one picture.
"""


class TrainGroup(TaskGroup):
    """The tasks that are trained from scratch, a recipe, or a run to resume."""

    def names(self) -> list[str]:
        from regard.tasks.registry import TASKS

        return [name for name, task in TASKS.items() if task.archs or task.can_finetune]

    def list_commands(self, ctx: Any) -> list[str]:
        from regard.tasks.registry import TASKS

        return [name for name in self.names() if TASKS[name].archs]

    def make(self, name: str) -> Any:
        from regard.tasks.registry import get

        task = get(name)

        def work(ctx: typer.Context, data: str, arch: str, size: str, **values: Any) -> None:
            own = take_data_options(task, values)
            train_runs(ctx, name, data, dict(arch=arch, size=size, **own), **values)

        examples = "\n".join(f"  {line}" for line in task.examples)
        text = f"{task.summary[0].upper()}{task.summary[1:]}.\n\n\b\nExamples:\n{examples}\n"
        return command(
            work, name, text, [*data_options(task), *model_options(task), tasks.minutes(task.usual_length), *RUN]
        )

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name.endswith(".py"):
            return command(
                train_recipe, cmd_name, "Train the runs of a recipe.", [RECIPE, tasks.minutes("the recipe's"), *RUN]
            )
        if cmd_name == "--resume":
            declared = [RESUME, *LONGER, tasks.STUDIO, PROCESSES, tasks.DEVICE, tasks.JSON]
            return command(resume_run, cmd_name, "Continue a run, or extend a finished one.", declared)
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if has_option(args, "--resume"):
            run, others = resume_only(args)
            if others:
                way = f"regard train --resume {run}"
                raise ConfigError(
                    f"--resume continues a run as it was started; type: {way}, or for longer: {way} --minutes 5"
                )
            return super().parse_args(ctx, ["--", "--resume", *args])
        recipes = [i for i, arg in enumerate(args) if arg.endswith(".py") and not (i and args[i - 1].startswith("--"))]
        if recipes:
            i = recipes[0]
            return super().parse_args(ctx, [args[i], args[i], *args[:i], *args[i + 1 :]])
        return super().parse_args(ctx, self.task_first(args))


WITH_VALUE = ("--resume", "--device", "--processes", "--minutes", "--steps", "--epochs")


def resume_only(args: list[str]) -> tuple[str, list[str]]:
    """The run to resume, and the arguments that `--resume` does not take."""
    run, others, skip = "", [], False
    for i, arg in enumerate(args):
        if skip:
            skip = False
        elif arg in WITH_VALUE:
            skip, run = True, args[i + 1] if arg == "--resume" and i + 1 < len(args) else run
        elif arg.startswith("--resume="):
            run = arg.partition("=")[2]
        elif arg.partition("=")[0] not in (*WITH_VALUE, "--json", "--studio", "--help", "-h"):
            others.append(arg)
    return run, others


app = typer.Typer(cls=TrainGroup, help=HELP, rich_markup_mode=None, invoke_without_command=True, no_args_is_help=False)


@app.callback()
def train(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        from regard.tasks.registry import TASKS

        able = ", ".join(name for name, task in TASKS.items() if task.archs)
        ways = "regard train translate --data tatoeba-en-fr, or regard train lm --data my.txt"
        raise ConfigError(f"train what? there are: {able}; for example: {ways}")


def train_recipe(ctx: typer.Context, recipe: str, **values: Any) -> None:
    train_runs(ctx, recipe, "", {}, **values)


def train_runs(
    ctx: typer.Context,
    task: str,
    data: str,
    how: dict[str, Any],
    *,
    minutes: float | None,
    steps: int,
    seeds: int = 1,
    search: int,
    seed: int | None,
    set_: list[str] | None,
    track: str,
    name: str,
    force: bool,
    studio: bool = False,
    dry_run: bool,
    processes: int,
    device: str,
    json: bool,
) -> None:
    """Train the runs, or describe them if `dry_run`; `how` are the other arguments of `regard.train`."""
    from regard import api

    if not dry_run:
        share_between(processes, ctx)
    console, chosen = ctx.obj, pick_device(device)
    settings: Any = dict(minutes=minutes, steps=steps, seed=seed, settings=set_ or [], track=track, device=chosen)
    runs = api.plan(task, data, **settings, console=console, **how)
    if dry_run:
        plans = [describe(label, run, chosen) for label, run in runs.items()]
        several = plans if "start" not in how else plans[0]
        show(several) if json else print("\n\n".join(as_text(plan) for plan in plans))
        return
    named = how.get("start", data)
    where: Any = dict(name=name, seeds=seeds, search=search, force=force, device=chosen)
    with ExitStack() as open_studio:
        watch = lambda folder: open_studio.enter_context(live(folder, console))  # noqa: E731
        watched = watch if studio and first_process() else None
        trained = api.train_planned(runs, task, named, **where, console=console, on_folder=watched)
    report(trained, json, console)


def resume_run(
    ctx: typer.Context,
    resume: str,
    minutes: float,
    steps: int,
    epochs: float,
    studio: bool,
    processes: int,
    device: str,
    json: bool,
) -> None:
    share_between(processes, ctx)
    longer: Any = dict(minutes=minutes, steps=steps, epochs=epochs)
    with live(Path(resume), ctx.obj) if studio and first_process() else nullcontext():
        trained = regard.resume(resume, **longer, device=device, quiet=ctx.obj.quiet)
    report(trained, json, ctx.obj)
