"""Series of measurements as people keep them: long tables, rows of values, NPZ, Parquet, a folder of files.

Times may be irregular, bands several, errors optional. What cannot be used is dropped, counted and reported.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.data import overlap, split
from regard.data.arrays import read_arrays
from regard.data.cells import usable
from regard.data.fetch import DataFiles, get_files
from regard.data.files import TARS, ending, read_tar
from regard.data.folders import Say, to_stderr, user_path
from regard.data.settings import LEGACY_SPLIT, SeriesConfig
from regard.data.skipped import BadRow, has, number_fault, report
from regard.data.tables import ENDINGS, LABELS, DataTable, parse_table, read_data, read_table, table_of_arrays
from regard.data.targets import TARGETS
from regard.errors import ConfigError, DataError

IDS = ("id", "object_id", "object", "oid", "num", "star", "series", "curve", "name")
TIMES = ("time", "mjd", "jd", "hjd", "bjd", "date", "timestamp", "t")
VALUES = ("value", "flux", "mag", "magnitude", "y")
ERRORS = ("error", "err", "flux_err", "magerr", "mag_err", "value_err", "sigma", "uncertainty")
BANDS = ("band", "passband", "filter", "channel", "fid")
CLASSES = (*LABELS, "type")
FILES = (*ENDINGS, ".txt", ".npz")
UNLABELLED = "name their column (--label NAME) or a table of them (--set data.labels=FILE)"
NOTES = {
    "bad": "{:,} points dropped: a time, value or error is not finite or too large, or an error is negative",
    "double": "{:,} points dropped: duplicate time and band",
    "unsorted": "{:,} series sorted by time",
    "empty": "{:,} series skipped: no usable point",
    "unknown": "{:,} known numbers of objects are missing; replaced by the training mean",
}


@dataclass(frozen=True, eq=False)
class Curves:
    """N series concatenated, each in order of time; `report` counts what was dropped or changed."""

    ids: list[str]
    offsets: np.ndarray  # N+1
    times: np.ndarray
    values: np.ndarray
    errors: np.ndarray | None
    bands: np.ndarray | None  # indices of `band_names`
    band_names: tuple[str, ...] = ("value",)
    labels: list[str] = field(default_factory=list)  # N; empty: unknown
    known: np.ndarray | None = None  # N K; NaN: missing
    report: Counter = field(default_factory=Counter)
    listed: list[str] = field(default_factory=list)  # all ids of the file in order, also those without usable points

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def notes(self) -> list[str]:
        return [NOTES[what].format(count) for what, count in sorted(self.report.items()) if count]


# Reading


def read_series(
    path: Path, config: SeriesConfig, labels: Path | None = None, labelled: bool = True, hint: str = UNLABELLED,
    say: Say = to_stderr,
) -> Curves:  # fmt: skip
    """All series of a file or folder. `labelled` drops those without a label; `hint` explains how to give labels if
    none is left."""
    path = Path(path)
    whole = path.is_dir() or path.name.lower().endswith(TARS)
    long, lost = _folder(path, config, say) if whole else (_read_file(path, config, say), [])
    ids = np.full(len(long.times), path.name.split(".")[0]) if long.ids is None else long.ids
    if labelled and long.labels is not None and not (config.labels or labels):
        one_label(ids.tolist(), long.labels.tolist(), path)
    curves = gather(long._replace(ids=ids))
    curves.listed.extend(lost)
    if not len(curves):
        raise DataError(f"{path}: no usable point in any of its {len(curves.listed):,} series ({curves.notes()[0]})")
    return with_labels(curves, path, config, labels, labelled, hint, say)


def one_label(ids: Sequence[Any], labels: Sequence[str], path: Path) -> dict[Any, str]:
    """The label of each id that has one; two different ones are an error."""
    label_of: dict[Any, str] = {}
    for name, label in dict.fromkeys(zip(ids, labels, strict=True)):
        if label and label_of.setdefault(name, label) != label:
            both = f"{label_of[name]!r} and {label!r}"
            raise DataError(f"{path}: the series {str(name)!r} has two labels, {both}; expected one: correct the file")
    return label_of


class Long(NamedTuple):
    """Points as columns. Without ids all belong to one series."""

    ids: np.ndarray | None
    times: np.ndarray
    values: np.ndarray
    errors: np.ndarray | None
    bands: np.ndarray | None
    labels: np.ndarray | None


def _read_file(path: Path, config: SeriesConfig, say: Say) -> Long:
    if ending(path) == ".npz":
        arrays = read_arrays(path, read_data(path))
        stacked = "values" in arrays and arrays["values"].ndim in (2, 3)
        return _stacked(arrays, path) if stacked else _long(table_of_arrays(path, arrays), config, say)
    table = read_table(path, spaces=True, say=say, strict=config.strict)
    wide = len(table.columns) > 3 and all(c.isdigit() for c in table.columns)
    return (_wide if wide else _long)(table, config, say)


def _long(table: DataTable, config: SeriesConfig, say: Say) -> Long:
    """A row for each point."""
    time, value = table.find(config.time, TIMES, "time"), table.find(config.value, VALUES, "value")
    optional = {"id": (config.id, IDS), "error": (config.error, ERRORS), "band": (config.band, BANDS)}
    elsewhere = config.labels or (config.label and not _there(config.label, table))
    optional |= {} if elsewhere else {"label": (config.label, CLASSES)}
    names = {what: table.find(asked, usual, what, needed=False) for what, (asked, usual) in optional.items()}
    checks = {time: table.time_check(time), value: number_fault}
    table = table.usable(checks | ({names["error"]: number_fault} if names["error"] else {}), config.strict, say)
    ids, bands, labels = (
        np.array(table.names(names[what])) if names.get(what) else None for what in ("id", "band", "label")
    )
    errors = table.numbers(names["error"]) if names["error"] else None
    return Long(ids, table.moments(time), table.numbers(value), errors, bands, labels)


def _there(asked: str, table: DataTable) -> str:
    """The requested column, or "" if this table lacks it, since another may have it."""
    return asked if asked.lower() in table.lower else ""


def _wide(table: DataTable, config: SeriesConfig, say: Say) -> Long:
    """A row for each series: its label, then its values (the UCR archive's format). A malformed row has neither."""
    first, *rest = table.columns
    good = table.usable(dict.fromkeys(rest, number_fault), config.strict, say)
    rows = np.searchsorted(sorted([*table.lines, *(row.line for row in table.skipped)]), good.lines)
    values = np.full((len(table) + len(table.skipped), len(rest), 1), np.nan)
    values[rows, :, 0] = np.stack([good.numbers(name) for name in rest], 1)
    labels = np.full(len(values), "", object)
    labels[rows] = good.names(first)
    return _points(values, np.arange(len(rest), dtype=float), labels.tolist(), table.path)


def _stacked(arrays: dict[str, np.ndarray], path: Path) -> Long:
    """Arrays by name: `values`, N T or N C T, with optional `labels` and `times`."""
    values = arrays["values"].astype(np.float64)
    values = values[..., None] if values.ndim == 2 else values.transpose(0, 2, 1)  # N T C
    column = {name: table_of_arrays(path, {name: array.reshape(-1)}) for name, array in arrays.items()}
    labels = column["labels"].names("labels") if "labels" in arrays else None
    times = column["times"].moments("times").reshape(arrays["times"].shape) if "times" in arrays else None
    return _points(values, np.arange(values.shape[1], dtype=float) if times is None else times, labels, path)


def _points(values: np.ndarray, times: np.ndarray, labels: list[str] | None, path: Path) -> Long:
    """N T C values as points, without NaN."""
    series, points, bands = values.shape
    if labels is not None and len(labels) != series:
        raise DataError(f"{path}: {len(labels)} labels for {series} series")
    if times.shape not in ((points,), (series, points)):
        raise DataError(f"{path}: times of shape {times.shape} for {series} series of {points} points")
    keep = ~np.isnan(values)  # rows are padded with NaN
    keep[~keep.any((1, 2)), 0, 0] = True  # of an all-NaN row, one point stays to be reported
    n, t, c = np.nonzero(keep)
    clock = times[t] if times.ndim == 1 else times[n, t]
    classes = None if labels is None else np.array(labels)[n]
    return Long(n + 1, clock, values[keep], errors=None, bands=c if bands > 1 else None, labels=classes)


def _folder(path: Path, config: SeriesConfig, say: Say) -> tuple[Long, list[str]]:
    """A file for each series: its name, with the folder's if not unique, is the id, and its folder the label, unless a
    table has labels. Also the ids of unreadable files."""
    parts: list[Any] = [[] for _ in Long._fields]
    files = list(_files(path))
    name_counts = Counter(Path(name).name.split(".")[0] for name, _ in files)
    lost: dict[str, BadRow] = {}
    for name, data in files:
        stem, inside = Path(name).name.split(".")[0], Path(name).parent.name
        id = stem if name_counts[stem] == 1 else name
        try:
            table = parse_table(path / name, data, spaces=True, say=say, strict=config.strict)
            long = _long(table, config, say)
        except DataError as e:
            lost[id] = BadRow(0, str(e).removeprefix(f"{path / name}").lstrip(": "), name=name)
            continue
        own = np.full(len(long.times), id)
        above = np.full(len(long.times), inside) if inside and not config.labels else None
        ids, labels = own if long.ids is None else long.ids, above if long.labels is None else long.labels
        for part, values in zip(parts, long._replace(ids=ids, labels=labels), strict=True):
            part.append(values)
    report(path, list(lost.values()), len(files) - len(lost), config.strict, say, "file", what="files")
    if not parts[0]:
        raise DataError(f"{path} holds no series; expected files that end in {', '.join(FILES)}")
    whole: list[Any] = [None if any(v is None for v in part) else np.concatenate(part) for part in parts]
    return Long(*whole), list(lost)


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    """The relative name and the bytes of each file of a folder or tar file."""
    if path.is_dir():
        for file in sorted(p for p in path.rglob("*") if p.is_file() and ending(p) in FILES):
            yield str(file.relative_to(path)), read_data(file)
        return
    yield from read_tar(path, lambda name: name.lower().endswith(FILES))


def gather(long: Long) -> Curves:
    """Points to series: unusable points dropped, times sorted, duplicates kept once."""
    ids, times, values, errors, bands, labels = long
    assert ids is not None
    good = np.isfinite(times) & usable(values)
    if errors is not None:
        good &= usable(errors) & (errors >= 0)
    names, first, which = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))[which]  # series in the order of the file
    names = names[np.argsort(first)]
    band_names, band = np.unique(np.full(len(times), "value") if bands is None else bands, return_inverse=True)
    keys = (band[good], times[good], rank[good])
    order = np.lexsort(keys)
    before = np.argsort(keys[2], kind="stable")  # the points of each series, in file order
    back = (np.diff(keys[2][before]) == 0) & (np.diff(keys[1][before]) < 0)
    double = np.zeros(len(order), bool)
    double[1:] = np.all([np.diff(key[order]) == 0 for key in keys], 0)
    kept = np.flatnonzero(good)[order][~double]
    counts = np.bincount(rank[kept], minlength=len(names))
    full = counts > 0
    offsets = np.concatenate(([0], np.cumsum(counts[full])))
    return Curves(
        ids=[str(name) for name in names[full]],
        offsets=offsets,
        times=times[kept],
        values=values[kept],
        errors=None if errors is None else errors[kept],
        bands=None if bands is None else band[kept],
        band_names=tuple(map(str, band_names)),
        labels=[] if labels is None else [str(label) for label in labels[kept[offsets[:-1]]]],
        listed=[str(name) for name in names],
        report=Counter(
            bad=int((~good).sum()),
            unsorted=len(np.unique(keys[2][before][1:][back])),
            double=int(double.sum()),
            empty=int((~full).sum()),
        ),
    )


