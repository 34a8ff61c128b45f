"""Preparing: what comes out equals what went in, is told when it does not, and costs no memory."""

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from regard.data import prepare as module
from regard.data import store
from regard.data.folders import cache_folder
from regard.data.prepare import PairsConfig, prepare
from regard.errors import ConfigError, DataError, RegardError, WorkFailed


@pytest.fixture
def quiet():
    return lambda line: None


def config(files: tuple[str, str], valid: tuple[str, str] | None = None, **more) -> PairsConfig:
    names = ("source", "target", "valid_source", "valid_target")
    return PairsConfig(**dict(zip(names, (*files, *(valid or ())), strict=False)), **{"vocab": 500} | more)


def text(prepared, pairs: dict) -> list[tuple[str, str]]:
    decode, count = prepared.tokenizer.decode, len(pairs["source"])
    return [(decode(pairs["source"][i]), decode(pairs["target"][i])) for i in range(count)]


def test_the_ids_spell_the_text(corpus, write, quiet):
    train, valid = corpus(300), corpus(30, seed=1)
    done = prepare(config(write(train), write(valid, "valid")), quiet)
    assert text(done, done.train) == train
    assert text(done, done.valid) == valid
    assert done.valid_text() == ([s for s, _ in valid], [t for _, t in valid])
    assert done.train["source"][5].dtype == np.uint16
    assert done.manifest["report"]["kept"] == 300
    assert done.tokenizer.size == done.manifest["vocab"]


def test_the_manifest_names_its_inputs(corpus, write, quiet):
    files = write(corpus(50)), write(corpus(5, 1), "valid")
    done = prepare(config(*files), quiet)
    on_disk = json.loads((done.folder / "manifest.json").read_text())
    assert on_disk == done.manifest
    for name, path in zip(
        ("train_source", "train_target", "valid_source", "valid_target"), sum(files, ()), strict=True
    ):
        assert on_disk["inputs"][name] == hashlib.sha256(Path(path).read_bytes()).hexdigest()


def test_the_same_request_does_no_work_and_another_does(corpus, write, quiet, monkeypatch, tmp_path):
    files, valid = write(corpus(50)), write(corpus(5, 1), "valid")
    done = prepare(config(files, valid), quiet)
    build, built = module._build, []
    monkeypatch.setattr(module, "_build", lambda *a: built.append(1) or build(*a))
    elsewhere = [str(Path(f).rename(tmp_path / f"moved{i}")) for i, f in enumerate(files)]
    assert prepare(config((elsewhere[0], elsewhere[1]), valid, bpe_dropout=0.1), quiet).folder == done.folder
    assert not built
    Path(elsewhere[0]).write_text(Path(elsewhere[0]).read_text().replace("tree", "bush"))
    assert prepare(config((elsewhere[0], elsewhere[1]), valid), quiet).folder != done.folder
    assert prepare(config((elsewhere[0], elsewhere[1]), valid, vocab=480), quiet).folder != done.folder
    assert len(built) == 2


def test_preparing_twice_gives_the_same_bytes(corpus, write, quiet, monkeypatch, tmp_path):
    what = config(write(corpus(400)))
    first = prepare(what, quiet).folder
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "second"))
    second = prepare(what, quiet).folder
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def test_what_is_dropped_is_counted_and_told(corpus, write):
    good = corpus(100)
    bad = [
        ("", "vide"),
        ("empty", "  "),
        ("tree " * 2000, "arbre " * 2000),
        ("tree " * 60, "arbre"),
        ("hi", "L'ami a 3 ans"),
    ]
    valid = [good[0], good[0], ("The", "L'"), ("", "vide"), ("tree " * 300, "arbre"), (good[1][0], "autre")]
    messages = []
    done = prepare(config(write([*bad, *good]), write(valid, "valid")), messages.append)
    report = done.manifest["report"]
    twice = sum(pair == good[0] for pair in good)
    expected = {
        "pairs": 105,
        "kept": 101,
        "empty": 2,
        "too_long": 1,
        "ratio": 1,
        "held_out": 0,
        "valid": 4,
        "valid_dropped": 2,
        "overlap_pairs": twice,
        "overlap_sources": sum(s in (good[0][0], good[1][0]) for s, _ in good),
        "longest_line": 3,
    }
    assert {name: report[name] for name in expected} == expected
    assert text(done, done.train) == [bad[-1], *good]  # short pairs escape the ratio
    assert text(done, done.valid) == [good[0], good[0], ("The", "L'"), (good[1][0], "autre")]
    assert len(done.valid_text()[0]) == 5  # only the empty one is missing: scores are about all sentences
    told = "\n".join(messages)
    for words in ("101 of 105", "2: an empty side", "1: more than 256 tokens", "line 3 of", "are also in valid"):
        assert words in told


@pytest.mark.parametrize("side", [0, 1], ids=["source", "target"])
def test_max_length_counts_the_end_mark(write, corpus, quiet, side):
    """Of 8 pieces the last is the end mark, in training and in validation, on either side."""
    long = ["word " * n for n in (6, 7, 8, 9)]
    pairs = [(text, "word") if side == 0 else ("word", text) for text in long]
    how = dict(max_length=8, max_ratio=100, split="spaces", vocab=330)
    done = prepare(config(write(pairs + corpus(50)), write(pairs, "valid"), **how), quiet)
    name = ("source", "target")[side]
    assert done.valid[name].lengths.tolist() == [6, 7]
    assert done.manifest["report"]["valid_dropped"] == 2
    assert done.train[name].lengths[:2].tolist() == [6, 7]
    assert max(column.lengths.max() for column in done.train.values()) == 7


