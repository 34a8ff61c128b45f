"""Series as people keep them: read, sorted, mended, counted; and which are held out."""

import tarfile
from pathlib import Path

import numpy as np
import pytest

from regard.data.cells import to_number
from regard.data.series import Long, SeriesConfig, gather, held_out, read_parts, read_series, with_bands
from regard.data.tables import parse_table, read_table
from regard.errors import ConfigError, DataError

LONG = """object_id,mjd,flux,flux_err,band,class
b,3.0,30,0.1,r,two
a,2.0,20,0.2,g,one
a,1.0,10,0.3,r,one
a,2.0,99,0.2,g,one
b,4.0,nan,0.1,r,two
b,5.0,inf,0.1,r,two
b,6.0,60,-1,r,two
b,7.0,1e20,0.1,r,two
c,1.0,,0.1,g,one
"""


def write(path, text):
    path.write_text(text)
    return path


def test_a_long_table_is_sorted_mended_and_counted(tmp_path):
    curves = read_series(write(tmp_path / "x.csv", LONG), SeriesConfig())
    assert curves.ids == ["b", "a"] and curves.labels == ["two", "one"] and curves.offsets.tolist() == [0, 1, 3]
    assert curves.times.tolist() == [3, 1, 2] and curves.values.tolist() == [30, 10, 20]
    assert curves.errors.tolist() == [0.1, 0.3, 0.2]
    assert [curves.band_names[b] for b in curves.bands] == ["r", "r", "g"]
    assert curves.listed == ["b", "a", "c"], "c has no usable point"
    assert {k: v for k, v in curves.report.items() if v} == {"bad": 5, "double": 1, "unsorted": 1, "empty": 1}
    assert (
        "5 points dropped: a time, value or error is not finite or too large, or an error is negative" in curves.notes()
    )


@pytest.mark.parametrize(
    ("time", "value", "error", "kept"),
    [
        ("1", "5", "0.1", True),
        ("1", "5", "0", True),  # as good as known exactly
        ("1", "5", "0.0", True),
        ("0", "0", "0", True),
        ("-3", "-5", "0.1", True),
        ("1", "1e18", "0.1", True),
        ("1", "5", "-0.1", False),
        ("1", "5", "", False),
        ("1", "5", "inf", False),
        ("1", "-inf", "0.1", False),
        ("1", "1.1e18", "0.1", False),
        ("nan", "5", "0.1", False),
        ("", "5", "0.1", False),
    ],
)
def test_a_point_is_dropped_only_where_it_cannot_be_used(tmp_path, time, value, error, kept):
    text = f"id,time,value,error,label\na,0.5,1,0.1,x\na,{time},{value},{error},x\na,9,2,0.1,x\n"
    curves = read_series(write(tmp_path / "x.csv", text), SeriesConfig())
    assert len(curves.values) == (3 if kept else 2) and curves.report["bad"] == (not kept)
    if kept:
        assert float(value) in curves.values and float(error) in curves.errors and float(time) in curves.times