def with_labels(
    curves: Curves, path: Path, config: SeriesConfig, labels: Path | None, labelled: bool, hint: str, say: Say
) -> Curves:
    """Add labels and known numbers from a separate table, if there is one."""
    labels_file = user_path(config.labels) if config.labels else labels
    known = None
    names = list(curves.labels)
    if labels_file is not None:
        table = read_table(labels_file, spaces=True, say=say, strict=config.strict)
        name = table.find(_there(config.id, table), IDS, "id")
        table = table.usable({name: has("id")}, config.strict, say)
        ids = table.names(name)
        row = {name: i for i, name in enumerate(ids)}
        at = [row.get(name, -1) for name in curves.ids]
        asked = config.label if labelled else _there(config.label, table)
        column = table.find(asked, CLASSES, "label", needed=labelled)
        label_of = one_label(ids, table.names(column), labels_file) if column else {}
        names = [label_of.get(name, "") for name in curves.ids]
        columns = [table.numbers(table.find(name, (), "known")) for name in config.known]
        if columns:
            numbers = np.stack(columns, 1)[at]
            known = np.where((np.array(at)[:, None] >= 0) & usable(numbers), numbers, np.nan)
            curves.report["unknown"] = int(np.isnan(known).sum())
    elif config.known:
        raise ConfigError("data.known names columns of the table of labels; give that: --set data.labels=FILE")
    if not labelled:
        return replace(curves, labels=names, known=known)
    if not names or not any(names):
        raise DataError(f"{path}: no labels{f' in a column {config.label!r}' if config.label else ''}; {hint}")
    faults = [TARGETS[config.targets].fault(name) for name in names]
    rows = [i for i, reason in enumerate(faults) if not reason]
    bad = [BadRow(0, reason, name=id) for id, reason in zip(curves.ids, faults, strict=True) if reason]
    report(path, bad, len(rows), config.strict, say, "series", what="series", limit=1)
    whole = replace(curves, labels=names, known=known)
    return whole if len(rows) == len(names) else part(whole, rows)


