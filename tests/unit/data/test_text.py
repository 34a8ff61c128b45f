"""Preparing text: what comes out equals what went in, is told when it does not, and costs no memory."""

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import documents, store
from regard.data import text as module
from regard.data.documents import pieces, read_text, read_whole
from regard.data.folders import cache_folder
from regard.data.text import PreparedText, TextConfig, prepare_text
from regard.data.tokenizers.bpe import BPE
from regard.data.tokenizers.bytelevel import ByteLevel
from regard.data.tokenizers.chars import Characters
from regard.errors import ConfigError, DataError, LimitError, RegardError, WorkFailed

WORDS = ["the", "cat", "sat", "on", "mat", "seven", "señores", "sang", "of", "1967", "and", "rain,", "fog;", "snow!"]


def prose(count: int, seed: int = 0) -> str:
    rng = random.Random(seed)
    return "".join(rng.choice(WORDS) + rng.choice([" "] * 8 + ["\n", ".\n\n", "  "]) for _ in range(count))


def make(path: object, **settings) -> PreparedText:
    return prepare_text(TextConfig(path=str(path), **settings), lambda line: None)


def ids(done: PreparedText, part: str) -> list[int]:
    tokens = getattr(done, part)
    return tokens.ids.read(0, len(tokens)).tolist()


def shown(done: PreparedText, part: str) -> str:
    """The whole part as text, special tokens included."""
    return b"".join(map(done.tokenizer.token_bytes, ids(done, part))).decode()


def chat(tmp_path: Path, count: int = 20) -> Path:
    records = [{"prompt": f"What is {i}?", "completion": f"It is {i}." * (i + 1)} for i in range(count)]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return tmp_path / "chat.jsonl"


def answers(done: PreparedText, part: str) -> list[str]:
    """What is learned of each record."""
    tokens, out = getattr(done, part), []
    for start, stop in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True):
        learned = tokens.ids.read(start, stop)[tokens.answers.read(start, stop)]
        out.append(b"".join(map(done.tokenizer.token_bytes, learned.tolist())).decode())
    return out


@pytest.fixture
def book(tmp_path) -> Path:
    (tmp_path / "book.txt").write_text(prose(3000), "utf-8")
    return tmp_path / "book.txt"


# A file


@pytest.mark.parametrize("tokens", ["chars", "bytes", "bpe"])
def test_the_ids_spell_the_text_and_the_last_tenth_is_held_out(book, tokens):
    done, text = make(book, tokens=tokens, vocab=400), book.read_text("utf-8")
    cut = int(0.9 * len(text))
    assert (shown(done, "train"), shown(done, "valid")) == (text[:cut], text[cut:])
    assert done.valid_bytes == len(text[cut:].encode())
    assert done.valid_words == len(text[cut:].split())
    assert isinstance(done.tokenizer, Characters) is (tokens == "chars")
    assert done.manifest["vocab"] == done.tokenizer.size
    assert tokens == "bpe" or done.tokenizer.size == {"chars": len(set(text)), "bytes": 257}[tokens]
    assert done.train.records == 0 and done.train.ids.read(0, 3).dtype == np.uint16
    assert f"{len(done.train):,} tokens to train on, {len(done.valid):,} for validation" in done.report()


def test_held_out_text_of_its_own(book, tmp_path):
    (tmp_path / "v.txt").write_text("the cat sat", "utf-8")
    done = make(book, valid=str(tmp_path / "v.txt"), tokens="chars")
    assert (shown(done, "train"), shown(done, "valid")) == (book.read_text("utf-8"), "the cat sat")
    assert make(book, held_out=0.25, tokens="chars").manifest["parts"]["valid"]["rows"] == pytest.approx(
        len(book.read_text("utf-8")) / 4, abs=1
    )
    (tmp_path / "v.txt").write_text("the Ж cat", "utf-8")
    with pytest.raises(DataError, match=r"v.txt holds 'Ж', which the training text does not; .*--tokens bytes"):
        make(book, valid=str(tmp_path / "v.txt"), tokens="chars")


