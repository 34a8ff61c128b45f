"""Documents to sentences to a prepared folder: what is read, what is held out, what is noticed, what is refused."""

import json
import math

import numpy as np
import pytest

from regard.data.masked import MaskedConfig, prepare_masked
from regard.data.sentences import Corpus, sentences
from regard.errors import ConfigError, DataError

WORDS = ("sun", "moon", "star", "rain", "wind", "snow", "leaf", "tree", "bird", "fish")


def text(i: int, n: int = 3) -> str:
    return " ".join(f"The {WORDS[(i + k) % 10]} is near the {WORDS[(i * 3 + k) % 10]} of {i}." for k in range(n))


def quiet(_: str) -> None: ...


def prepare(path, **settings):
    return prepare_masked(MaskedConfig(path=str(path), **{"vocab": 120, "max_length": 40, **settings}), quiet)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("BERT will hurt! Be alert.", ["BERT will hurt!", "Be alert."]),
        ('He said "Go." Then he left.', ['He said "Go."', "Then he left."]),
        ("Mr. Smith met Dr. J. Doe. He smiled.", ["Mr. Smith met Dr. J. Doe.", "He smiled."]),
        ("It cost 3.50 in all. 7 were left?", ["It cost 3.50 in all.", "7 were left?"]),
        ("no end", ["no end"]),
        ("wait... what", ["wait... what"]),
    ],
)
def test_sentences(line, expected):
    assert sentences(line) == expected


def test_where_documents_end(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\r\n\n \n\nthree  x\n")
    (tmp_path / "b.md").write_text("four")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "c.jsonl").write_text(json.dumps({"text": "five\nsix"}) + "\n" + json.dumps({"text": " "}) + "\n")
    paths = sorted(tmp_path.iterdir())
    blank = [["one", "two"], ["three x"], ["four"], ["five", "six"]]
    assert list(Corpus(paths, "blank")) == blank
    assert list(Corpus(paths, "files")) == [["one", "two", "three x"], ["four"], ["five", "six"]]
    assert list(Corpus(paths, "lines")) == [["one"], ["two"], ["three x"], ["four"], ["five", "six"]]