def test_max_words_applies_to_training_sources_alone(write, quiet, corpus):
    pairs = [("one two", "un deux"), ("one two three", "un"), ("one two", "un deux trois")]
    done = prepare(config(write(pairs), write([("a b c d", "e")], "valid"), max_words=2), quiet)
    assert text(done, done.train) == [pairs[0], pairs[2]]
    assert done.manifest["report"]["too_many_words"] == 1
    assert len(done.valid["source"]) == 1


def test_without_validation_files_some_sources_are_held_out(corpus, write, quiet):
    pairs = corpus(2000)
    pairs += [(source, "Ou bien : " + target) for source, target in pairs[:1000]]
    done = prepare(config(write(pairs)), quiet)
    train, (valid_sources, valid_targets) = text(done, done.train), done.valid_text()
    chosen = sorted({s for s, _ in pairs}, key=lambda s: hashlib.sha256(s.encode()).digest())[:30]  # 1 % of 3,000
    assert sorted(valid_sources) == sorted(chosen)
    assert not set(valid_sources) & {source for source, _ in train}
    first = dict(reversed(pairs))
    assert valid_targets == [first[source] for source in valid_sources]
    held = [pair for pair in pairs if pair[0] in chosen]
    assert len(train) == 3000 - len(held) == 3000 - done.manifest["report"]["held_out"]
    assert text(done, done.valid) == list(zip(valid_sources, valid_targets, strict=True))
    assert prepare(config(write(pairs)), quiet).valid_text() == (valid_sources, valid_targets)


def test_gzipped_text_is_read_as_text(corpus, write, quiet):
    files = write(corpus(60))
    for path in map(Path, files):
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert len(prepare(config(files), quiet).train["source"]) + 1 >= 59


def test_large_vocabularies_take_wider_ids(corpus, write, quiet, monkeypatch):
    done = prepare(config(write(corpus(60))), quiet)
    monkeypatch.setattr(store, "NARROW", 100)
    wide = prepare(config(write(corpus(60)), max_length=255), quiet)
    assert (done.train["source"][3].dtype, wide.train["source"][3].dtype) == (np.uint16, np.uint32)
    assert text(wide, wide.train) == text(done, done.train)


# Bad input


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "no data; name a set"),
        ({"source": "a"}, "--source FILE and --target FILE"),
        ({"name": "tatoeba-en-fr", "source": "a", "target": "b"}, "not both"),
        ({"source": "a", "target": "b", "valid_source": "c"}, "both files"),
        ({"name": "tatoba-en-fr"}, "did you mean 'tatoeba-en-fr'"),
        ({"source": "a", "target": "b", "split": "words"}, "'text' or 'spaces'"),
        ({"source": "a", "target": "b", "max_length": 1}, "data.max_length is 1; "),
    ],
)
def test_a_wrong_setting(settings, words):
    with pytest.raises(ConfigError, match=words):
        prepare(PairsConfig(**settings))


def leftovers() -> list[Path]:
    folder = cache_folder() / "prepared"
    return list(folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (b"one\n", b"un\ndeux\n", "has 1 lines and .* has 2"),
        (b"", b"un\n", "is empty"),
        (b"\n\n", b"un\ndeux\n", "no pair to train on .* 2 empty"),
        (b"caf\xe9\n", b"un\n", "line 1 is not UTF-8"),
        (b"one " * 300 + b"\n" + b"two " * 300 + b"\n", b"un\nun\n", "nothing left to train on"),
        (b"one\n", b"un\n", "no pair to train on .* 1 held out"),
    ],
    ids=["counts", "empty file", "empty lines", "encoding", "all dropped", "one pair"],
)
def test_bad_files_leave_nothing_behind(tmp_path, quiet, source, target, words):
    (tmp_path / "a").write_bytes(source)
    (tmp_path / "b").write_bytes(target)
    with pytest.raises(DataError, match=words):
        prepare(config((str(tmp_path / "a"), str(tmp_path / "b"))), quiet)
    assert leftovers() == []


def test_a_folder_or_nothing_for_a_file(tmp_path, quiet):
    with pytest.raises(DataError, match="is a folder"):
        prepare(config((str(tmp_path), str(tmp_path))), quiet)
    with pytest.raises(DataError, match="no file"):
        prepare(config((str(tmp_path / "x"), str(tmp_path / "y"))), quiet)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interruption_or_a_full_disk_leaves_nothing_behind(corpus, write, quiet, monkeypatch, error):
    def fail(*_):
        raise error

    files = write(corpus(50))
    with monkeypatch.context() as m:
        m.setattr(store._Numbers, "_put", fail)
        with pytest.raises((WorkFailed, KeyboardInterrupt)) as e:
            prepare(config(files), quiet)
    assert isinstance(e.value, KeyboardInterrupt) or "disk is full" in str(e.value)
    assert leftovers() == []
    assert len(prepare(config(files), quiet).train["source"]) == 50 - 2


def test_a_damaged_folder_is_refused(corpus, write, quiet):
    what = config(write(corpus(50)))
    path = prepare(what, quiet).folder / "train.target.000"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(RegardError, match=r"damaged; remove .* and run again"):
        prepare(what, quiet)


# A promise about size: 100 times the text, hardly more memory


def test_memory_stays_flat(write, corpus, peak):
    script = (
        "import sys\n"
        "from regard.data.prepare import PairsConfig, prepare\n"
        "prepare(PairsConfig(source=sys.argv[1], target=sys.argv[2], vocab=400), print)\n"
    )
    small, large = (peak(script, *write(corpus(count))) for count in (20_000, 50_000))
    assert large - small < 12, f"{small} MB for 20,000 pairs, {large} MB for 50,000"
