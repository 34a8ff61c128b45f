"""Models and data sets of a hub: `hf:OWNER/NAME`, `hf:OWNER/NAME@REVISION`, `hf:OWNER/NAME/FILE`.

Uses huggingface_hub, with its cache, token, resumed downloads, offline mode and `HF_ENDPOINT`. A fetched model stays at
its commit until `regard model get` looks for a newer one. Every file is checked against the hash that the hub states;
no code of a repository is executed.
"""

import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.data.folders import Say, building_file, cache_folder, to_stderr
from regard.errors import ConfigError, DataError, MissingExtra
from regard.jsonfile import read_json_if_any, write_json
from regard.words import count

PREFIX = "hf:"
NAME = re.compile(r"(?P<repo>(?:\w[\w.-]*/)?\w[\w.-]*)(?:@(?P<revision>[\w.-]+))?(?:/(?P<file>[^@/][^@]*))?")
LARGE = 2_000_000_000  # bytes; more are not fetched without asking


@dataclass(frozen=True)
class Reference:
    """A repository at a branch, tag or commit, and optionally one file of it."""

    repo: str
    revision: str = "main"
    file: str = ""
    kind: str = "model"  # or dataset

    def __str__(self) -> str:
        revision = "" if self.revision == "main" else f"@{self.revision}"
        return f"{PREFIX}{self.repo}{revision}{'/' if self.file else ''}{self.file}"

    @property
    def record(self) -> Path:
        """The file that records what was fetched."""
        name = str(self).removeprefix(PREFIX).replace("/", "--")
        return cache_folder() / "hub" / f"{self.kind}s" / f"{name}.json"


Choose = Callable[[Reference, list[str]], list[str]]  # files of a repository -> files to fetch


@dataclass(frozen=True)
class Fetched:
    """What was fetched: commit, folder and licence."""

    name: str
    commit: str
    folder: str
    files: list[str]
    bytes: int
    licence: str

    @property
    def here(self) -> bool:
        return all((Path(self.folder) / file).is_file() for file in self.files)


def parse(name: str, kind: str = "model") -> Reference:
    """The reference in a name; `ConfigError` if it is malformed."""
    match = NAME.fullmatch(name.removeprefix(PREFIX))
    if match is None or ".." in name:
        raise ConfigError(f"{name!r} is not a name of the hub; expected hf:OWNER/NAME or hf:OWNER/NAME@REVISION")
    return Reference(match["repo"], match["revision"] or "main", match["file"] or "", kind)


def fetched() -> list[Fetched]:
    """The models in the cache."""
    paths = sorted((cache_folder() / "hub" / "models").glob("*.json"))
    return [record for path in paths if (record := _read(path)) and record.here]


def get(name: Reference, choose: Choose, say: Say = to_stderr, *, newer: bool = False, yes: bool = False) -> Fetched:
    """Fetch the files that `choose` picks, from the cache if possible; with `newer`, the hub's current version.

    More than 2 GB are fetched only if the user agrees at the terminal, or with `yes`.
    """
    record = _read(name.record)
    hub, constants = need_hub()
    if record is not None and record.here and (not newer or constants.HF_HUB_OFFLINE):
        return record
    with hub_errors(name):
        info = hub.HfApi().repo_info(name.repo, repo_type=name.kind, revision=name.revision, files_metadata=True)
        files = {file.rfilename: file for file in info.siblings or []}
        chosen = choose(name, list(files))
        size = sum(files[path].size or 0 for path in chosen)
        licence = getattr(info.card_data, "license", None) or "not stated"
        say(f"{name}: {count(len(chosen), 'file')}, {size / 1e6:,.1f} MB, licence: {licence}, commit {info.sha[:12]}")
        if size > LARGE and not yes and not agreed(say):
            raise ConfigError(f"{name} has {size / 1e9:.1f} GB", f"to fetch it, type: regard model get {name} --yes")
        paths = [Path(hub.hf_hub_download(name.repo, path, repo_type=name.kind, revision=info.sha)) for path in chosen]
    for path, where in zip(chosen, paths, strict=True):
        check(where, files[path], name)
    folder = paths[0].parents[len(Path(chosen[0]).parts) - 1]
    record = Fetched(str(name), info.sha, str(folder), chosen, size, str(licence))
    with building_file(name.record) as temporary:
        write_json(temporary, asdict(record))
    return record


def push(folder: Path, files: list[str], name: Reference, *, private: bool = False) -> str:
    """Upload files of a folder as one commit to a repository, which is created if necessary; returns its address."""
    hub, constants = need_hub()
    from huggingface_hub import errors

    api = hub.HfApi()
    with hub_errors(name, "upload"):
        try:
            api.create_repo(name.repo, private=private or None, exist_ok=True)
            api.upload_folder(
                folder_path=folder,
                repo_id=name.repo,
                allow_patterns=files,
                commit_message="Upload with regard",
                revision=None if name.revision == "main" else name.revision,
            )
        except errors.HfHubHTTPError as e:
            if e.response.status_code not in (401, 403):
                raise
            raise DataError(
                f"{constants.ENDPOINT} refused the upload to {name.repo}",
                "type: hf auth login (or set HF_TOKEN), with a token that may write there",
            ) from None
    return f"{constants.ENDPOINT}/{name.repo}"


def _read(path: Path) -> Fetched | None:
    values = read_json_if_any(path)
    return Fetched(**values) if values else None


def need_hub() -> Any:
    """The package and its settings; `MissingExtra` if it is not installed."""
    try:
        import huggingface_hub
        from huggingface_hub import constants
    except ImportError:
        raise MissingExtra("a name of the hub", "hub") from None
    return huggingface_hub, constants