def test_pieces_are_learned_from_the_training_part_alone(tmp_path):
    text = prose(2000) + "zyxwv " * 200
    (tmp_path / "a.txt").write_text(text, "utf-8")
    held_out = 1200 / len(text) + 1e-6
    done = make(tmp_path / "a.txt", vocab=400, held_out=held_out)
    assert not [i for i in range(256, done.tokenizer.size - 1) if set("zyxwv") <= set(done.tokenizer.piece(i))]


@given(
    text=st.lists(st.sampled_from(["a", "b c", "\n", " ", "é", ".\n", "1"]), max_size=200).map("".join),
    size=st.integers(5, 40),
)
def test_cutting_into_pieces_loses_nothing(text, size):
    with pytest.MonkeyPatch.context() as m:
        m.setattr(documents, "PIECE", size)
        half = len(text) // 2
        assert "".join(p or "" for p in pieces([text[:half], text[half:]])) == text
        cut = [p for p in pieces([text, None, text]) if p]
        assert all(len(p) <= 2 * size for p in cut) and "".join(cut) == text + text
        assert list(pieces([text, None, text])).count(None) == 1


@pytest.mark.parametrize("style", ["gpt2", "smollm2", "llama3"])
def test_pieces_encode_as_the_whole(tmp_path, published, monkeypatch, style):
    from transformers import AutoTokenizer

    from regard.data.tokenizers import load

    ours, other = load(published(style, tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    monkeypatch.setattr(documents, "PIECE", 150)
    text = prose(2000)
    cut = [p for p in pieces([text]) if p]
    assert len(cut) > 20
    assert [i for p in ours.encode_batch(cut) for i in p] == other(text, add_special_tokens=False)["input_ids"]


def test_a_file_is_read_in_blocks_wherever_they_end(tmp_path, monkeypatch):
    text = "\ufeffone\r\ntwo ñ 日本 🙂\r\n\r\r\nthree\r"
    (tmp_path / "a.txt").write_bytes(text.encode())
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    for size in (3, 4, 5, 6, 100):
        monkeypatch.setattr(documents, "READ", size)
        for name in ("a.txt", "a.txt.gz"):
            assert "".join(read_text(tmp_path / name)) == "one\ntwo ñ 日本 🙂\n\r\nthree\r"


# Several documents


def test_a_folder_is_its_texts_in_order_with_end_marks_between(tmp_path):
    for name, text in {"b.md": "second", "a.txt": "first\n", "sub/c.txt": "third", "x.py": "no", "e.txt": ""}.items():
        (tmp_path / "d" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "d" / name).write_text(text)
    (tmp_path / "v.txt").write_text("held")
    done = make(tmp_path / "d", tokens="bytes", valid=str(tmp_path / "v.txt"))
    assert shown(done, "train") == "first\n<|endoftext|>second<|endoftext|>third"
    assert done.manifest["report"]["documents"] == 3 and "dropped 1: empty" in done.report()
    (tmp_path / "v.txt").write_text("first")
    done = make(tmp_path / "d", tokens="chars", valid=str(tmp_path / "v.txt"))
    assert shown(done, "train") == "first\nsecond\nthird"  # no end mark: a line break
    whole = make(tmp_path / "d", tokens="chars", held_out=0.5)
    assert (shown(whole, "train"), shown(whole, "valid")) == ("first\nsec", "ond\nthird")
    cut = make(tmp_path / "d", tokens="bytes", held_out=0.5)  # end marks are no characters
    assert (shown(cut, "train"), shown(cut, "valid")) == ("first\n<|endoftext|>se", "cond<|endoftext|>third")
    assert (cut.valid_bytes, cut.valid_words) == (9, 2)


def test_lines_of_a_jsonl_are_documents(tmp_path):
    lines = [json.dumps({"text": text}) for text in ("one\ntwo", "", "three")]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    done = make(tmp_path / "a.jsonl.gz", tokens="bytes")
    assert shown(done, "train") + shown(done, "valid") == "one\ntwo<|endoftext|>three"
    assert done.manifest["report"]["empty"] == 1


def test_a_start_mark_opens_every_document(tmp_path, published):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    done = make(tmp_path, tokenizer=str(published("llama3", tmp_path / "m")), held_out=0.2)
    assert shown(done, "train") == "<|begin|>a.txt<|end|><|begin|>b.t"
    assert shown(done, "valid") == "<|begin|>xt"


# The folder


def test_the_same_request_does_no_work_and_another_does(book, monkeypatch):
    done = make(book, tokens="chars")
    build, built = module._build, []
    monkeypatch.setattr(module, "_build", lambda *a: built.append(1) or build(*a))
    moved = book.rename(book.with_name("moved.txt"))
    again = make(moved, tokens="chars", vocab=123, context=99)
    assert again.folder == done.folder and not built
    assert ids(again, "train") == ids(done, "train")
    moved.write_text(moved.read_text("utf-8") + "more", "utf-8")
    assert len({done.folder, make(moved, tokens="chars").folder, make(moved, tokens="bytes").folder}) == 3
    assert len(built) == 2
    assert json.loads((done.folder / "manifest.json").read_text()) == done.manifest


def test_preparing_twice_gives_the_same_bytes(book, monkeypatch, tmp_path):
    first = make(book, vocab=400).folder
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "second"))
    second = make(book, vocab=400).folder
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def test_large_texts_are_kept_in_shards(book, monkeypatch, tmp_path):
    whole, chats = make(book, tokens="bytes"), make(chat(tmp_path), tokens="bytes")
    monkeypatch.setattr(store, "SHARD", 1000)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "second"))
    done, some = make(book, tokens="bytes"), make(chat(tmp_path), tokens="bytes")
    files = sorted(done.folder.glob("train.ids.*"))
    assert len(files) == -(-len(whole.train) // 1000) > 10
    assert {f.stat().st_size for f in files[:-1]} == {2000}
    assert ids(done, "train") == ids(whole, "train") and ids(done, "valid") == ids(whole, "valid")
    for start, stop in [(0, 1), (999, 1001), (500, 3500), (2000, 2000), (len(whole.train) - 1, len(whole.train))]:
        assert done.train.ids.read(start, stop).tolist() == whole.train.ids.read(start, stop).tolist()
    assert answers(some, "train") == answers(chats, "train")


def test_large_vocabularies_take_wider_ids(book, monkeypatch):
    narrow = make(book, tokens="bytes")
    monkeypatch.setattr(store, "NARROW", 100)
    wide = make(book, tokens="bytes", held_out=0.1000001)
    assert [p.train.ids[:].dtype for p in (narrow, wide)] == [np.uint16, np.uint32]
    assert ids(wide, "train")[:100] == ids(narrow, "train")[:100]


# Bad input


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "no data; give a text file"),
        ({"name": "shakespeare", "path": "x"}, "not both"),
        ({"path": "x", "tokens": "words"}, "no kind of tokens 'words'; there are: bpe, chars, bytes"),
        ({"path": "x", "held_out": 0.0}, r"must be in \(0, 1\)"),
        ({"path": "x", "context": -1}, "data.context is -1"),
        ({"name": "tatoeba-en-fr"}, "is pairs; for text there are: shakespeare"),
        ({"name": "shakespear"}, "did you mean 'shakespeare'"),
    ],
)
def test_a_wrong_setting(settings, words):
    with pytest.raises(ConfigError, match=words):
        prepare_text(TextConfig(**settings))


