"""What the verbs share: global flags, help in groups, common options, printing of results."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from regard.config import MAX_SEED
from regard.errors import ConfigError
from regard.output import STDOUT, is_stdout, open_text
from regard.tasks.use import Predictions, pick_device
from regard.ticks import Console
from regard.words import check_text

SPACES = dict.fromkeys(map(ord, "\t\n\r"), " ")  # what no cell of a TSV can hold
ANYWHERE = {"-q": "-q", "--quiet": "-q", "-v": "-v", "--verbose": "-v"}


def flags_first(args: Sequence[str]) -> list[str]:
    """`regard train … -q` means `regard -q train …`; what follows `--` is left alone."""
    args = list(args)
    end = args.index("--") if "--" in args else len(args)
    flags = sorted({ANYWHERE[a] for a in args[:end] if a in ANYWHERE})
    return flags + [a for a in args[:end] if a not in ANYWHERE] + args[end:]


OLDER = {"--int8": "--weights=int8"}
TYPED = ("TEXT", "PROMPT", "MESSAGE", "INPUT", "COLUMN")  # arguments that hold text, by their name in the help


class Command(TyperCommand):
    """A verb whose help lists its options under headings (`rich_help_panel`), without rich."""

    def invoke(self, ctx: Any) -> Any:
        for param in self.params:
            if param.metavar in TYPED:
                check_text(param.metavar, ctx.params.get(param.name))
        return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                usual = "Arguments" if param.param_type_name == "argument" else "Options"
                sections.setdefault(getattr(param, "rich_help_panel", None) or usual, []).append(record)
        for title in sorted(sections, key=lambda t: {"Arguments": 0, "Options": 2}.get(t, 1)):
            with formatter.section(title):
                formatter.write_dl(sections[title])


class Group(TyperGroup):
    """Verbs in the order of use: start, data, models and training first, then as they were added."""

    def list_commands(self, ctx: Any) -> list[str]:
        first = ("start", "data", "model", "train", "finetune")
        return sorted(self.commands, key=lambda name: first.index(name) if name in first else len(first))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["words"] = list(args)  # as typed, for processes that run the same command
        return super().parse_args(ctx, older_spellings(args))


def older_spellings(args: list[str]) -> list[str]:
    """Options as they were once called, by their names of today; what follows `--` is text."""
    end = args.index("--") if "--" in args else len(args)
    return [OLDER.get(arg, arg) for arg in args[:end]] + args[end:]


def option(metavar: str, help: str, *names: str, default: Any = False, **how: Any) -> Any:
    """An option that takes a value; `default` is what the help shows as its default, True the default itself."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=default, **how)


def flag(name: str, help: str, **how: Any) -> Any:
    return typer.Option(name, help=help, **how)


def argument(metavar: str, help: str, **how: Any) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False, **how)


Run = Annotated[str, argument("RUN", "A run folder, for example runs/demo.")]
Encoder = Annotated[str, argument("MODEL", "A BERT: a model folder, or a name (regard model list).")]
Device = Annotated[str, option("NAME", "auto, cpu, cuda or cuda:N.", default=True)]
WEIGHTS = (
    "How a CPU stores the weights. fp16 takes half the memory and is faster for one text at a time; results agree to "
    "about 3 digits (minilm's vectors: cosine 0.999999). int8, also spelt --int8, takes a quarter, is faster for "
    "batches, and less exact (cosine 0.995 at worst)."
)
Weights = Annotated[str, option("KIND", WEIGHTS, default=True)]
Json = Annotated[bool, flag("--json", "Print JSON for programs.")]
SEED: dict[str, Any] = dict(metavar="N", min=0, max=MAX_SEED)  # of an option; its help is the verb's own
Beam = Annotated[int, option("N", "Beams of the search; 1 is greedy.", default=True, min=1)]


def open_for(verb: str, run: str, device: str, weights: str = "fp32") -> tuple[Any, Any]:
    """The task and the predictor of a model; `ConfigError` if `regard VERB` is not for it, with the verb that is."""
    from regard.tasks.load import open_model
    from regard.tasks.registry import TASKS

    task, model = open_model(run, pick_device(device), weights, verb)
    if verb in task.verbs:
        return task, model
    use = f"regard {verb} is not for {run}, a model to {task.purpose}; type: regard {task.card.use.format(run)}"
    examples = [t.examples[0].split(" #")[0].rstrip() for t in TASKS.values() if verb in t.verbs and t.examples]
    raise ConfigError(use + (f"; or train one: {examples[0]}" if examples else ""))


def show(value: Any) -> None:
    """Print a result as JSON."""
    print(json.dumps(value, ensure_ascii=False, indent=None if isinstance(value, list) else 2))


def show_line(value: Any) -> None:
    """Print a result as one line of JSON."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def write_lines(lines: Iterable[str], out: Path | None, console: Console, unit: str = "lines", total: int = 0) -> None:
    """Write lines to `out`, or to stdout; `unit` and `total` are for the progress line."""
    path = out or Path(STDOUT)
    if is_stdout(path):
        sys.stdout.writelines(lines)
        return
    with open_text(path) as file, console.progress(unit, total):
        file.writelines(lines)
    console.say(f"wrote {path}")


def write_rows(predictions: Predictions, out: Path | None, json: bool, console: Console) -> None:
    """Write rows to `out`, or to stdout: as JSON, as the task's own lines, as TSV or as CSV."""
    ending = out.suffix.lower() if out else ""
    form: Callable[[dict[str, Any]], str]
    header = False
    if json or ending == ".jsonl":
        form = to_json_line
    elif predictions.line is not None:
        form = predictions.line
    else:
        form, header = (to_tsv if ending == ".tsv" else to_csv), True

    def lines() -> Iterator[str]:
        for number, row in enumerate(predictions.rows):
            if header and not number:
                yield form(dict(zip(row, row, strict=True))) + "\n"
            yield form(row) + "\n"

    write_lines(lines(), out, console, predictions.unit, predictions.total)


def to_json_line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False)


def to_tsv(row: dict[str, Any]) -> str:
    return "\t".join(str(cell).translate(SPACES) for cell in row.values())


def to_csv(row: dict[str, Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(row.values())
    return line.getvalue()


def visible(piece: str) -> str:
    """A piece of text with its spaces made visible."""
    return piece.replace(" ", "␣")
