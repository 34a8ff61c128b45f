"""`regard studio`, `look`: look inside any model, in the browser or in a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from regard.cli.common import Device, Run, argument, flag, option, pick_device
from regard.errors import ConfigError
from regard.output import check_output, open_text
from regard.ticks import Console


def studio(
    runs: Annotated[Path, option("DIR", "The folder of your runs.", default=True)] = Path("runs"),
    model: Annotated[str, option("NAME", "Open this one: a run, a folder or a name (regard model list).")] = "",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, show_default="the first free one from 7347 on")
    ] = 0,
    open_: Annotated[bool, flag("--open", "Also open the browser.")] = False,
) -> None:
    """Look inside your models, in the browser.

    Lists every run and every fetched model, newest first. It serves this machine only and loads nothing from
    elsewhere. Ctrl-C stops it.

    \b
    Examples:
      regard studio
      regard studio --model smollm2-135m --open
    """
    from regard.serve.built import make_page
    from regard.serve.run import serve
    from regard.serve.studio import Studio, shelf

    models, id = shelf(runs, model)
    make_page()

    def started(address: str) -> None:
        address += f"#model={quote(id, safe='/')}" if id else ""
        print(f"studio: {address}", flush=True)
        if open_:
            import webbrowser

            webbrowser.open(address)

    serve(Studio(models), port, started)


def look(
    ctx: typer.Context,
    run: Run,
    text: Annotated[str, argument("TEXT", "What the model reads: a text, the row of a table, or else a file.")],
    out: Annotated[Path, option("FILE", "The file: .html to explore, .png, .svg or .pdf.")],
    second: Annotated[str, option("TEXT", "The second text of a pair.", default=True)] = "",
    target: Annotated[str, option("TEXT", "For a translator: look at this translation.", default=True)] = "",
    layer: Annotated[int, option("N", "For a picture: the layer, from 1.", default="the sharpest", min=0)] = 0,
    head: Annotated[int, option("N", "For a picture: the head, from 1.", default="all", min=0)] = 0,
    device: Device = "auto",
) -> None:
    """Write what a model does with a text to a file, for slides and papers.

    An .html file is the studio with this one look in it: it opens anywhere, without a server.

    \b
    Examples:
      regard look runs/demo "The cat drank the milk because it was hungry." --out cat.html
      regard look smollm2-135m "The capital of France is" --out paris.png
      regard look minilm "The cat drank the milk because it was hungry." --layer 5 --head 3 --out it.png
    """
    from regard.explain.picture import KINDS, check_picture

    page = out.suffix.lower() == ".html"
    if not page and out.suffix.lower() not in KINDS:
        raise ConfigError(f"--out {out}: its name must end in .html, {', '.join(KINDS)}; try {out.stem or 'look'}.html")
    if page and (layer or head):
        raise ConfigError("--layer and --head are for pictures; an .html file has all of them")
    check_output(out) if page else check_picture(out)

    from regard.data.folders import user_path
    from regard.inside.figure import draw
    from regard.inside.look import look as look_at
    from regard.inside.looked import Question
    from regard.inside.pair import compare
    from regard.models.fetched import resolve
    from regard.tasks.load import load

    flags: Console = ctx.obj
    predictor = load(run, pick_device(device))
    reads_file = predictor.task.reads not in ("text", "tables")
    what: Any = {"file": user_path(text)} if reads_file else {"text": text}
    question = Question(**what, second=second, target=target)
    looked = look_at(predictor, question)
    compare(looked, question)
    if page:
        from regard.serve.built import make_page
        from regard.serve.saved import html

        make_page()
        whole = html(looked, resolve(run), question)
        with open_text(out) as file:
            file.write(whole)
    else:
        draw(looked, out, text if len(text) < 80 else text[:79] + "…", layer, head)
    for sentence in (*looked.notes, *looked.finding.values()):
        flags.say(sentence)
    print(out)


@contextmanager
def live(folder: Path, flags: Console) -> Iterator[None]:
    """Serve the studio with the curves of a run, or of the runs in a folder, during training."""
    from regard.serve.built import make_page
    from regard.serve.run import serve_in_thread
    from regard.serve.studio import Studio, shelf

    make_page()
    with serve_in_thread(Studio(shelf(folder.parent)[0])) as address:
        flags.say(f"studio: {address}#view=training&runs={quote(f'runs/{folder.name}')}")
        yield
