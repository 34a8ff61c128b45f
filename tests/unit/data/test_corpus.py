"""Large and mixed corpora: sources by weight, every form of file, and preparation that goes on where it was killed."""

import gzip
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from regard.data import corpus
from regard.data import text as module
from regard.data.blocks import TextRows
from regard.data.folders import cache_folder
from regard.data.loader import Loader
from regard.data.text import TextConfig, TokenFile, prepare_text
from regard.data.tokenizers.pretrained import Pretrained
from regard.errors import ConfigError
from regard.tasks.plan import absolute_paths

TEXT = "".join(f"line {n} of {n * n} words\n" for n in range(2000))


def make(path, **settings):
    return prepare_text(TextConfig(path=str(path), tokens="bytes", **settings), lambda _: None)


def ids(tokens: TokenFile) -> bytes:
    return tokens.ids.read(0, len(tokens)).tobytes()


def test_a_folder_holds_text_in_any_form(tmp_path):
    texts = [f"document {n}\n" * 20 for n in range(4)]
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text(texts[0])
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(json.dumps({"text": texts[1]}).encode()))
    parquet.write_table(pa.table({"text": texts[2:3], "id": [7]}), folder / "c.parquet")
    (folder / "d.txt.zst").write_bytes(pa.compress(texts[3].encode(), "zstd", asbytes=True))
    done = make(folder)
    written = b"".join(map(done.tokenizer.token_bytes, [*done.train.ids[:], *done.valid.ids[:]]))
    assert written.decode() == "<|endoftext|>".join(texts)


def test_parquet_is_read_by_row_groups(tmp_path):
    rows = [f"row {n}\n" for n in range(2500)]
    parquet.write_table(pa.table({"text": rows}), tmp_path / "t.parquet", row_group_size=700)
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    assert ids(make(tmp_path / "t.parquet").train) == ids(make(tmp_path / "t.jsonl").train)


@pytest.mark.parametrize("stop", [2, 6])
def test_a_killed_preparation_goes_on(tmp_path, monkeypatch, stop):
    (tmp_path / "t.txt").write_text(TEXT)
    (tmp_path / "more.txt").write_text(TEXT[::-1])
    monkeypatch.setattr(corpus, "GROUP", 1)
    monkeypatch.setattr(module, "SAVE_EVERY", 1)
    calls, encode, mix = [], Pretrained.encode_batch, f"{tmp_path / 'more.txt'}:2"

    def killed(self, texts, special=False):
        calls.append(1)
        if len(calls) == stop:
            raise KeyboardInterrupt
        return encode(self, texts, special)

    monkeypatch.setattr(Pretrained, "encode_batch", killed)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "t.txt", mix=mix)
    resumed, both = make(tmp_path / "t.txt", mix=mix), len(calls)
    assert not [path for path in cache_folder().rglob("*") if path.name.startswith(".")]
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "second"))
    whole = make(tmp_path / "t.txt", mix=mix)
    assert [ids(resumed.train), ids(resumed.valid)] == [ids(whole.train), ids(whole.valid)]
    assert resumed.manifest == whole.manifest
    assert both - (len(calls) - both) in (1, 2)  # encoded again: the group that was cut, and one that was ahead


def test_weights_are_epochs_of_each_source(tmp_path):
    for name, letter in (("a", "a"), ("b", "b"), ("c", "c")):
        (tmp_path / f"{name}.txt").write_text(letter * 5000)
    mix = f"{tmp_path / 'b.txt'}:2,{tmp_path / 'c.txt'}:0.5"
    done = make(tmp_path / "a.txt", mix=mix)
    assert [end for end, _ in done.train.sources] == [4500, 9001, 13502]  # one end mark before each further source
    loader = Loader(TextRows(done.train, 50, 500), TextRows(done.train, 50, 500).plan, seed=3)
    for _ in range(2):  # every epoch
        letters = Counter()
        for _ in range(loader.batches_per_epoch):
            batch = next(loader)
            letters.update(batch.ids[:, :-1][batch.marked().counts].flatten().tolist())
        shares = np.array([letters[ord(c)] for c in "abc"]) / 4500
        np.testing.assert_allclose(shares, [1, 2, 0.5], atol=0.03)
    assert len(set(done.valid.ids[:].tolist()) & set(b"abc")) == 3  # each source has a validation set


def test_a_mixture_of_records_keeps_the_weights():
    tokens = TokenFile.of(np.arange(400), np.arange(0, 401, 4), np.ones(400, bool))
    mixed = TokenFile(tokens.ids, tokens.offsets, tokens.answers, ((40, 1.0), (100, 1.5)))
    rows = TextRows(mixed, 7, 70).for_epoch(0, 0, np.random.default_rng(0)).rows
    starts = Counter(start // 160 for row in rows for start, _ in row)
    assert (starts[0], starts[1] + starts[2]) == (40, 90)


@pytest.mark.parametrize("text", ["b.txt", "b.txt:0", "b.txt:x", ":2", "b.txt:1000"])
def test_a_bad_mixture_is_explained(text):
    with pytest.raises(ConfigError, match=r"not a source and its weight.*--set data\.mix=code"):
        TextConfig(mix=text)


def test_sources_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mixed = absolute_paths(TextConfig(path="a.txt", mix="b.txt:2,c/:0.5"))
    assert mixed.mix == f"{tmp_path}/b.txt:2,{tmp_path}/c:0.5"
