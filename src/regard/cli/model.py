"""`regard model`: what can be had, and having it."""

from typing import Annotated

import typer

from regard.cli.common import Command, Group, Json, argument, show
from regard.ticks import Console
from regard.words import table

NEXT = {"embed": 'regard similar {} "some words" --in sentences.txt', "transcribe": "regard transcribe {} clip.wav"}
FIELDS = ("name", "about", "size", "stored", "licence", "attribution", "here")

app = typer.Typer(
    cls=Group, help="Ready-made models: list them, get them.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list", cls=Command)
def list_(json: Json = False) -> None:
    """What can be had: name, size, licence, and whether it is here already.

    \b
    Examples:
      regard model list
      regard model list --json
    """
    from regard.data.catalog import MODELS_CATALOG

    models = list(MODELS_CATALOG.values())
    if json:
        show([{k: getattr(m, k) for k in FIELDS} for m in models])
        return
    print(
        table(
            [
                ("NAME", "DOWNLOAD", "ON DISK", "LICENCE", "HERE", "WHAT"),
                *((m.name, m.size, m.stored, m.licence, "yes" if m.here else "no", m.about) for m in models),
            ]
        )
    )


@app.command(cls=Command)
def get(
    ctx: typer.Context,
    name: Annotated[
        str,
        argument("NAME", "A name from `regard model list`, upper or lower case; or a GGUF file."),
    ],
    json: Json = False,
) -> None:
    """Fetch a model once, for use without a network.

    It becomes a Hugging Face folder in the cache ($REGARD_CACHE or ~/.cache/regard). Verbs that take a model take its
    name, and fetch it themselves; they also take the path of a Hugging Face folder or of a GGUF file.

    \b
    Examples:
      regard model get smollm2-135m
      regard next smollm2-135m "To date, the cleverest thinker of all time was" --top 13
      regard chat smollm2-135m
      regard model get minilm
      regard model get whisper-tiny
    """
    from regard.data.catalog import MODELS_CATALOG, find_model
    from regard.models.fetched import resolve

    flags: Console = ctx.obj
    folder = resolve(name, flags.say)
    if not folder.is_dir():
        find_model(name)  # which says that there is none
    model = MODELS_CATALOG.get(name.lower())
    model = model if model and model.folder == folder else None
    about = {"name": model.name, "licence": model.licence, "attribution": model.attribution} if model else {}
    if json:
        show({**about, "folder": str(folder), "files": sorted(p.name for p in folder.iterdir())})
        return
    print(folder)
    next_ = NEXT.get(model.task if model else "", "regard chat {}")
    flags.say("next: " + next_.format(model.name if model else name))