def agreed(say: Say) -> bool:
    """Whether the user at the terminal agrees."""
    if not sys.stdin.isatty():
        return False
    say("fetch it? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def check(path: Path, file: Any, name: Reference) -> None:
    """Raise `DataError`, and remove the file, unless it has the hash that the hub states."""
    stated = file.lfs.sha256 if file.lfs else file.blob_id
    if stated is None:
        return
    with path.open("rb") as opened:
        if file.lfs:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        else:  # git's hash of a file
            content = opened.read()
            digest = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    if digest != stated:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise DataError(
            f"{name}: {file.rfilename} has the hash {digest[:12]}, and the hub states {stated[:12]}",
            "it was removed; run the command again",
        )


@contextmanager
def hub_errors(name: Reference, verb: str = "fetch") -> Iterator[None]:
    """Turn the library's errors into ours, each in a sentence."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{'datasets/' if name.kind == 'dataset' else ''}{name.repo}"
    try:
        yield
    except errors.GatedRepoError:
        raise DataError(
            f"{name} is gated: accept its terms at {page}, then type: hf auth login (or set HF_TOKEN)"
        ) from None
    except errors.RevisionNotFoundError:
        raise DataError(f"{name.repo} has no revision {name.revision!r}; see {page}") from None
    except errors.RepositoryNotFoundError:
        raise DataError(
            f"{name}: there is no such {name.kind} at {constants.ENDPOINT}, or it is private; check the name, or type: "
            "hf auth login"
        ) from None
    except errors.HFValidationError as e:
        raise ConfigError(f"{name} is not a name of the hub ({e})") from None
    except errors.OfflineModeIsEnabled:
        here = (
            "is not cached and HF_HUB_OFFLINE is set" if verb == "fetch" else "cannot be reached: HF_HUB_OFFLINE is set"
        )
        raise DataError(f"{name} {here}; run the command once without it") from None
    except errors.HTTPError as e:
        raise DataError(
            f"cannot {verb} {name} {'from' if verb == 'fetch' else 'to'} {constants.ENDPOINT} ({type(e).__name__})",
            "check the network and run the command again; complete files are kept",
        ) from None


# -- which files ------------------------------------------------------------------------------------------------------

SMALL = (".json", ".txt", ".model", ".spm", ".jinja", ".md")
BESIDE = re.compile(r"[^/]+|\d_\w+/config\.json")  # files of a model; other folders hold other formats
PART = re.compile(r"-\d+-of-\d+\.parquet$")  # part of a table in several files
TABLES = (".parquet", ".csv", ".tsv", ".jsonl", ".json")


def model_files(name: Reference, files: list[str]) -> list[str]:
    """Settings, tokenizer and weights: safetensors, or otherwise PyTorch's own format."""
    if name.file:
        return one_file(name, files)
    for stem, ending in (("model", ".safetensors"), ("pytorch_model", ".bin"), ("adapter_model", ".safetensors")):
        shards = [file for file in files if re.fullmatch(rf"{stem}-\d+-of-\d+{re.escape(ending)}", file)]
        weights = [f"{stem}{ending}"] if f"{stem}{ending}" in files else shards
        if weights:
            break
    else:
        ggufs = [file for file in files if file.endswith(".gguf")]
        hint = f"name a GGUF file: {Reference(name.repo, name.revision, ggufs[0])}" if ggufs else ""
        raise DataError(f"{name} has neither model.safetensors nor pytorch_model.bin", hint)
    beside = [file for file in files if file.endswith(SMALL) and BESIDE.fullmatch(file)]
    return [*beside, *weights]


def one_file(name: Reference, files: list[str]) -> list[str]:
    if name.file not in files:
        raise DataError(f"{name.repo} has no file {name.file}; it has: {', '.join(sorted(files)[:8])}")
    return [name.file]


def data_files(name: Reference, files: list[str]) -> list[str]:
    """The only table, possibly in several Parquet files, or the named file."""
    if name.file:
        return one_file(name, files)
    tables = [file for file in files if file.endswith(TABLES) and not file.endswith("dataset_infos.json")]
    train = [file for file in tables if re.search(r"(^|[/_.-])train", file)]
    chosen = sorted(train or tables)
    if len({PART.sub("", file) for file in chosen}) != 1:
        what = f"{count(len(chosen), 'table')}: {', '.join(chosen[:5])}" if chosen else f"no {', '.join(TABLES)}"
        hint = f"name one: {Reference(name.repo, name.revision, chosen[0])}" if chosen else ""
        raise DataError(f"{name} has {what}", hint)
    return chosen


def data_file(text: str, say: Say = to_stderr) -> str:
    """The path of a table of the hub; anything but `hf:…` is returned unchanged."""
    if not text.startswith(PREFIX):
        return text
    name = parse(text, "dataset")
    record = get(name, data_files, say)
    paths = [Path(record.folder) / file for file in record.files]
    return str(paths[0] if len(paths) == 1 else join_tables(paths, record.commit))


def join_tables(paths: list[Path], commit: str) -> Path:
    """Several Parquet files joined into one in the cache."""
    from pyarrow import parquet

    name = PART.sub("", paths[0].name)
    target = cache_folder() / "hub" / "joined" / f"{name}-{commit}-{len(paths)}.parquet"
    if not target.is_file():
        schema = parquet.read_schema(paths[0])
        with building_file(target) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
            for path in paths:
                writer.write_table(parquet.read_table(path).cast(schema))
    return target
