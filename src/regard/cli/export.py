"""`regard export`: write a model in the format of other programs."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.common import Json, argument, option, show
from regard.errors import ConfigError
from regard.ticks import Console


def export(
    ctx: typer.Context,
    model: Annotated[str, argument("MODEL", "A run or model folder, or a name.")],
    to: Annotated[str, option("FORMAT", "hf: a Hugging Face folder; onnx; gguf.", default=True)] = "hf",
    type: Annotated[str, option("TYPE", "Number format, for gguf: f16, q8_0 or f32.", default="the format's own")] = "",
    out: Annotated[str, option("PATH", "Where to write.", default="MODEL-FORMAT")] = "",
    json: Json = False,
) -> None:
    """Write a model for other programs, and check what was written.

    A run folder is a Hugging Face folder already; `--to hf` leaves checkpoints and logs behind. `--to onnx` writes
    graphs for onnxruntime, with tokenizer and labels beside them; `--to gguf` one file for llama.cpp (GPT-2, Llama,
    Mistral, Qwen).

    \b
    Examples:
      regard export runs/x --to hf
      regard export minilm --to onnx
      regard export smollm2-135m --to gguf --type q8_0
    """
    from regard.config import unknown
    from regard.data.folders import user_path
    from regard.formats import FORMATS
    from regard.formats.folder import merged
    from regard.models.fetched import resolve
    from regard.models.published import load_model

    flags: Console = ctx.obj
    if to.lower() not in FORMATS:
        raise unknown("format", to, FORMATS)
    form = FORMATS[to.lower()]
    if type and type.lower() not in form.types:
        has = f"there are: {', '.join(form.types)}" if form.types else "it is always float32"
        raise ConfigError(f"--type {type}: {form.name} has no such number format; {has}")
    dtype = type.lower() or next(iter(form.types), "")
    source = resolve(model, flags.say)
    load_model(source)  # fails before anything is written
    here = user_path(model).exists()
    name = model.rstrip("/") if here else Path(model.removeprefix("hf:").partition("@")[0]).name
    target = user_path(out or form.target(name, dtype))
    with merged(source) as whole:
        result = form.write(whole, target, dtype)
    if json:
        what = "folder" if result.path.is_dir() else "file"
        show({what: str(result.path), "files": result.files, **result.values})
        return
    print(result.path)
    for note in result.notes:
        flags.say(note)
