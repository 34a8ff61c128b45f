"""Sub-commands made from the tasks: `regard train classify` offers what classify takes and nothing more."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from regard.cli.common import SEED, Command, Device, Json
from regard.errors import ConfigError

if TYPE_CHECKING:
    from regard.tasks.base import Task

Declared = tuple[str, Any, Any]  # a parameter: its name, its annotated type, its default


def run_option(*names: str, type: Any = str, **how: Any) -> Any:
    return Annotated[type, typer.Option(*names, rich_help_panel="Run", **how)]


# What every task has. Declared once, for `train` and `finetune`.
def minutes(usual: str) -> Declared:
    how = run_option(type=float | None, metavar="M", min=0, help="Train that long.", show_default=usual)
    return "minutes", how, None


STEPS: Declared = (
    "steps",
    run_option(type=int, metavar="N", min=0, help="Train that many steps instead.", show_default=False),
    0,
)
SEEDS: Declared = ("seeds", run_option(type=int, metavar="N", min=1, help="Train that many times, for a spread."), 1)
FIRST_SEED: Declared = (
    "seed",
    run_option(type=int | None, **SEED, help="The (first) seed.", show_default="0, or the recipe's"),
    None,
)
SETTINGS: Declared = (
    "set_",
    run_option(
        "--set",
        type=list[str] | None,
        metavar="NAME=VALUE",
        help="Any setting, as name=value; --dry-run lists them.",
        show_default=False,
    ),
    None,
)
NAME: Declared = (
    "name",
    run_option(
        "--name",  # some versions of typer would make --NAME of this metavar
        metavar="NAME",
        help="Train into runs/NAME, or NAME if it has a slash.",
        show_default="made from data and model",
    ),
    "",
)
FORCE: Declared = (
    "force",
    run_option("--force", type=bool, help="Replace the run that is there; files that regard did not write stay."),
    False,
)
STUDIO: Declared = ("studio", run_option("--studio", type=bool, help="Watch the curves in the browser."), False)
DRY_RUN: Declared = (
    "dry_run",
    Annotated[bool, typer.Option("--dry-run", help="Show settings, parameters and memory; train and write nothing.")],
    False,
)
DEVICE: Declared = ("device", Device, "auto")
JSON: Declared = ("json", Json, False)


def data_options(task: "Task") -> list[Declared]:
    """`--data`, and an option for each setting that the task declares one for."""
    panel: Any = dict(rich_help_panel="Data", show_default=False)
    declared: list[Declared] = [
        ("data", Annotated[str, typer.Option(metavar="NAME|FILE", help=task.data_help, **panel)], "")
    ]
    fields = {field.name: field for field in dataclasses.fields(task.settings)}
    for name in task.options:
        about, default = fields[name].metadata, fields[name].default
        usual = str(default) if default not in ("", ()) else False
        how = typer.Option(
            metavar=about["metavar"],
            help=about["help"],
            rich_help_panel="Data",
            show_default=about["shown"] or usual,
        )
        number = isinstance(default, int)
        declared.append((name, Annotated[int if number else str, how], 0 if number else ""))
    return declared


def model_options(task: "Task") -> list[Declared]:
    """`--arch` and `--size`, with the names this task knows."""
    from regard.models.sizes import SIZES

    sizes = dict.fromkeys(size for arch in task.archs.values() for size in SIZES[arch.model])
    several = " Several by comma." if len(task.archs) > 1 else ""
    return [
        (
            "arch",
            Annotated[
                str,
                typer.Option(
                    metavar="NAME",
                    help=f"{', '.join(task.archs)}.{several}",
                    rich_help_panel="Model",
                    show_default=task.arch,
                ),
            ],
            "",
        ),
        (
            "size",
            Annotated[
                str,
                typer.Option(
                    metavar="NAME",
                    help=f"{', '.join(sizes)}.",
                    rich_help_panel="Model",
                    show_default="what suits the device",
                ),
            ],
            "",
        ),
    ]


class TaskCommand(Command):
    """A sub-command that tells an option of another task from one that does not exist."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        from regard.tasks.registry import TASKS

        try:
            return super().parse_args(ctx, args)
        except Exception as e:  # typer carries a click of its own, so the class is told by what it knows
            option = getattr(e, "option_name", "")
            if any(option.removeprefix("--").replace("-", "_") in task.options for task in TASKS.values()):
                raise ConfigError(f"{option}: not for the task {self.name}; see: {ctx.command_path} --help") from None
            raise


def command(work: Callable[..., None], name: str, help: str, declared: list[Declared]) -> Any:
    """A command that calls `work` with the context and the values of the declared parameters."""

    def run(ctx: typer.Context, **values: Any) -> None:
        work(ctx, **values)

    kind = inspect.Parameter.KEYWORD_ONLY
    first = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    rest = [inspect.Parameter(n, kind, default=default, annotation=hint) for n, hint, default in declared]
    signature: Any = inspect.Signature([first, *rest])
    run.__signature__ = signature  # pyrefly: ignore
    run.__annotations__ = {"ctx": typer.Context} | {n: hint for n, hint, _ in declared}
    app = typer.Typer(rich_markup_mode=None, add_completion=False, context_settings={"max_content_width": 100})
    app.command(name, help=help, cls=TaskCommand)(run)
    return typer.main.get_command(app)


class TaskGroup(TyperGroup):
    """A verb whose sub-commands are the tasks. They are made when they are asked for, so that other help is instant."""

    def names(self) -> list[str]:
        raise NotImplementedError

    def make(self, name: str) -> Any:
        raise NotImplementedError

    def list_commands(self, ctx: Any) -> list[str]:
        return self.names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name.lower() not in self.names():
            from regard.config import unknown

            raise unknown("task", cmd_name, self.names())
        return self.make(cmd_name.lower())

    def task_first(self, args: list[str], after: int = 0) -> list[str]:
        """The arguments with the task where a sub-command stands: options may come before it, as they always could."""
        names = self.names()
        for i, arg in enumerate(args):
            takes_value = i > 0 and args[i - 1].startswith("--") and "=" not in args[i - 1]
            if arg.lower() in names and not (takes_value and args[i - 1] not in FLAGS):
                rest = args[:i] + args[i + 1 :]
                return [*rest[:after], arg.lower(), *rest[after:]]
        return args


FLAGS = ("--force", "--studio", "--dry-run", "--json", "--lora", "--probe")  # options without a value


def needs(args: list[str], option: str) -> bool:
    return any(arg == option or arg.startswith(option + "=") for arg in args)
