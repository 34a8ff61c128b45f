"""Series and tables over time known by name: from the user's folder, the cache, or the package index."""

import csv
import dataclasses
import gzip
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.data.catalog import Dataset, find
from regard.data.cells import to_days
from regard.data.fetch import archive_file, read_bytes
from regard.data.folders import Say, building, cache_folder, to_stderr, user_path
from regard.errors import DataError

ENDINGS = ("npz", "tsv", "csv", "csv.gz", "tsv.gz", "parquet", "tar.gz")
SEEN, AHEAD = 60, 20  # trading days that are seen, and after which the sign is asked
DAYS = 14  # of weather that are seen
SHARES = (0.6, 0.2)  # of windows in time: to train and to validate; the rest is the test


@dataclass(frozen=True)
class SeriesFiles:
    """Without `valid`, some series of `train` are held out. `labels` is a table of ids, labels and known numbers."""

    train: Path
    valid: Path | None = None
    test: Path | None = None
    labels: Path | None = None


def get_series(name: str, say: Say = to_stderr) -> SeriesFiles:
    """The files of the series `name`, fetched if they are not here yet."""
    return _get(find(name, "series"), say)


def get_history(name: str, say: Say = to_stderr) -> SeriesFiles:
    """The table over time `name`, as `train`, fetched if it is not here yet."""
    return _get(find(name, "history"), say)


def _get(dataset: Dataset, say: Say) -> SeriesFiles:
    if (files := _local(dataset)) is None:
        _fetch(dataset, say)
        files = _local(dataset)
        assert files is not None
    return files


def _local(dataset: Dataset) -> SeriesFiles | None:
    """The files if they are on this machine: no network, no work."""
    folders = [cache_folder() / "data" / dataset.name]
    if own := os.environ.get("REGARD_DATA"):
        root = user_path(own)
        folders.insert(0, root / dataset.name)
        if dataset.own_layout and (train := root / dataset.own_layout).is_file():
            labels = train.with_name("labels.csv")
            return SeriesFiles(train, labels=labels if labels.is_file() else None)
    for folder in folders:
        found = [
            next((p for e in ENDINGS if (p := folder / f"{part}.{e}").is_file()), None)
            for part in ("train", "valid", "test", "labels")
        ]
        if found[0] is not None:
            return SeriesFiles(found[0], *found[1:])
    return None


def _fetch(dataset: Dataset, say: Say) -> None:
    if dataset.archive is None:
        raise DataError(
            f"{dataset.name} is not on the package index; set REGARD_DATA to the folder that holds "
            f"{dataset.own_layout}; REGARD_DATA is {os.environ.get('REGARD_DATA') or 'not set'}"
        )
    archive = archive_file(dataset.archive, say)
    folder = cache_folder() / "data" / dataset.name
    with building(folder) as temporary:
        WRITERS[dataset.name](archive, dataset, temporary)
        about = f"{dataset.name}: {dataset.attribution}\nLicence: {dataset.licence}\n"
        (temporary / "ATTRIBUTION.txt").write_text(about, "utf-8")
    say(f"{dataset.name}: {dataset.licence}; {dataset.attribution} (see {folder / 'ATTRIBUTION.txt'})")


def _member(archive: Path, dataset: Dataset, member: str = "") -> bytes:
    assert dataset.archive is not None
    return read_bytes(archive, dataclasses.replace(dataset.archive, member=member or dataset.archive.member))


def write_ucr(archive: Path, dataset: Dataset, folder: Path) -> None:
    """The archive's own two files; some of the training one are held out when it is read."""
    assert dataset.archive is not None
    for part, there in (("train", "TRAIN"), ("test", "TEST")):
        data = _member(archive, dataset, dataset.archive.member.replace("TRAIN", there))
        (folder / f"{part}.tsv").write_bytes(data)


