"""`regard finetune`: a published or trained model goes on learning, from your data."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.common import SEED, Device, Json, pick_device, show
from regard.cli.dry_run import as_text, describe
from regard.cli.language import Model
from regard.cli.train import (
    DryRun,
    Force,
    LabelColumn,
    SecondColumn,
    Settings,
    Steps,
    TextColumn,
    adjusted,
    data_config,
    pick_folder,
    report,
    spread,
    train_all,
)
from regard.errors import ConfigError
from regard.ticks import Console


def finetune(
    ctx: typer.Context,
    model: Model,
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="lm, summarise, classify, pair, tag or series.", show_default=False)
    ],
    data: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Plain text, or JSONL: chat (messages), instruction (prompt, completion), or text and summary. "
            "For labels: a table or CoNLL.",
            rich_help_panel="Data",
            show_default=False,
        ),
    ] = "",
    valid: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Held-out data of the same kind.",
            rich_help_panel="Data",
            show_default="a tenth",
        ),
    ] = "",
    text: TextColumn = "",
    second: SecondColumn = "",
    label: LabelColumn = "",
    lora: Annotated[
        bool,
        typer.Option(
            "--lora",
            help="Train small matrices beside the frozen ones (Hu et al. 2021), merged when saved.",
            rich_help_panel="Run",
        ),
    ] = False,
    rank: Annotated[int, typer.Option(metavar="R", min=1, help="With --lora: their rank.", rich_help_panel="Run")] = 16,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="For labels: leave the encoder as it is and learn a linear map of its states.",
            rich_help_panel="Run",
        ),
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="M", min=0, help="Train that long.", rich_help_panel="Run", show_default="5, or for labels 3 epochs"
        ),
    ] = None,
    steps: Steps = 0,
    seed: Annotated[int | None, typer.Option(**SEED, help="The seed.", rich_help_panel="Run")] = None,
    set_: Settings = None,
    name: Annotated[
        str,
        typer.Option(
            "--name",  # some versions of typer would make --NAME of this metavar
            metavar="NAME",
            help="Train into runs/NAME, or NAME if it has a slash.",
            rich_help_panel="Run",
            show_default="made from model and task",
        ),
    ] = "",
    force: Force = False,
    dry_run: DryRun = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Fine-tune a language model on your text, dialogues or summaries, or an encoder on your labels.

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
    """
    from regard.models.fetched import resolve
    from regard.tasks.plan import finetune_run
    from regard.tasks.registry import get

    flags: Console = ctx.obj
    if not data:
        raise ConfigError(f"fine-tune on what? type: regard finetune {model} {task} --data FILE")
    known = get(task)  # a task that does not exist is reported before its data is read
    chosen = pick_device(device)
    config = data_config(task.lower(), data, dict(valid=valid, text=text, second=second, label=label))
    run = finetune_run(resolve(model, flags.say), task, config, chosen, lora=rank if lora else 0)
    if probe:
        if lora or not known.can_probe:
            raise ConfigError(
                f"--probe is for labels, and goes without --lora: regard finetune {model} classify --probe"
            )
        run = known.probe(run)
    run = adjusted(run, minutes=minutes, steps=steps, seed=seed, settings=set_ or [])
    label = task.lower()
    if dry_run:
        found = describe(label, run, chosen)
        show(found) if json else print(as_text(found))
        return
    folder = pick_folder(name, label, Path(model).stem, [label], force)
    if folder.resolve() == Path(run.start).resolve():
        raise ConfigError(f"{folder} is the model that is fine-tuned; choose another --name")
    report(train_all(spread({label: run}, folder, 1), folder, chosen, flags, force=force), json, flags)
