"""Tables of numbers and categories: what a column is, what is missing, what a row becomes."""

import numpy as np
import pytest

from regard.data.features import Feature, TableConfig, encode, load_table, read_columns, write_columns
from regard.errors import CheckpointError, DataError

HEAD = "id,hours,school,always,passed\n"


def write(path, rows, head=HEAD):
    path.write_text(head + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return TableConfig(path=str(path), held_out=0.25, label="passed")


def rows(count=200):
    return [
        [f"s{i}", i % 20, ("north", "south", "west")[i % 3], "x", "yes" if i % 20 > 9 else "no"] for i in range(count)
    ]


def test_columns_are_told_apart_and_useless_ones_left_out(tmp_path):
    data = load_table(write(tmp_path / "a.csv", rows()))
    assert data.labels == ("no", "yes") and len(data.train) == 150 and len(data.valid) == 50
    assert [(c.name, c.values) for c in data.columns] == [("hours", ()), ("school", ("north", "south", "west"))]
    assert data.train.features.shape == (150, 4)
    said = data.report()
    assert "left out 'id': 150 different values" in said and "left out 'always': the same" in said
    assert "1 numbers and 1 categories, 4 inputs" in said


def test_a_row_is_its_numbers_and_a_one_for_its_category():
    columns = (Feature("hours", usual=7.5), Feature("school", ("north", "south")))
    table = [{"hours": " 3 ", "school": "south"}, {"hours": "", "school": "east"}, {"school": "north", "hours": "inf"}]
    assert encode(columns, table).tolist() == [[3, 0, 1], [7.5, 0, 0], [7.5, 1, 0]]
    with pytest.raises(DataError, match="row 1: the column 'hours' expects a number, got 'many'"):
        encode(columns, [{"hours": "many", "school": "north"}])


def test_missing_numbers_are_counted_and_take_the_mean(tmp_path):
    some = [
        [i, "nan" if i == 3 else "1e39" if i == 5 else "NA" if i == 7 else i, "n" if i % 2 else "s", i, i % 2]
        for i in range(40)
    ]
    config = write(tmp_path / "a.csv", some)
    (tmp_path / "v.csv").write_text("passed,hours\n1,4\n0,\n")
    data = load_table(TableConfig(path=config.path, valid=str(tmp_path / "v.csv"), label="passed"))
    mean = np.mean([i for i in range(40) if i not in (3, 5, 7)])
    assert "'hours': 3 missing, replaced by the mean" in data.report()
    assert data.train.features[3, 1] == pytest.approx(mean) and data.valid.features[1, 1] == pytest.approx(mean)
    assert data.valid.labels.tolist() == [1, 0] and data.valid.features[0, 1] == 4  # columns go by name
    mean, std = data.spread()
    x = (data.train.features - mean) / std
    assert np.allclose(x.mean(0), 0, atol=1e-5) and np.allclose(x.std(0), 1, atol=1e-5)


def test_equal_rows_are_on_the_same_side(tmp_path):
    same = [[0, i // 2, "n" if i // 2 % 2 else "s", i // 2, i // 2 % 2] for i in range(80)]
    data = load_table(write(tmp_path / "a.csv", same))
    seen = {row.tobytes() for row in data.train.features}
    assert not any(row.tobytes() in seen for row in data.valid.features)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: [[*x[:4], "yes"] for x in r], "expected at least two classes"),
        (lambda r: [[*x[:4], ""] for x in r], "line 2: no label"),
        (lambda r: [[f"s{i}", "", "", "", x[4]] for i, x in enumerate(r)], "no column can be read"),
        (lambda r: r[:0], "has no rows"),
        (lambda r: r[:1], "too few"),
    ],
)
def test_tables_that_cannot_be_learned_from(change, message, tmp_path):
    with pytest.raises(DataError, match=message):
        load_table(write(tmp_path / "a.csv", change(rows())))


def test_columns_are_written_down_and_read_back(tmp_path):
    columns = (Feature("hours", usual=7.5), Feature("school", ("north", "süd")))
    write_columns(tmp_path, "passed", columns)
    assert read_columns(tmp_path) == ("passed", columns)
    (tmp_path / "columns.json").write_text("{}")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_columns(tmp_path)


def test_a_trained_models_columns_decide_what_its_table_becomes(tmp_path):
    """A dash was a category before it was a missing value; a model that has learned it keeps it."""
    some = [[i, i % 7, "-" if i % 3 else "north", "x", "yes" if i % 2 else "no"] for i in range(40)]
    config = write(tmp_path / "a.csv", some)
    columns = (Feature("school", ("-", "north")), Feature("hours", usual=3.0))
    data = load_table(config, columns)
    assert data.columns == columns and set(map(tuple, data.train.features[:, :2].tolist())) == {(0, 1), (1, 0)}
    assert "school" not in [column.name for column in load_table(config).columns], "one value is no category"


def test_percentages_and_amounts_are_columns_of_numbers(tmp_path):
    rows = [f'{i},5 %;"{1000 + i:,} €";{"yes" if i % 2 else "no"}' for i in range(40)]
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["rate;price;bought", *rows]))
    data = load_table(TableConfig(path=str(path), label="bought"))
    assert data.notes == ("'rate': percentages, decimal commas, read as numbers",
                          "'price': amounts in €, thousands separators, read as numbers")  # fmt: skip
    both = np.concatenate([data.train.features, data.valid.features])
    assert sorted(both[:, 0].tolist()) == [i + 0.5 for i in range(40)]
    assert sorted(both[:, 1].tolist()) == [1000 + i for i in range(40)]
    write_columns(tmp_path, data.label, data.columns)
    assert read_columns(tmp_path) == ("bought", data.columns)
    assert encode(data.columns, [{"rate": "7,25", "price": "1,200"}]).tolist() == [[7.25, 1200]]
    assert encode(data.columns, [{"rate": "7.25 %", "price": "99,5"}]).tolist() == [[7.25, 99.5]], "the other mark"
    assert [data.columns[0].fault(cell) for cell in ("7,25", "", "many")] == ["", "", "'many' is not a number"]


def test_amounts_are_targets_of_a_regression(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["size,price", *(f'{i},"${1000 * i:,}.50"' for i in range(1, 41))]))
    data = load_table(TableConfig(path=str(path), label="price", targets="numbers"))
    assert "'price': amounts in $, thousands separators, read as numbers" in data.notes
    assert sorted(map(float, data.labels)) == [1000 * i + 0.5 for i in range(1, 41)]