@pytest.mark.parametrize("form", ["npz", "parquet", "csv"])
@pytest.mark.parametrize("kind", [float, int, str])
def test_ids_match_those_of_a_label_table_however_they_are_stored(tmp_path, form, kind):
    """An array of numbers with a gap becomes one of floats: 15.0 is still the 15 of the label table."""
    import pyarrow
    from pyarrow import parquet

    ids = np.array([15, 15, 7, 7]).astype(kind)
    columns = {"id": ids, "time": np.array([1.0, 2.0, 1.0, 2.0]), "value": np.arange(4.0)}
    path = tmp_path / f"x.{form}"
    if form == "npz":
        np.savez(path, **columns)
    elif form == "parquet":
        parquet.write_table(pyarrow.table(columns), path)
    else:
        rows = zip(*(c.astype(int) if c.dtype == float else c for c in columns.values()), strict=True)
        path.write_text("id,time,value\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    beside = write(tmp_path / "labels.csv", "id,label\n7,b\n15,a\n")
    curves = read_series(path, SeriesConfig(), beside)
    assert curves.ids == ["15", "7"] and curves.labels == ["a", "b"]


def test_ids_that_are_not_whole_and_labels_that_are_numbers(tmp_path):
    np.savez(tmp_path / "x.npz", id=np.array([1.5, 1.5, 2.0]), time=np.arange(3.0), value=np.arange(3.0),
             label=np.array([0.0, 0.0, 10.0]))  # fmt: skip
    curves = read_series(tmp_path / "x.npz", SeriesConfig())
    assert curves.ids == ["1.5", "2"] and curves.labels == ["0", "10"]


def test_equal_times_in_two_bands_are_two_points(tmp_path):
    text = "id,time,value,band,label\n1,0,5,g,x\n1,0,6,r,x\n1,0,7,r,x\n"
    curves = read_series(write(tmp_path / "x.csv", text), SeriesConfig())
    assert curves.values.tolist() == [5, 6] and curves.report["double"] == 1 and not curves.report["unsorted"]


def test_rows_of_values_begin_with_their_label_and_may_end_early(tmp_path):
    text = "-1\t0.5\t1.5\t2.5\n1\t3\t4\tNaN\n1\t7\tNaN\t9\n"
    curves = read_series(write(tmp_path / "x_TRAIN.tsv", text), SeriesConfig())
    assert curves.labels == ["-1", "1", "1"] and curves.lengths.tolist() == [3, 2, 2]
    assert curves.times.tolist() == [0, 1, 2, 0, 1, 0, 2] and curves.values[-1] == 9
    named = read_series(write(tmp_path / "y.tsv", "up\t1\t2\t3\ndown\t4\t5\t6\n"), SeriesConfig())
    assert named.labels == ["up", "down"], "a label is no header"


def test_arrays_of_one_or_several_channels(tmp_path):
    values = np.arange(12.0).reshape(2, 2, 3)  # N C T
    np.savez(tmp_path / "x.npz", values=values, labels=np.array(["a", "b"]), times=np.array([0.0, 2.0, 5.0]))
    curves = read_series(tmp_path / "x.npz", SeriesConfig())
    assert curves.lengths.tolist() == [6, 6] and curves.band_names == ("0", "1")
    assert curves.times[:6].tolist() == [0, 0, 2, 2, 5, 5] and curves.values[:6].tolist() == [0, 3, 1, 4, 2, 5]
    assert not curves.report["unsorted"]
    np.savez(tmp_path / "y.npz", values=values[:, 0], labels=np.array([1, 2, 3]))
    with pytest.raises(DataError, match="3 labels for 2 series"):
        read_series(tmp_path / "y.npz", SeriesConfig())


def test_parquet_is_the_same_table(tmp_path):
    import pyarrow
    from pyarrow import parquet

    columns = {"id": ["b", "a", "a"], "time": [1.0, 2.0, 1.0], "value": [3.0, 2.0, 1.0], "label": ["x", "y", "y"]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet")
    curves = read_series(tmp_path / "x.parquet", SeriesConfig())
    assert curves.ids == ["b", "a"] and curves.values.tolist() == [3, 1, 2] and curves.labels == ["x", "y"]
    (tmp_path / "bad.parquet").write_bytes(b"no")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read_series(tmp_path / "bad.parquet", SeriesConfig())


def test_a_folder_for_each_class_or_a_table_of_labels(tmp_path):
    for name, label in (("s1", "x"), ("s2", "y")):
        (tmp_path / "curves" / label).mkdir(parents=True)
        write(tmp_path / "curves" / label / f"{name}.csv", f"time,mag,magerr,band\n2,1,0.1,g\n1,{len(label)},0.1,r\n")
    curves = read_series(tmp_path / "curves", SeriesConfig())
    assert curves.ids == ["s1", "s2"] and curves.labels == ["x", "y"] and curves.times.tolist() == [1, 2, 1, 2]
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as box:
        for name, label in (("s1", "x"), ("s2", "y")):
            box.add(tmp_path / "curves" / label / f"{name}.csv", f"{name}.csv")
    table = write(tmp_path / "labels.csv", "Num,Type,Per\ns2,c,0.3\ns1,ab,\n")
    curves = read_series(tmp_path / "all.tar.gz", SeriesConfig(known=("per",)), table)
    assert curves.ids == ["s1", "s2"] and curves.labels == ["ab", "c"]
    assert np.isnan(curves.known[0, 0]) and curves.known[1, 0] == 0.3 and curves.report["unknown"] == 1
    write(table, "Num,Type\ns2,c\n")
    messages = []
    curves = read_series(tmp_path / "all.tar.gz", SeriesConfig(), table, say=messages.append)
    assert curves.ids == ["s2"] and "skipped 1 of 2 series: series s1: no label" in messages[-1]


def test_files_called_alike_are_series_of_their_own(tmp_path):
    for name in ("x/1.csv", "y/1.csv", "y/2.a.csv", "y/2.b.csv", "y/3.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, f"time,value\n1,{len(name)}\n2,0\n")
    curves = read_series(tmp_path, SeriesConfig())
    assert curves.ids == ["x/1.csv", "y/1.csv", "y/2.a.csv", "y/2.b.csv", "3"]
    assert curves.labels == ["x", "y", "y", "y", "y"] and curves.lengths.tolist() == [2] * 5


@pytest.mark.parametrize(
    ("text", "config", "says"),
    [
        (
            "id,when,value\n1,2,3\n",
            {},
            r"which column is the time\? there are: id, when, value; call it 'time', or train with --set data.time",
        ),
        ("id,time,value\n1,2,3\n", {}, r"no labels; name their column \(--label NAME\)"),
        ("id,time,value,class\n1,2,3,a\n", {"label": "kind"}, "no labels in a column 'kind'"),
        ("id,time,value,label\n1,2,3,a\n1,2,x3,a\n", {}, "line 3: 'x3' is not a number \\(column 'value'\\)"),
        ("id,time,value,label\n1,2,3,a\n1,2,3\n", {}, "line 3: 3 columns, expected 4"),
        ("id,time,value,label\n", {}, "has no rows"),
        ("id,time,value,label\n1,2,3,a\n", {"value": "flux"}, "no column 'flux'; there are: id, time, value, label"),
        ("id,time,time,label\n1,2,3,a\n", {}, "two columns have the same name"),
        ("id;time;value\n1;2;3,5\n", {}, "no labels"),
        ("1;2;3\n1;2;4\n", {}, "which column is the time"),
        (
            "id,time,value,label\n7,1,3,a\n7,2,3,b\n",
            {},
            r"x.csv: the series '7' has two labels, 'a' and 'b'; expected one",
        ),
        ("id,time,value,label\n1,2,nan,a\n2,2,nan,b\n", {}, r"no usable point in any of its 2 series \(2 points"),
        ("1,nan,nan,nan\n2,nan,nan,nan\n", {}, r"no usable point in any of its 2 series"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path, text, config, says):
    with pytest.raises(DataError, match=says):
        read_series(write(tmp_path / "x.csv", text), SeriesConfig(**config))


def test_folds_partition_all_series_and_balance_classes():
    n, labels = np.arange(103.0), ["a"] * 60 + ["b"] * 42 + ["c"]
    curves = gather(Long(n.astype(int).astype(str), n, n, None, None, np.array(labels)))
    assert curves.labels == labels
    parts = np.array([held_out(curves, SeriesConfig(folds=5, fold=fold)) for fold in range(5)])
    assert parts.sum(0).tolist() == [1] * 102 + [0], "each once; the only example of its class never"
    for label, counts in (("a", [12] * 5), ("b", [8, 8, 8, 9, 9])):
        assert sorted(int(p[np.array(labels) == label].sum()) for p in parts) == counts


def test_one_class_alone_is_refused_and_a_lonely_example_is_told(tmp_path):
    row = "id,time,value,label\n" + "".join(f"{i},{t},{i + t},a\n" for i in range(9) for t in range(2))
    path, messages = write(tmp_path / "x.csv", row), []
    with pytest.raises(DataError, match="all examples have the label 'a'"):
        read_parts(SeriesConfig(path=str(path)), messages.append)
    write(path, row + "".join(f"{i},0,1,b\n" for i in range(20, 30)) + "z,0,1,lonely\n")
    parts = read_parts(SeriesConfig(path=str(path), folds=3), messages.append)
    assert "one example only, never in the validation set: lonely" in messages
    assert "lonely" in parts.train.labels and len(parts.train) + len(parts.valid) == 20


def test_unlabelled_series_are_kept_without_moving_others(tmp_path):
    """A model that has learned to fill in is fine-tuned: what is held out then was held out before."""
    row = "id,time,value,class\n" + "".join(f"{i},{t},{i + t},{'abc'[i % 3]}\n" for i in range(60) for t in range(2))
    some = row + "".join(f"x{i},{t},{i},\n" for i in range(40) for t in range(2))
    path = write(tmp_path / "x.csv", some)
    config, messages = SeriesConfig(path=str(path)), []
    filled, told = read_parts(config, messages.append, labelled=False), read_parts(config, messages.append)
    assert len(filled.train) + len(filled.valid) == 100 and len(told.train) + len(told.valid) == 60
    assert set(told.valid.ids) == {i for i in filled.valid.ids if not i.startswith("x")} and len(filled.valid) == 10
    write(path, "\n".join(line.rsplit(",", 1)[0] for line in row.splitlines()))
    bare = read_parts(config, messages.append, labelled=False)
    assert (len(bare.train), len(bare.valid)) == (54, 6) and not bare.train.labels
    assert len(messages) == 1 and "skipped 40 of 100 series: series x0: no label; series x1" in messages[0]


def test_label_table_is_optional_and_may_lack_labels(tmp_path):
    path = write(tmp_path / "x.csv", "id,time,value\n1,2,3\n2,2,3\n")
    beside, config = write(tmp_path / "t.csv", "id,kind,per\n1,a,7\n"), SeriesConfig(label="kind", known=("per",))
    assert read_series(path, config, beside, labelled=False).labels == ["a", ""]
    assert read_series(path, SeriesConfig(label="kind"), beside, labelled=False).labels == ["a", ""]
    write(beside, "id,per\n1,7\n")
    curves = read_series(path, config, beside, labelled=False)
    assert curves.labels == ["", ""] and curves.known[0, 0] == 7 and np.isnan(curves.known[1, 0])
    with pytest.raises(DataError, match="no column 'kind'"):
        read_series(path, config, beside)


def test_two_labels_of_one_id_are_refused_and_the_same_twice_is_not(tmp_path):
    path = write(tmp_path / "x.csv", "id,time,value\n1,2,3\n2,2,3\n")
    beside = write(tmp_path / "t.csv", "id,label\n1,a\n2,b\n1,a\n1,\n")
    assert read_series(path, SeriesConfig(), beside).labels == ["a", "b"]
    write(beside, "id,label\n1,a\n2,b\n1,c\n")
    with pytest.raises(DataError, match=r"t.csv: the series '1' has two labels, 'a' and 'c'; expected one"):
        read_series(path, SeriesConfig(), beside)
    write(path, "id,time,value,tag\n1,2,3,dawn\n1,3,3,dusk\n")
    assert len(read_series(path, SeriesConfig(), labelled=False)) == 1, "where no label is needed, it may be anything"


def test_a_row_of_nothing_is_listed(tmp_path):
    curves = read_series(write(tmp_path / "x.csv", "a,1,2,3\nb,nan,nan,nan\na,4,5,6\n"), SeriesConfig())
    assert curves.ids == ["1", "3"] and curves.listed == ["1", "2", "3"] and curves.report["empty"] == 1


def test_too_few_to_hold_some_out_is_said(tmp_path):
    path = write(tmp_path / "x.csv", "id,time,value\n1,2,3\n")
    with pytest.raises(DataError, match="1 series are too few to split; give more, or --valid FILE"):
        read_parts(SeriesConfig(path=str(path)), lambda line: None, labelled=False)


def test_bands_keep_the_numbers_of_training(tmp_path):
    curves = read_series(write(tmp_path / "x.csv", LONG), SeriesConfig())
    assert with_bands(curves, ("r", "u", "g")).bands.tolist() == [0, 0, 2]
    with pytest.raises(DataError, match="the band 'r' is not among those trained on: g, u"):
        with_bands(curves, ("g", "u"))


def test_settings_that_cannot_be_are_refused():
    for settings, says in (
        (dict(fold=5, folds=5), "must be less than data.folds, 5"),
        (dict(folds=1), "data.folds is 1"),
        (dict(thin=1.5), "thin is 1.5"),
        (dict(weights=("15",)), "class=weight"),
    ):
        with pytest.raises(ConfigError, match=says):
            SeriesConfig(**settings)


def test_dates_are_days_and_numbers_may_be_missing():
    table = parse_table(Path("x.csv"), b"when,n\n1970-01-02,NA\n1970/01/03 12:00:00,1\n1/4/1970,-\n,?\n")
    days = table.moments("when")
    assert days[:3].tolist() == [1, 2.5, 3] and np.isnan(days[3])
    assert np.isnan(table.numbers("n")).tolist() == [True, False, True, True] and np.isnan(to_number("-"))
    with pytest.raises(DataError, match=r"x.csv line 3, column 'when': 'soon' is not a date"):
        parse_table(Path("x.csv"), b"when,n\n1970-01-02,1\nsoon,2\n").moments("when")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"no file .*x\.csv"):
        read_table(tmp_path / "x.csv")


NAMES = {
    "id": "id object_id object oid num star series curve name",
    "time": "time mjd jd hjd bjd date timestamp t",
    "value": "value flux mag magnitude y",
    "error": "error err flux_err magerr mag_err value_err sigma uncertainty",
    "band": "band passband filter channel fid",
}


@pytest.mark.parametrize(("column", "name"), [(c, name) for c, names in NAMES.items() for name in names.split()])
def test_every_usual_name_of_a_column_is_found(tmp_path, column, name):
    cells = {"label": "x", "id": "7", "time": "3.5", "value": "2.5", "error": "0.5", "band": "r"}
    header = ",".join(name if cell == column else cell for cell in cells)
    rows = [",".join({**cells, "time": time}.values()) for time in ("3.5", "4.5")]
    curves = read_series(write(tmp_path / "x.csv", "\n".join([header, *rows])), SeriesConfig())
    assert curves.ids == ["7"] and curves.labels == ["x"] and curves.times.tolist() == [3.5, 4.5]
    assert curves.values.tolist() == [2.5, 2.5] and curves.errors.tolist() == [0.5, 0.5]
    assert list(curves.band_names) == ["r"]
