"""`regard finetune`: train a published or trained model further, on your data."""

from typing import Any

import typer

from regard.cli import tasks
from regard.cli.common import flag, option
from regard.cli.language import Model
from regard.cli.processes import PROCESSES
from regard.cli.tasks import PANEL, TaskGroup, command, data_options, declare, take_data_options
from regard.cli.train import train_runs
from regard.errors import ConfigError

MATRICES = "Train small matrices next to the frozen ones (Hu et al. 2021), and save only these."
LORA = [
    declare("lora", bool, False, flag("--lora", MATRICES, **PANEL)),
    declare("rank", int, 16, option("R", "With --lora: their rank.", default=True, min=1, **PANEL)),
]
LINEAR = "Freeze the encoder and learn a linear map of its states."
PROBE = declare("probe", bool, False, flag("--probe", LINEAR, **PANEL))
RUN = [tasks.STEPS, tasks.SEARCH, tasks.FIRST_SEED, tasks.SETTINGS, tasks.NAME, tasks.FORCE, tasks.TRACK,
       tasks.DRY_RUN, PROCESSES, tasks.DEVICE, tasks.JSON]  # fmt: skip
HELP = """Fine-tune a model on your data: language models, encoders, ViTs, translators, captioners, Whisper's encoder.

Of dialogues, instructions and summaries only the answers are learned. The run folder is a complete model, which
transformers opens as it is; with --lora it holds an adapter for MODEL, in PEFT's format.

\b
Examples:
  regard finetune smollm2-135m lm --data my.jsonl --lora --name mine
  regard finetune smollm2-135m lm --data book.txt --minutes 10
  regard finetune smollm2-135m summarise --data pairs.jsonl --name s
  regard finetune minilm classify --data reviews.csv --text review --label sentiment --name sent
  regard finetune minilm classify --data reviews.csv --probe --name features
  regard finetune minilm tag --data train.conll --valid dev.conll --name ner
  regard finetune hf:facebook/dinov2-base image --data photos/ --name pets
  regard finetune minilm embed --data pairs.csv --text question --second answer --name faq
  regard finetune minilm tag --help            # what one task takes
"""


class FinetuneGroup(TaskGroup):
    """The tasks that a model can be fine-tuned to."""

    def names(self) -> list[str]:
        from regard.tasks.registry import TASKS

        return [name for name, task in TASKS.items() if task.can_finetune]

    def make(self, name: str) -> Any:
        from regard.tasks.registry import get

        task = get(name)

        def work(ctx: typer.Context, data: str, lora: bool, rank: int, probe: bool = False, **values: Any) -> None:
            own = take_data_options(task, values)
            how = dict(start=ctx.meta["model"], lora=lora, rank=rank, probe=probe, **own)
            train_runs(ctx, name, data, how, **values)

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
