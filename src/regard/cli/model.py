"""`regard model`: list, fetch and upload models."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.common import Command, Group, Json, argument, flag, show
from regard.ticks import Console
from regard.words import table

NEXT = {"embed": 'regard similar {} "some words" --in sentences.txt', "transcribe": "regard transcribe {} clip.wav"}
FIELDS = ("name", "about", "size", "stored", "licence", "attribution", "here")

app = typer.Typer(
    cls=Group,
    help="Ready-made models: list them, get them; upload your own.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list", cls=Command)
def list_(json: Json = False) -> None:
    """List the models with size and licence, and whether they are on this machine.

    \b
    Examples:
      regard model list
      regard model list --json
    """
    from regard.data.catalog import MODELS_CATALOG
    from regard.data.hub import fetched

    models = [{k: getattr(m, k) for k in FIELDS} for m in MODELS_CATALOG.values()]
    for m in fetched():
        size, about = f"{m.bytes / 1e6:,.0f} MB", f"from the hub, commit {m.commit[:12]}"
        models.append(dict(zip(FIELDS, (m.name, about, size, size, m.licence, m.name, True), strict=True)))
    if json:
        show(models)
        return
    head = ("NAME", "DOWNLOAD", "ON DISK", "LICENCE", "HERE", "WHAT")
    order = ("name", "size", "stored", "licence", "here", "about")
    shown = {True: "yes", False: "no"}
    print(table([head, *(tuple(shown.get(m[k], m[k]) for k in order) for m in models)]))
    print("\nany model of the Hugging Face hub: hf:OWNER/NAME")


@app.command(cls=Command)
def get(
    ctx: typer.Context,
    name: Annotated[
        str,
        argument("NAME", "A name from `regard model list`, hf:OWNER/NAME[@REVISION], or a GGUF file."),
    ],
    yes: Annotated[bool, flag("--yes", "Fetch more than 2 GB without asking.")] = False,
    json: Json = False,
) -> None:
    """Fetch a model once, for use without a network.

    It becomes a Hugging Face folder in the cache ($REGARD_CACHE or ~/.cache/regard). Verbs that take a model take its
    name, and fetch it themselves; they also take the path of a Hugging Face folder or of a GGUF file.

    `hf:OWNER/NAME` is a model of the Hugging Face hub, kept in that library's own cache at the commit it was fetched
    from; getting it again looks for a newer one.

    \b
    Examples:
      regard model get smollm2-135m
      regard next smollm2-135m "To date, the cleverest thinker of all time was" --top 13
      regard chat smollm2-135m
      regard model get minilm
      regard model get whisper-tiny
      regard model get hf:google-bert/bert-base-uncased
    """
    from regard.data.catalog import MODELS_CATALOG, find_model
    from regard.data.hub import PREFIX
    from regard.models.fetched import from_hub, is_hub_name, resolve

    flags: Console = ctx.obj
    of_hub = name.startswith(PREFIX) or (not Path(name).exists() and is_hub_name(Path(name)))
    folder = from_hub(name, flags.say, newer=True, yes=yes) if of_hub else resolve(name, flags.say)
    if not folder.is_dir():
        find_model(name)  # raises: there is no such model
    model = MODELS_CATALOG.get(name.lower())
    model = model if model and model.folder == folder else None
    about = {"name": model.name, "licence": model.licence, "attribution": model.attribution} if model else {}
    if json:
        show({**about, "folder": str(folder), "files": sorted(p.name for p in folder.iterdir())})
        return
    print(folder)
    next_ = NEXT.get(model.task if model else "", "regard info {}" if of_hub else "regard chat {}")
    flags.say("next: " + next_.format(model.name if model else name))


@app.command(cls=Command)
def push(
    ctx: typer.Context,
    model: Annotated[str, argument("MODEL", "A run or model folder, or a name.")],
    name: Annotated[str, argument("OWNER/NAME", "The repository; it is created if it does not exist.")],
    private: Annotated[bool, flag("--private", "Make a new repository private.")] = False,
    json: Json = False,
) -> None:
    """Upload a model to the Hugging Face hub, as one commit.

    Only the model is uploaded: settings, weights, tokenizer and card. Log in once with `hf auth login`, or set
    HF_TOKEN.

    \b
    Examples:
      regard model push runs/reviews ada/reviews --private
    """
    from regard.config import ADAPTER
    from regard.data.hub import parse
    from regard.data.hub import push as upload
    from regard.errors import ConfigError
    from regard.formats.folder import model_files
    from regard.models.fetched import resolve
    from regard.models.published import load_model

    flags: Console = ctx.obj
    reference = parse(name)
    if reference.file or "/" not in reference.repo:
        raise ConfigError(f"{name!r} is not the name of a repository; expected OWNER/NAME")
    folder = resolve(model, flags.say)
    load_model(folder)  # fails before anything is sent
    files = [*model_files(folder), *(name for name in (ADAPTER, "adapter_config.json") if (folder / name).is_file())]
    size = sum((folder / file).stat().st_size for file in files)
    flags.say(f"uploading {len(files)} files, {size / 1e6:,.1f} MB, to {reference.repo} ...")
    address = upload(folder, files, reference, private=private)
    if json:
        show({"address": address, "files": files, "bytes": size})
        return
    print(address)
    flags.say(f"next: regard info hf:{reference.repo}")
