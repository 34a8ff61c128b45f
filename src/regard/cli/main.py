"""`regard`: the verbs, the global flags, and error messages with exit codes."""

import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from regard import __version__
from regard.cli import (
    answers,
    clean,
    data,
    evaluate,
    export,
    features,
    finetune,
    gradients,
    info,
    language,
    model,
    plan,
    serve,
    start,
    studio,
    tokens,
    train,
    translate,
)
from regard.cli.common import Command, Group, flags_first
from regard.cli.memory import memory_message
from regard.cli.processes import leave_others, mute_others
from regard.errors import RegardError
from regard.ticks import Console

EXAMPLES = """
\b
Start here:
  regard start reviews.csv        # what your data is good for, and the command to type
  regard data list
  regard train translate --data tatoeba-en-fr --name demo
  regard translate runs/demo "Where is the station?"

\b
Your own text, two files with one sentence a line:
  regard train translate --source train.en --target train.de --name mine
  regard translate runs/mine < new.en > new.de

\b
A language model, from one text or from published weights:
  regard train lm --data my.txt --name book
  regard generate runs/book "Once upon a time"
  regard next smollm2-135m "To date, the cleverest thinker of all time was"

Each verb has its own help: regard train --help
"""

# Plain help: rich's tables cost 0.1 s of imports, half of what help may take, and re-flow the examples.
app = typer.Typer(
    cls=Group,
    name="regard",
    help="Your data in, a trained Transformer out: train it, use it, score it, look inside." + "\n" + EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.add_typer(data.app, name="data")
app.add_typer(model.app, name="model")
app.add_typer(train.app, name="train")
app.add_typer(finetune.app, name="finetune")
for verb in (
    start.start,
    translate.translate,
    language.generate,
    language.next_,
    language.chat,
    language.summarise,
    answers.classify,
    answers.tag,
    answers.caption,
    answers.forecast,
    features.embed,
    features.similar,
    answers.fill,
    answers.transcribe,
    evaluate.predict,
    evaluate.evaluate,
    evaluate.compare,
    tokens.tokens,
    info.info,
    gradients.gradients,
    plan.plan,
    serve.serve,
    studio.studio,
    studio.look,
    export.export,
    clean.clean,
):
    app.command(verb.__name__.rstrip("_"), cls=Command)(verb)  # `next` is a Python builtin


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def everywhere(
    ctx: typer.Context,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress, only results. May stand anywhere on the line.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show where an error came from. May stand anywhere on the line.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    ctx.obj = Console(quiet=quiet)


def main(args: Sequence[str] | None = None) -> None:
    """Run one command line; every failure is one sentence on stderr and an exit code."""
    # torch's threads spin while they wait, which halves the speed of a busy machine; a short spin costs nothing
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # UTF-8 whatever the locale, so that pipes work. A file name that is not UTF-8 is printed unchanged, and escaped in
    # messages.
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
    mute_others()
    args = flags_first(sys.argv[1:] if args is None else args)
    if not args and sys.stdin.isatty() and sys.stdout.isatty():
        args = ["start"]
    verbose = "-v" in args[:2]
    try:
        app(args, prog_name="regard")
    except SystemExit as end:
        if not end.code:
            leave_others()
        raise
    except KeyboardInterrupt:  # while options are read; work that can be saved has its own way to stop
        sys.exit(130)
    except RegardError as e:
        _stop(str(e), e.exit_code, verbose)
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            _stop("the disk is full; nothing half-written was kept", 1, verbose)
        if e.filename is None:
            _stop(e.strerror or str(e), 1, verbose)
        _stop(f"{str(e.filename)[:80]}: {e.strerror}; check the name and its permissions", 2, verbose)
    except Exception as e:
        summary = f"{type(e).__name__}: {e}".splitlines()[0]
        if message := memory_message(e):
            _stop(message, 1, verbose)
        _stop(f"this should not happen: {summary}; the same command with -v shows where", 1, verbose)


def _stop(message: str, code: int, verbose: bool) -> NoReturn:
    if verbose:
        traceback.print_exc()
    print(f"regard: {message}", file=sys.stderr)
    sys.exit(code)