def leftovers() -> list[Path]:
    folder = cache_folder() / "prepared"
    return list(folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.txt", b"", "empty; expected text"),
        ("a.txt", b"a", "too little text, 0 tokens to train on and 1 for validation; .*--valid FILE"),
        ("a.txt", b"abc\0def", "is not text: byte 4 is zero"),
        ("a.txt", b"abc\n" * 400_000 + b"\0", "byte 1,600,001 is zero"),
        ("a.txt", "é".encode() * 600_000 + b"\xff", "byte 0xff at position 1,200,001"),
        ("a.txt", b"caf\xe9 noir", "not UTF-8 .byte 0xe9 at position 4.; if it is Latin-1, type: iconv"),
        ("a.txt", b"cut \xc3", "byte 0xc3 at position 5"),
        ("a.txt", "text".encode("utf-16"), "UTF-16; type: iconv"),
        ("a.txt", b"\x1f\x8bnonsense", "damaged gzip"),
        ("a.txt.gz", gzip.compress(b"text" * 100, mtime=0)[:-9], "damaged gzip"),
        ("a.jsonl", b'{"text": "a"}\n{"text": ', "line 2: not JSON"),
        ("a.jsonl", b'{"body": "a"}\n', "line 1: has 'body'; expected messages"),
        ("a.jsonl", b'{"text": "a"}\n{"prompt": "b", "completion": "c"}\n', "line 2: mixes"),
        ("a.jsonl", b"\n\n", "empty; expected text"),
        ("a.jsonl", b'{"prompt": "a", "completion": "b"}\n', "too little text, .* and 0 for validation"),
    ],
)  # fmt: skip
def test_bad_files_leave_nothing_behind(tmp_path, name, data, words):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=words) as e:
        make(tmp_path / name, tokens="bytes")
    assert "\n" not in str(e.value) and leftovers() == []


