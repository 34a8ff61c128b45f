"""`regard export`: a model folder for other programs."""

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.common import Json, argument, option, show
from regard.errors import CheckpointError
from regard.ticks import Console

FORMATS = ("hf",)


def export(
    ctx: typer.Context,
    model: Annotated[str, argument("MODEL", "A run or model folder, or a name.")],
    to: Annotated[str, option("FORMAT", "hf: a Hugging Face folder.", default=True)] = "hf",
    out: Annotated[str, option("FOLDER", "Where to.", default="MODEL-hf")] = "",
    json: Json = False,
) -> None:
    """Copy the model out of a run, for other programs.

    A run folder is a Hugging Face folder already; this leaves checkpoints and logs behind and checks what it wrote.

    \b
    Examples:
      regard export runs/x --to hf
      regard export smollm2-135m --out smollm2
    """
    import shutil

    from regard.checkpoint import write_new_folder
    from regard.config import unknown
    from regard.data.folders import user_path
    from regard.models.fetched import resolve
    from regard.models.published import load_model

    flags: Console = ctx.obj
    if to.lower() not in FORMATS:
        raise unknown("format", to, FORMATS)
    source = resolve(model, flags.say)
    load_model(source)  # says what is wrong before anything is written
    target = user_path(out or f"{str(model).rstrip('/')}-hf")
    shards = [path.name for path in source.glob("model-*.safetensors")]
    files = [name for name in sorted({*KEPT, *shards}) if (source / name).is_file()]

    def copy(draft: Path) -> None:
        for name in files:
            (draft / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(source / name, draft / name)

    write_new_folder(target, copy)
    try:
        load_model(target)
    except CheckpointError as e:
        raise CheckpointError(f"what was written does not load again: {e}") from None
    config = jsonlib.loads((target / "config.json").read_bytes())
    foreign = config["model_type"].startswith("regard-")
    if json:
        show({"folder": str(target), "files": files, "transformers": not foreign})
        return
    print(target)
    if foreign:
        flags.say("this architecture has no published counterpart: only regard opens it")
    else:
        name = (config.get("architectures") or ["AutoModel"])[0]
        flags.say(f'open it with: transformers.{name}.from_pretrained("{target}")')


KEPT = ("config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json",
        "tokenizer_config.json", "chat_template.jinja", "source.spm", "target.spm", "vocab.json", "README.md",
        "ATTRIBUTION.txt", "regard.json", "vocab.txt", "special_tokens_map.json", "modules.json",
        "sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling/config.json",
        "2_Normalize/config.json")  # fmt: skip
