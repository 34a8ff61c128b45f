"""`regard finetune`: a published or trained model goes on learning, from your data."""

import os
from pathlib import Path
from typing import Any

import typer

from regard.cli import tasks
from regard.cli.common import flag, option, pick_device, show
from regard.cli.dry_run import as_text, describe
from regard.cli.jobs import adjusted, data_config, pick_folder, report, resume_folder, spread, train_all
from regard.cli.language import Model
from regard.cli.processes import PROCESSES, share_between
from regard.cli.tasks import PANEL, TaskGroup, command, data_options, declare, take_data_options
from regard.errors import ConfigError

MATRICES = "Train small matrices beside the frozen ones (Hu et al. 2021), merged when saved."
LORA = [
    declare("lora", bool, False, flag("--lora", MATRICES, **PANEL)),
    declare("rank", int, 16, option("R", "With --lora: their rank.", default=True, min=1, **PANEL)),
]
LINEAR = "Freeze the encoder and learn a linear map of its states."
PROBE = declare("probe", bool, False, flag("--probe", LINEAR, **PANEL))
RUN = [tasks.STEPS, tasks.FIRST_SEED, tasks.SETTINGS, tasks.NAME, tasks.FORCE, tasks.DRY_RUN,
       PROCESSES, tasks.DEVICE, tasks.JSON]  # fmt: skip
HELP = """Fine-tune a language model on your text, dialogues or summaries, or an encoder on your labels.

Of dialogues, instructions and summaries only the answers are learned. The run folder is a whole model again:
`regard generate`, `regard chat` and transformers open it as it is.

\b
Examples:
  regard finetune smollm2-135m lm --data my.jsonl --lora --name mine
  regard finetune smollm2-135m lm --data book.txt --minutes 10
  regard finetune smollm2-135m summarise --data pairs.jsonl --name s
  regard finetune minilm classify --data reviews.csv --text review --label sentiment --name sent
  regard finetune minilm classify --data reviews.csv --probe --name features
  regard finetune minilm tag --data train.conll --valid dev.conll --name ner
  regard finetune minilm tag --help            # what one task takes
"""


class FinetuneGroup(TaskGroup):
    """The tasks that a trained model can be fine-tuned to."""

    def names(self) -> list[str]:
        from regard.tasks.registry import TASKS

        return [name for name, task in TASKS.items() if task.can_finetune]

    def make(self, name: str) -> Any:
        from regard.tasks.registry import get

        task = get(name)

        def work(ctx: typer.Context, data: str, **values: Any) -> None:
            own = take_data_options(task, values)
            finetune_to(ctx, name, data, own, **values)

        summary = task.summary[0].upper() + task.summary[1:]
        text = f"{summary}.\n\n\b\nExamples:\n  regard finetune MODEL {name} --data FILE\n"
        length = tasks.minutes(task.finetune_length)
        declared = [*data_options(task), *LORA, *([PROBE] if task.can_probe else []), length, *RUN]
        return command(work, name, text, declared)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.task_first(args, after=1))


app = typer.Typer(
    cls=FinetuneGroup, help=HELP, rich_markup_mode=None, invoke_without_command=True, no_args_is_help=False
)


@app.callback()
def finetune(ctx: typer.Context, model: Model) -> None:
    if ctx.invoked_subcommand is None:
        raise ConfigError(f"fine-tune to what? for example: regard finetune {model} classify --data FILE")
    ctx.meta["model"] = model


def finetune_to(
    ctx: typer.Context,
    task: str,
    data: str,
    own: dict[str, str],
    *,
    lora: bool,
    rank: int,
    probe: bool = False,
    minutes: float | None,
    steps: int,
    seed: int | None,
    set_: list[str] | None,
    processes: int,
    device: str,
    json: bool,
    dry_run: bool,
    force: bool,
    name: str,
) -> None:
    from regard.models.fetched import resolve
    from regard.tasks.plan import finetune_run
    from regard.tasks.registry import get
    from regard.training.parallel import join

    model = ctx.meta["model"]
    if not data:
        raise ConfigError(f"fine-tune on what? type: regard finetune {model} {task} --data FILE")
    if not dry_run:
        share_between(processes, ctx)
    chosen = pick_device(device)

    def plan() -> Any:
        config = data_config(task, data, own)
        run = finetune_run(resolve(model, ctx.obj.say), task, config, chosen, lora=rank if lora else 0)
        if probe:
            if lora:
                raise ConfigError(f"--probe goes without --lora: regard finetune {model} {task} --probe")
            run = get(task).probe(run)
        return adjusted(run, minutes=minutes, steps=steps, seed=seed, settings=set_ or [])

    run = join(chosen).first(plan)  # one process of each machine fetches the model
    if dry_run:
        plan = describe(task, run, chosen)
        show(plan) if json else print(as_text(plan))
        return
    folder, resume = pick_folder(name, task, Path(model).stem, [task], force, chosen)
    if os.path.realpath(folder) == os.path.realpath(run.start):
        raise ConfigError(f"{folder} is the model that is fine-tuned; choose another --name")
    if resume:
        report(resume_folder(folder, chosen, ctx.obj), json, ctx.obj)
        return
    report(train_all(spread({task: run}, folder, 1), folder, chosen, ctx.obj, force=force), json, ctx.obj)