def part(curves: Curves, rows: Sequence[int]) -> Curves:
    """Some of the series, in this order."""
    at = np.concatenate([np.arange(curves.offsets[i], curves.offsets[i + 1]) for i in rows] or [np.zeros(0, int)])
    columns = {name: getattr(curves, name) for name in ("times", "values", "errors", "bands")}
    points: dict[str, Any] = {name: None if x is None else x[at] for name, x in columns.items()}
    return replace(
        curves,
        ids=[curves.ids[i] for i in rows],
        offsets=np.concatenate(([0], np.cumsum(curves.lengths[list(rows)]))).astype(int),
        labels=[curves.labels[i] for i in rows] if curves.labels else [],
        known=None if curves.known is None else curves.known[list(rows)],
        **points,
    )


# Which files, and the validation set


@dataclass(frozen=True)
class SeriesParts:
    train: Curves
    valid: Curves
    labels: tuple[str, ...]  # in the order of their indices
    how: str = ""  # the validation set was chosen


def locate(config: SeriesConfig, say: Say = to_stderr) -> DataFiles:
    if bool(config.name) == bool(config.path):
        raise ConfigError("train on what? give --data FILE, a table or an NPZ file, a folder, or a name")
    if config.name:
        return get_files(config.name, "series", say=say)
    return DataFiles(user_path(config.path))