def write_plasticc(archive: Path, dataset: Dataset, folder: Path) -> None:
    """All points as arrays, and a table of objects: label and what the telescope's catalogue knows of each.

    Objects of our own galaxy have no distance modulus: an empty cell, not the catalogue's -9.
    """
    assert dataset.archive is not None
    lines = _member(archive, dataset).decode().splitlines()
    points = np.loadtxt(lines, delimiter=",", skiprows=1, usecols=range(5))
    ids, times, bands, values, errors = points.T
    arrays = dict(id=ids.astype(np.int64), time=times, value=values, error=errors, band=bands.astype(np.int8))
    np.savez_compressed(folder / "train.npz", **arrays)
    table = _member(archive, dataset, dataset.archive.member.replace("lightcurves", "metadata")).decode()
    kept = ("hostgal_photoz", "hostgal_photoz_err", "hostgal_specz", "distmod", "mwebv", "ddf_bool")
    with (folder / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        sheet = csv.writer(file)
        sheet.writerow(["id", "label", *kept])
        for row in csv.DictReader(io.StringIO(table)):
            cells = ("" if k == "distmod" and float(row[k]) < 0 else row[k].strip() for k in kept)
            sheet.writerow([row["object_id"].strip(), row["target"].strip(), *cells])


def _prices(archive: Path, dataset: Dataset) -> tuple[list[str], list[list[str]]]:
    header, *rows = csv.reader(io.StringIO(gzip.decompress(_member(archive, dataset)).decode()))
    return header, rows


def write_prices(archive: Path, dataset: Dataset, folder: Path) -> None:
    """Dates written year first; the rest as it is."""
    header, rows = _prices(archive, dataset)
    with (folder / "train.csv").open("w", encoding="utf-8", newline="") as file:
        sheet = csv.writer(file)
        sheet.writerow(header)
        for date, *row in rows:
            days = to_days(date)
            assert days is not None, f"{dataset.name}: {date!r} is not a date"
            sheet.writerow([str(np.datetime64(int(days), "D")), *row])


def write_directions(archive: Path, dataset: Dataset, folder: Path) -> None:
    """60 days of log returns, and whether the price is higher 20 days later: the form of the UCR archive.

    In time: 60 % of the windows to train, 20 % to validate, 20 % to test, with a gap of 20 days before each border, so
    that no label tells what a later window is asked.
    """
    header, rows = _prices(archive, dataset)
    price = np.log([float(row[header.index("Adj Close")]) for row in rows])
    days = np.arange(SEEN, len(price) - AHEAD)
    steps = np.diff(price) * 100
    lines = [
        "\t".join(["up" if price[t + AHEAD] > price[t] else "down", *(f"{x:.4f}" for x in steps[t - SEEN : t])]) + "\n"
        for t in days
    ]
    _in_time(folder, lines, AHEAD)


def _in_time(folder: Path, lines: list[str], gap: int) -> None:
    one, two = (round(sum(SHARES[: i + 1]) * len(lines)) for i in range(2))
    for part, rows in (("train", lines[: one - gap]), ("valid", lines[one : two - gap]), ("test", lines[two:])):
        (folder / f"{part}.tsv").write_text("".join(rows), "utf-8")


def write_weather(archive: Path, dataset: Dataset, folder: Path) -> None:
    """The table of days as it is."""
    (folder / "train.csv").write_bytes(_member(archive, dataset))


def write_weather_type(archive: Path, dataset: Dataset, folder: Path) -> None:
    """14 days of four readings, each in units of its spread, and the weather of the day after; parts in time."""
    header, *rows = csv.reader(io.StringIO(_member(archive, dataset).decode()))
    readings = np.array([row[1:5] for row in rows], dtype=np.float64)  # T C
    border = round(SHARES[0] * len(rows))
    readings = (readings - readings[:border].mean(0)) / readings[:border].std(0)
    kinds = np.array([row[header.index("weather")] for row in rows])
    days = np.arange(DAYS, len(rows))
    windows = np.stack([readings[t - DAYS : t].T for t in days]).astype(np.float32)  # N C T
    ends = [0, *(round(sum(SHARES[: i + 1]) * len(days)) for i in range(2)), len(days)]
    for part, start, stop in zip(("train", "valid", "test"), ends, ends[1:], strict=False):
        np.savez_compressed(folder / f"{part}.npz", values=windows[start:stop], labels=kinds[days][start:stop])


WRITERS: dict[str, Callable[[Path, Dataset, Path], None]] = {
    "forda": write_ucr,
    "fordb": write_ucr,
    "ecg5000": write_ucr,
    "plasticc": write_plasticc,
    "sp500": write_prices,
    "sp500-direction": write_directions,
    "seattle-weather": write_weather,
    "seattle-weather-type": write_weather_type,
}
