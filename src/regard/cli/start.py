"""`regard start`: what to do with a file or folder."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.common import Json, argument, show
from regard.errors import DataError


def start(
    ctx: typer.Context,
    path: Annotated[Path | None, argument("FILE|FOLDER", "What you have: a table, a text, a folder of files.")] = None,
    json: Json = False,
) -> None:
    """Look at a file or folder, list the tasks that fit with the commands to type, and run one if you agree.

    Nothing is run unless somebody at a terminal chooses it.

    \b
    Examples:
      regard start reviews.csv
      regard start photos/
    """
    from regard.data.contents import look
    from regard.data.folders import user_path
    from regard.tasks.registry import TASKS

    terminal = sys.stdin.isatty() and not json
    if path is None:
        typed = input("a file or folder to learn from (Enter for help): ").strip() if terminal else ""
        if not typed:
            print(ctx.find_root().get_help())
            return
        path = Path(typed)
    contents = look(user_path(path), ctx.obj.say)
    fits = {name: fit for name, task in TASKS.items() if (fit := task.fits(contents)) is not None}
    if not fits:
        columns = ", ".join(f"{column.name} ({column.holds})" for column in contents.columns)
        what = f"columns: {columns}" if columns else f"files: {', '.join(contents.endings) or 'none'}"
        raise DataError(f"no task fits {path} ({what}); see what each task takes: regard train --help")
    if json:
        show([{"task": name, "reason": fit.reason, "commands": fit.commands} for name, fit in fits.items()])
        return
    for number, (name, fit) in enumerate(fits.items(), 1):
        print(f"{number}  {name}: {fit.reason}", *(f"     {command}" for command in fit.commands), sep="\n")
    if terminal:
        run_chosen(ctx, [fit.commands[0] for fit in fits.values()])


def run_chosen(ctx: typer.Context, commands: list[str]) -> None:
    """Ask which command to run, if any."""
    typed = input(f"run the first command of which one? 1 to {len(commands)}, Enter for none: ").strip()
    if not typed:
        return
    if not typed.isdecimal() or not 1 <= int(typed) <= len(commands):
        raise DataError(f"{typed} is not in the list; type one of its numbers")
    command = commands[int(typed) - 1]
    ctx.obj.say(command)
    ctx.find_root().command.main(shlex.split(command)[1:], prog_name="regard", standalone_mode=False)
