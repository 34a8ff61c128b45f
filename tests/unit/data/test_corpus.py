"""Large and mixed corpora: sources by weight, every form of file, and preparation that goes on where it was killed."""

import gzip
import json
from collections import Counter
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.unit.data.test_text import answers, chat, shown
from tests.unit.data.test_text import make as prepared

from regard.data import corpus
from regard.data import text as module
from regard.data.blocks import TextRows
from regard.data.folders import cache_folder
from regard.data.loader import Loader
from regard.data.text import TextConfig, TokenFile, prepare_text
from regard.data.tokenizers.pretrained import Pretrained
from regard.errors import ConfigError, DataError
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
    with pytest.raises(ConfigError, match=r"not a source with a weight.*--set data\.mix=code"):
        TextConfig(mix=text)


def test_sources_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mixed = absolute_paths(TextConfig(path="a.txt", mix="b.txt:2,c/:0.5"))
    assert mixed.mix == f"{tmp_path}/b.txt:2,{tmp_path}/c:0.5"


# Records


@pytest.mark.parametrize("tokens", ["bytes", "chars", "bpe"])
def test_records_keep_their_borders_and_answers(tmp_path, tokens):
    done, end = prepared(chat(tmp_path), tokens=tokens, vocab=300), "\n\n" if tokens == "chars" else "<|endoftext|>"
    expected = [f"It is {i}." * (i + 1) + end for i in range(20)]
    texts = [f"### Instruction:\nWhat is {i}?\n\n### Response:\n" + f"It is {i}." * (i + 1) + "\n\n" for i in range(20)]
    held = sorted(range(20), key=lambda i: sha256(texts[i].encode()).digest())[:2]
    train, valid = ([expected[i] for i in range(20) if (i in held) == side] for side in (False, True))
    assert (answers(done, "train"), answers(done, "valid")) == (train, valid)
    first = min(held)
    assert shown(done, "valid").startswith(f"### Instruction:\nWhat is {first}?\n\n### Response:\nIt is {first}.")
    assert done.valid_bytes == sum(map(len, valid)) - (0 if tokens == "chars" else 2 * len(end))
    assert "18 records to train on, 2 for validation: 10 % chosen by a hash of the content" in done.report()


def test_records_of_older_runs_are_held_out_at_the_end(tmp_path):
    done = prepared(chat(tmp_path), tokens="bytes", split_rule="v1")
    assert answers(done, "valid") == [f"It is {i}." * (i + 1) + "<|endoftext|>" for i in (18, 19)]


def test_equal_records_are_on_one_side(tmp_path):
    path = chat(tmp_path)
    path.write_text(path.read_text() * 4)
    done = prepared(path, tokens="bytes")
    assert len(answers(done, "valid")) == 8 and len(set(answers(done, "valid"))) == 2
    assert not {*answers(done, "train")} & {*answers(done, "valid")}


def test_records_longer_than_allowed_are_cut_and_told(tmp_path):
    done = prepared(chat(tmp_path), tokens="bytes", max_length=60, template="Please: {prompt}")
    assert shown(done, "train").startswith("### Instruction:\nPlease: What is 0?\n\n### Response:\n")
    assert max(np.diff(done.train.offsets)) <= 60
    lengths = [
        len(f"### Instruction:\nPlease: What is {i}?\n\n### Response:\n" + f"It is {i}." * (i + 1)) + 1
        for i in range(20)
    ]
    assert done.manifest["report"]["cut"] == sum(n > 60 for n in lengths)
    assert f"cut {sum(n > 60 for n in lengths)}: longer than 60 tokens" in done.report()
    with pytest.raises(DataError, match="records were dropped"):
        prepared(chat(tmp_path), tokens="bytes", max_length=20)  # no answer is left


def test_a_record_of_exactly_the_limit_is_whole(tmp_path):
    path = tmp_path / "two.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"Q{i}", "completion": "seven"}) + "\n" for i in range(4)))
    whole = prepared(path, tokens="bytes")
    size = int(whole.train.offsets[1])
    fits, short = prepared(path, tokens="bytes", max_length=size), prepared(path, tokens="bytes", max_length=size - 1)
    assert shown(fits, "train") == shown(whole, "train") and fits.manifest["report"]["cut"] == 0
    assert int(short.train.offsets[1]) == size - 1 and short.manifest["report"]["cut"] == 4
    assert answers(fits, "train")[0] == "seven<|endoftext|>" and answers(short, "train")[0] == "seven"


def test_unanswered_records_are_dropped(tmp_path):
    path = chat(tmp_path)
    path.write_text(json.dumps({"prompt": "a", "completion": " "}) + "\n" + path.read_text())
    assert "dropped 1: their answer is cut off" in prepared(path, tokens="bytes").report()


def test_records_with_a_models_own_tokenizer_and_template(tmp_path, published):
    done = prepared(chat(tmp_path), tokenizer=str(published("smollm2", tmp_path / "m")))
    assert "It is 1.It is 1.<|im_end|>" in answers(done, "train")
    assert "<|im_start|>user\nWhat is 2?<|im_end|>\n<|im_start|>assistant\nIt is 2." in shown(done, "train")
    again = prepared(chat(tmp_path), tokenizer=str(tmp_path / "m"))
    assert again.folder == done.folder
    (tmp_path / "m" / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content + eos_token }}{% endfor %}"
    )
    assert prepared(chat(tmp_path), tokenizer=str(tmp_path / "m")).folder != done.folder