def test_a_text_a_folder_and_jsonl_are_the_same_documents(tmp_path):
    texts = [text(i) for i in range(30)]
    (tmp_path / "all.txt").write_text("\n\n".join(texts))
    (tmp_path / "all.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    (tmp_path / "folder").mkdir()
    for i, t in enumerate(texts):
        (tmp_path / "folder" / f"{i:02}.txt").write_text(t + "\n")
    made = [prepare(tmp_path / name) for name in ("all.txt", "all.jsonl", "folder")]
    for other in made[1:]:
        for part in ("train", "valid"):
            a, b = getattr(made[0], part), getattr(other, part)
            assert a.ids.read(0, len(a.ids)).tolist() == b.ids.read(0, len(b.ids)).tolist()
            assert a.documents.tolist() == b.documents.tolist() and a.sentences.tolist() == b.sentences.tolist()
    assert len(made[0].train) == 28 and len(made[0].valid) == 2 and set(np.diff(made[0].train.documents)) == {3}
    again = prepare(tmp_path / "all.txt")
    assert again.folder == made[0].folder


def test_prepared_ids_are_the_text_and_its_entropy_is_known(tmp_path):
    (tmp_path / "x.txt").write_text("\n\n".join(text(i) for i in range(30)))
    made = prepare(tmp_path / "x.txt")
    t, tok = made.train, made.tokenizer
    first = tok.decode(t.ids.read(0, int(t.sentences[1])).tolist())
    assert first.startswith("the ") and first.endswith(".")
    ids = t.ids.read(0, len(t.ids))
    assert not np.isin(ids, [tok.pad, tok.cls, tok.sep, tok.mask, tok.unk]).any()
    share = np.unique(ids, return_counts=True)[1] / len(ids)
    assert made.entropy == pytest.approx(-sum(p * math.log(p) for p in share))
    assert f"unigram entropy {made.entropy:.3f}" in made.report()


def test_special_tokens_in_a_text_are_only_text(tmp_path):
    (tmp_path / "x.txt").write_text("\n\n".join(f"Put [MASK] or [SEP] here. {text(i)}" for i in range(20)))
    made = prepare(tmp_path / "x.txt")
    ids = made.train.ids.read(0, len(made.train.ids))
    assert not np.isin(ids, [made.tokenizer.mask, made.tokenizer.sep]).any()


def test_repeated_lines_are_reported_and_documents_kept_whole(tmp_path):
    texts = [text(i) for i in range(20)] + [text(3)] * 5
    (tmp_path / "x.txt").write_text("\n\n".join(texts))
    made = prepare(tmp_path / "x.txt", held_out=0.5)
    assert made.manifest["report"]["repeated"] == 5 and "5 of 25 lines (20.0%) repeat" in made.report()
    assert made.manifest["report"]["leaked"] == 0
    (tmp_path / "v.txt").write_text(text(4) + "\n\n" + text(99))
    own = prepare(tmp_path / "x.txt", valid=str(tmp_path / "v.txt"))
    assert (
        len(own.valid) == 2
        and own.manifest["report"]["leaked"] == 1
        and "are also in the training text" in own.report()
    )


def test_long_sentences_are_cut_and_nothing_is_lost(tmp_path):
    long = " ".join(["sun moon"] * 60)
    (tmp_path / "x.txt").write_text("\n\n".join(f"{long} {i}. {text(i)}" for i in range(10)))
    made = prepare(tmp_path / "x.txt")
    assert np.diff(made.train.sentences).max() <= 18 and made.manifest["report"]["cut"] == 10
    words = made.tokenizer.decode(made.train.ids.read(0, int(made.train.sentences[-1])).tolist()).split()
    assert words.count("moon") >= 60 * len(made.train)


@pytest.mark.parametrize(("room", "cut"), [(23, 0), (22, 10), (21, 10)])
def test_two_sentences_of_exactly_the_limit_fill_a_row(tmp_path, room, cut):
    """[CLS] A [SEP] B [SEP] with ten pieces each take 23 tokens: with one less, a sentence is cut in two."""
    (tmp_path / "x.txt").write_text("\n\n".join(f"{'sun ' * (10 - i)}{'moon ' * i}\nsun" for i in range(10)))
    made = prepare(tmp_path / "x.txt", max_length=room, vocab=90)
    sizes = np.concatenate([np.diff(part.sentences) for part in (made.train, made.valid)])
    assert made.manifest["report"]["cut"] == cut and sizes.max() == (10 if cut == 0 else 9)
    assert sizes.sum() == 110, "every piece is there"


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("one line\nanother", {}, "data.documents=lines"),
        ("", {}, "0 different documents"),
        ("a\n\nb\n\nc", {"vocab": 6}, "too small"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path, content, settings, message):
    (tmp_path / "x.txt").write_text(content)
    with pytest.raises((DataError, ConfigError), match=message):
        prepare(tmp_path / "x.txt", **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(negatives="rnd"), "random"),
        (dict(documents="line"), "lines"),
        (dict(masked=0.0), "data.masked is 0.0"),
        (dict(held_out=1.0), "data.held_out is 1.0"),
        (dict(max_length=4), "at least 8"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        MaskedConfig(path="x", **settings)


def test_a_place_without_text_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no text"):
        prepare(tmp_path)
    with pytest.raises(DataError, match="no file"):
        prepare(tmp_path / "none.txt")
    with pytest.raises(ConfigError, match="no data"):
        prepare_masked(MaskedConfig(), quiet)
    with pytest.raises(ConfigError, match="not both"):
        prepare_masked(MaskedConfig(name="movie-reviews", path="x"), quiet)
