"""Sub-commands made from the tasks: `regard train classify` has the options of classify and no others."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from regard.cli.common import SEED, Command, Device, Json, flag, option
from regard.config import unknown
from regard.errors import ConfigError

if TYPE_CHECKING:
    from regard.tasks.base import Task

SUITS = "depends on the device"
Declared = tuple[str, Any, Any]  # a parameter: its name, its annotated type, its default


PANEL: dict[str, Any] = dict(rich_help_panel="Run")


def declare(name: str, type: Any, default: Any, how: Any) -> Declared:
    return name, Annotated[type, how], default


# The options of every task, for `train` and `finetune`.
def minutes(usual: str) -> Declared:
    return declare("minutes", float | None, None, option("M", "Train that long.", default=usual, min=0, **PANEL))


STEPS = declare("steps", int, 0, option("N", "Train that many steps instead.", min=0, **PANEL))
SEEDS = declare("seeds", int, 1, option("N", "Train that many times, for a spread.", default=True, min=1, **PANEL))
VARY = "Train N times, with learning rate, weight decay and dropout proposed from the validation scores so far."
SEARCH = declare("search", int, 0, option("N", VARY, min=0, **PANEL))
FIRST_SEED = declare(
    "seed", int | None, None, typer.Option(**SEED, help="The (first) seed.", show_default="0, or the recipe's", **PANEL)
)
ANY = "Any setting, as name=value; --dry-run lists them."
SETTINGS = declare("set_", list[str] | None, None, option("NAME=VALUE", ANY, "--set", **PANEL))
INTO = "Train into runs/NAME, or NAME if it has a slash."  # some versions of typer would make --NAME of the metavar
NAME = declare("name", str, "", option("NAME", INTO, "--name", default="made from data and model", **PANEL))
REPLACE = "Replace the run that is there; files that regard did not write stay."
FORCE = declare("force", bool, False, flag("--force", REPLACE, **PANEL))
TRACKING = "Also log to wandb or mlflow; needs the extra track."
TRACK = declare("track", str, "", option("wandb|mlflow", TRACKING, **PANEL))
STUDIO = declare("studio", bool, False, flag("--studio", "Watch the curves in the browser.", **PANEL))
PLAN = "Show how the data is read, settings, parameters and memory; train and write nothing."
DRY_RUN = declare("dry_run", bool, False, flag("--dry-run", PLAN))
DEVICE: Declared = ("device", Device, "auto")
JSON: Declared = ("json", Json, False)


def data_options(task: "Task") -> list[Declared]:
    """`--data`, and an option for each setting that the task declares one for."""
    declared = [declare("data", str, "", option("NAME|FILE", task.data_help, rich_help_panel="Data"))]
    fields = {field.name: field for field in dataclasses.fields(task.settings)}
    for name in task.data_options:
        about, default = fields[name].metadata, fields[name].default
        if isinstance(default, bool):
            declared.append(declare(name, bool, default, flag(f"--{name}", about["help"], rich_help_panel="Data")))
            continue
        usual = str(default) if default not in ("", ()) else False
        how = option(about["metavar"], about["help"], default=about["shown"] or usual, rich_help_panel="Data")
        number = isinstance(default, int)
        declared.append(declare(name, int if number else str, 0 if number else "", how))
    return declared


def take_data_options(task: "Task", values: dict[str, Any]) -> dict[str, str]:
    """Take what was typed for `data_options` out of the `values` of a command; "" for what was not typed."""
    return {name: str(values.pop(name) or "") for name in task.data_options}


def model_options(task: "Task") -> list[Declared]:
    """`--arch` and `--size`, with this task's names."""
    from regard.models.sizes import SIZES

    sizes = dict.fromkeys(size for arch in task.archs.values() for size in SIZES[arch.model])
    several = " Several by comma." if len(task.archs) > 1 else ""
    archs, panel = f"{', '.join(task.archs)}.{several}", "Model"
    return [
        declare("arch", str, "", option("NAME", archs, default=task.arch, rich_help_panel=panel)),
        declare("size", str, "", option("NAME", f"{', '.join(sizes)}.", default=SUITS, rich_help_panel=panel)),
    ]


class TaskCommand(Command):
    """A sub-command whose errors distinguish options of other tasks from those that do not exist."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        from regard.tasks.registry import TASKS

        try:
            return super().parse_args(ctx, args)
        except Exception as e:  # typer bundles its own click, so its exceptions are recognised by their attributes
            option = getattr(e, "option_name", "")
            if any(option.removeprefix("--").replace("-", "_") in task.data_options for task in TASKS.values()):
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
    """A verb whose sub-commands are the tasks. They are built on demand, so that other help is instant."""

    def names(self) -> list[str]:
        raise NotImplementedError

    def make(self, name: str) -> Any:
        raise NotImplementedError

    def list_commands(self, ctx: Any) -> list[str]:
        return self.names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name.lower() not in self.names():
            raise unknown("task", cmd_name, self.names())
        return self.make(cmd_name.lower())

    def task_first(self, args: list[str], after: int = 0) -> list[str]:
        """The arguments with the task moved to where a sub-command stands: options may be typed before it."""
        names = self.names()
        for i, arg in enumerate(args):
            takes_value = i > 0 and args[i - 1].startswith("--") and "=" not in args[i - 1]
            if arg.lower() in names and not (takes_value and args[i - 1] not in FLAGS):
                rest = args[:i] + args[i + 1 :]
                return [*rest[:after], arg.lower(), *rest[after:]]
        return args


FLAGS = ("--force", "--studio", "--dry-run", "--json", "--lora", "--probe", "--strict")  # options without a value


def has_option(args: list[str], option: str) -> bool:
    return any(arg == option or arg.startswith(option + "=") for arg in args)
