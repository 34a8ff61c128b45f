"""The prepared store: what is read is what was written, in any shards; found again; whole or not there at all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import store
from regard.data.store import Column, Flat, Ragged, StoreWriter
from regard.errors import DataError

LISTS = st.lists(st.lists(st.integers(0, 65_535), max_size=9), max_size=30)
COLUMNS = {
    "ids": Column(np.uint16, ragged=True),
    "label": Column(np.int32),
    "pixels": Column(np.uint8, shape=(2, 3)),
}


def write(folder, rows: list[list[int]]) -> store.Store:
    """Row i: its ids, the label -i, and pixels that are all i."""
    writer = StoreWriter(folder)
    with writer.part("train", **COLUMNS) as part:
        for i, ids in enumerate(rows):
            part.append(ids=ids, label=-i, pixels=np.full((2, 3), i % 256, np.uint8))
    writer.finish({"kind": "toy"})
    actual = store.find(folder)
    assert actual is not None
    return actual


@given(rows=LISTS, shard=st.integers(1, 40), buffer=st.integers(1, 20))
def test_rows_are_read_as_written_in_any_shards(rows, shard, buffer, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "SHARD", shard)
        patch.setattr(store, "BUFFER", buffer)
        done = write(tmp_path_factory.mktemp("store"), rows)
    columns = done.part("train")
    assert [columns["ids"][i].tolist() for i in range(len(rows))] == rows
    assert columns["ids"].lengths.tolist() == [len(ids) for ids in rows]
    assert columns["label"][:].tolist() == [-i for i in range(len(rows))]
    assert [int(x.sum()) for x in columns["pixels"]] == [6 * i for i in range(len(rows))]
    assert (done.length("train", "ids"), done.length("train", "label")) == (sum(map(len, rows)), len(rows))
    assert all(f.stat().st_size <= 2 * shard for f in done.folder.glob("train.ids.0*"))


@given(data=st.data(), count=st.integers(1, 40), rows=st.integers(1, 12))
def test_flat_is_indexed_as_an_array(data, count, rows):
    whole = np.arange(3 * count).reshape(count, 3)
    flat = Flat([whole[i : i + rows] for i in range(0, count, rows)])
    which = data.draw(st.lists(st.integers(0, count - 1), max_size=20))
    start, stop = sorted(data.draw(st.tuples(st.integers(0, count), st.integers(0, count))))
    assert np.array_equal(flat[np.array(which, int)], whole[np.array(which, int)])
    assert np.array_equal(flat[start:stop], whole[start:stop]) and np.array_equal(flat[::2], whole[::2])
    assert (flat.shape, flat.nbytes, len(flat)) == (whole.shape, whole.nbytes, count)
    assert np.array_equal(np.stack(list(flat)), whole), "iterating ends"


def test_extend_is_many_rows(tmp_path):
    writer = StoreWriter(tmp_path)
    with writer.part("text", ids=Column(np.uint16)) as part:
        part.extend(ids=[1, 2])
        part.extend(ids=np.array([3]))
        part.extend(ids=[4])
    writer.finish({})
    assert part.rows == 4 and store.find(tmp_path).part("text")["ids"][:].tolist() == [1, 2, 3, 4]


def test_ragged_of_lists_in_memory():
    column = Ragged.of([[1, 2], [], [3]])
    assert [column[i].tolist() for i in range(3)] == [[1, 2], [], [3]] and len(column) == 3
    assert len(Ragged.of([])) == 0


def test_prepare_builds_once(cache):
    messages, built = [], []

    def build(writer: StoreWriter) -> dict:
        built.append(1)
        with writer.part("train", label=Column(np.int32)) as part:
            part.append(label=7)
        return {}

    def prepare() -> store.Store:
        return store.prepare(store.key("toy", 1), build, messages.append, "counting")

    first, second = prepare(), prepare()
    assert first == second and len(built) == 1 and messages == ["preparing: counting ..."]
    assert first.content == int(store.key("toy", 1), 16) and first.folder.parent == cache / "prepared"
    assert first.part("train")["label"][:].tolist() == [7]


def test_a_failed_build_leaves_nothing(cache):
    def build(writer: StoreWriter) -> dict:
        with writer.part("train", label=Column(np.int32)) as part:
            part.append(label=1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.prepare("abc", build, lambda _: None, "failing")
    assert list((cache / "prepared").iterdir()) == []


def test_a_damaged_column_is_refused(tmp_path):
    done = write(tmp_path, [[1, 2, 3]])
    path = tmp_path / "train.ids.000"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"train\.ids\.000 is damaged; remove .* and run again"):
        done.part("train")