def test_paths_that_are_not_there_or_hold_no_text(tmp_path, book):
    with pytest.raises(DataError, match="no file"):
        make(tmp_path / "nothing.txt")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.pdf").write_text("x")
    with pytest.raises(DataError, match=r"holds no text; expected files that end in .txt, .md, .jsonl, .parquet"):
        make(tmp_path / "d")
    with pytest.raises(DataError, match="must have the training data's format"):
        make(chat(tmp_path), valid=str(book))
    BPE.train(["the cat sat"] * 3, 400).save(tmp_path / "m")
    with pytest.raises(ConfigError, match="has a translator's"):
        make(book, tokenizer=str(tmp_path / "m"))
    with pytest.raises(ConfigError, match="at least 257"):
        make(book, vocab=100)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interruption_or_a_full_disk_leaves_nothing_behind(book, monkeypatch, error):
    def fail(*_):
        raise error

    with monkeypatch.context() as m:
        m.setattr(store._Numbers, "_put", fail)
        with pytest.raises((WorkFailed, KeyboardInterrupt)) as e:
            make(book, tokens="chars")
    assert isinstance(e.value, KeyboardInterrupt) or "disk is full" in str(e.value)
    assert leftovers() == []
    assert len(make(book, tokens="chars").train) > 1000


def test_a_damaged_folder_is_refused(book):
    path = make(book, tokens="chars").folder / "train.ids.000"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(RegardError, match=r"damaged; remove .* and run again"):
        make(book, tokens="chars")


def test_a_given_tokenizer_of_characters_names_what_it_cannot_write(book, tmp_path):
    Characters("abc").save(tmp_path / "m")
    with pytest.raises(DataError, match="not among the 3 of this model"):
        make(book, tokenizer=str(tmp_path / "m"))
    ByteLevel.train(["a"], 257).save(tmp_path / "m")
    text = book.read_text("utf-8")
    assert shown(make(book, tokenizer=str(tmp_path / "m")), "train") == text[: int(0.9 * len(text))]


# A promise about size: five times the text, hardly more memory


@pytest.mark.parametrize("ending", ["txt", "jsonl"])
def test_memory_stays_flat(tmp_path, peak, ending):
    script = (
        "import sys\n"
        "from regard.data import corpus, text\n"
        "corpus.GROUP = 8\n"  # 1 MB shall fill all buffers
        "text.prepare_text(text.TextConfig(path=sys.argv[1], vocab=400), print)\n"
    )
    some = prose(3_200)  # 20 kB
    lines = [json.dumps({"prompt": "go on", "completion": some[i : i + 999]}) for i in range(0, len(some), 999)]

    def needed(times: int) -> int:
        path = tmp_path / f"{times}.{ending}"
        path.write_text((some if ending == "txt" else "\n".join(lines) + "\n") * times, "utf-8")
        return peak(script, path)

    small, large = needed(50), needed(250)
    assert large - small < 8, f"{small} MB for 1 MB, {large} MB for 5 MB"


def test_a_text_read_at_once_must_fit_in_memory(tmp_path, monkeypatch):
    (tmp_path / "long.txt").write_text("the cat sat\r\n" * 1000)
    assert read_whole(tmp_path / "long.txt") == "the cat sat\n" * 1000
    monkeypatch.setenv("REGARD_MEMORY", "100K")
    with pytest.raises(
        LimitError, match=r"reading all of .*long.txt would need 469 KB of memory, and the limit is 100 KB"
    ):
        read_whole(tmp_path / "long.txt")