def read_parts(config: SeriesConfig, say: Say = to_stderr, labelled: bool = True) -> SeriesParts:
    """Both parts, with the bands of the training set; notes are reported. If not `labelled`, series without a class are
    kept, and count as a class in the split."""
    files, targets = locate(config, say), TARGETS[config.targets]
    curves = read_series(files.train, config, files.labels, labelled, say=say)
    lonely = [label for label, n in Counter(targets.strata(curves.labels)).items() if n == 1 and label]
    notes = curves.notes()
    if lonely:
        notes.append(f"one example only, never in the validation set: {', '.join(sorted(lonely)[:12])}")
    valid = user_path(config.valid) if config.valid else files.valid
    if valid is not None:
        train, held = curves, with_bands(read_series(valid, config, files.labels, labelled, say=say), curves.band_names)
        notes += overlap.validation_warning(overlap.count(digests(held), digests(train)), len(held), "series")
    else:
        aside = held_out(curves, config)
        train, held = (part(curves, np.flatnonzero(aside == side).tolist()) for side in (False, True))
    for line in notes:
        say(line)
    how = "" if valid else targets.how if any(curves.labels) else split.BY_CONTENT
    if not labelled:
        return SeriesParts(train, with_bands(held, train.band_names), tuple(sorted({*train.labels} - {""})), how)
    if not len(held):
        raise DataError(f"{files.train}: {len(train):,} series to train on and none to validate on; give more")
    labels = tuple(targets.codes(train.labels, held.labels, str(files.train)))
    return SeriesParts(train, with_bands(held, train.band_names), labels, how)


def read_test(config: SeriesConfig, say: Say = to_stderr) -> Curves | None:
    """The test set of a named data set, if it has one."""
    files = locate(config, say)
    return read_series(files.test, config, files.labels, say=say) if files.test else None


def held_out(curves: Curves, config: SeriesConfig) -> np.ndarray:
    """Which series are in the validation set: fold `fold` of `folds`."""
    labels = TARGETS[config.targets].strata(curves.labels or [""] * len(curves))
    if config.split_rule == LEGACY_SPLIT:
        return split.legacy_folds([split.digest(name) for name in curves.ids], labels, config.folds, config.fold)
    return split.hold_out(digests(curves), labels, 1 / config.folds, "series", config.fold)


def digests(curves: Curves) -> list[bytes]:
    """A digest of the points of each series."""
    columns = [x for x in (curves.times, curves.values, curves.bands) if x is not None]
    return [
        split.digest(b"".join(x[start:stop].tobytes() for x in columns))
        for start, stop in itertools.pairwise(curves.offsets)
    ]


def with_bands(curves: Curves, names: tuple[str, ...]) -> Curves:
    """The curves with bands as indices of `names`."""
    for name in curves.band_names:
        if name not in names:
            raise DataError(f"the band {name!r} is not among those trained on: {', '.join(names)}")
    if curves.bands is None or curves.band_names == names:
        return replace(curves, band_names=names)
    return replace(curves, bands=np.array([names.index(n) for n in curves.band_names])[curves.bands], band_names=names)
