"""`regard studio`, `look`: inside any model, in the browser or as a file."""

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer


def studio(
    runs: Annotated[Path, typer.Option(metavar="DIR", help="The folder of your runs.")] = Path("runs"),
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Open this one: a run, a folder or a name (regard model list).", show_default=False
        ),
    ] = "",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, show_default="the first free one from 7347 on")
    ] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open the browser too.")] = False,
) -> None:
    """Look inside your models, in the browser.

    Lists every run and every fetched model, newest first. It answers on this machine only, and loads nothing from
    elsewhere. Ctrl-C ends it.

    \b
    Examples:
      regard studio
      regard studio --model smollm2-135m --open
    """
    from regard.serve.run import serve
    from regard.serve.studio import Studio, shelf

    known, id = shelf(runs, model)

    def started(address: str) -> None:
        address += f"#model={quote(id, safe='/')}" if id else ""
        print(f"studio: {address}", flush=True)
        if open_:
            import webbrowser

            webbrowser.open(address)

    serve(Studio(known), port, started)
