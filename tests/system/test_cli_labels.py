"""A CSV in, a classifier out; words in, tags out: each line of the README, on toy data."""

import csv
import json
import random
import re

import pytest
import torch
from tests.system.cli_toy import regard, works

import regard as package
from regard.data.tokenizers.wordpiece import WordPiece
from regard.models.bert import Bert, BertConfig
from regard.predictors.embedder import Embedder
from regard.tasks import train_run
from regard.tasks.plan import read_run, run_from_dict

GOOD, BAD, THINGS = ("good", "great", "lovely"), ("bad", "dull", "awful"), ("film", "plot", "cast", "music")
FAST = [
    "--device=cpu",
    "--set=schedule.warmup=5",
    "--set=model.dropout=0.0",
    "--set=data.vocab=120",
    "--set=tokens=512",
]


def review(chance: random.Random, words: tuple[str, ...]) -> str:
    return f"a {chance.choice(words)} {chance.choice(THINGS)}, and a {chance.choice(words)} {chance.choice(THINGS)}"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with reviews, pairs, tags and an encoder, and a classifier trained on the reviews: runs/sent."""
    folder = tmp_path_factory.mktemp("labels")
    rng = random.Random(0)
    with open(folder / "reviews.csv", "w", newline="") as file:
        sheet = csv.writer(file)
        sheet.writerow(["id", "review", "sentiment"])
        sheet.writerows([i, review(rng, BAD if i % 2 else GOOD), "neg" if i % 2 else "pos"] for i in range(200))
    pairs = [(f"the {a} was good", f"a good {b}", "same" if a == b else "other") for a in THINGS for b in THINGS] * 4
    (folder / "pairs.tsv").write_text("".join("\t".join(p) + "\n" for p in pairs))
    people, places = ("Ada", "Grace", "Bert"), ("Paris", "Rome")
    sentences = [
        f"{a}\tB-person\nmet\tO\n{b}\tB-person\nin\tO\n{c}\tB-place\n.\tO\n"
        for a in people
        for b in people
        for c in places
    ]
    (folder / "train.conll").write_text("\n".join(sentences))
    (folder / "dirt.conll").write_text(
        "BERT\tPERSON\nmakes\tOTHER\ndirt\tOTHER\n\nMilk\tOTHER\nmakes\tOTHER\nbutter\tOTHER\n"
    )
    torch.manual_seed(0)
    text = [(folder / "reviews.csv").read_text(), *sentences, "the was same other makes dirt milk butter"]
    pieces = WordPiece.train(text, 160)
    Embedder(Bert(BertConfig(vocab=pieces.size, width=64, layers=2, heads=2, ffn=64, max_length=32)), pieces).save(
        folder / "enc"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))
        patch.chdir(folder)
        result = works("train", "classify", "--data=reviews.csv", "--text=review", "--label=sentiment", "--arch=lstm",
                     "--steps=40", "--name=sent", *FAST)  # fmt: skip
    assert "accuracy" in result.out and "texts per second" in result.out and "regard classify runs/sent" in result.err
    assert (
        "2 labels: " in result.err
        and "178 texts to train on, 22 for validation" in result.err
        and "bag of words, accuracy" in result.err
    )
    return folder


@pytest.fixture(autouse=True)
def _here(place, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(place)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))


def test_it_tells_good_from_bad_and_how_sure_it_is(place):
    assert works("classify", "runs/sent", "a lovely film").out.splitlines()[0] == "pos"
    result = regard("classify", "runs/sent", "reviews.csv")
    assert result.code == 2 and "regard predict runs/sent reviews.csv" in result.err
    assert works("classify", "runs/sent", "ф. " * 80 + "a lovely film").out, "no name of a file is as long in bytes"
    predictions = json.loads(works("classify", "runs/sent", "a dull, awful plot", "--json").out)
    assert predictions["label"] == "neg" and sum(predictions["probabilities"].values()) == pytest.approx(1.0)
    assert package.load("runs/sent").classify(["a great cast"])[0].label == "pos"


def test_scores_stand_beside_a_bag_of_words(place):
    output = works("evaluate", "runs/sent", "--picture=sure.png").out
    assert (
        "accuracy     100.00%" in output
        and "bag of words" in output
        and "true \\ predicted" in output
        and "ECE" in output
    )
    assert (place / "sure.png").stat().st_size > 1000
    result = works("evaluate", "runs/sent", "--data=reviews.csv", "--json")
    assert "inflated" not in works("evaluate", "runs/sent").out
    actual = json.loads(result.out)
    assert actual["seen_in_training"] == 178
    assert actual["accuracy"] == actual["macro_f1"] == 1.0 and actual["confusion"] == [[100, 0], [0, 100]]
    assert actual["bag_of_words"] == 1.0 and actual["majority"] == 0.5 and actual["ece"] < 0.2
    assert "bag of words" in works("info", "runs/sent").out


def test_predict_keeps_the_other_columns(place):
    (place / "new.csv").write_text('note,review\nx,"a great film, really"\ny,\nz,an awful cast\n')
    result = works("predict", "runs/sent", "new.csv", "--out=scored.csv")
    rows = list(csv.DictReader((place / "scored.csv").read_text().splitlines()))
    assert [(r["note"], r["review"], r["label"]) for r in rows] == [
        ("x", "a great film, really", "pos"), ("y", "", ""), ("z", "an awful cast", "neg")
    ]  # fmt: skip
    assert float(rows[0]["probability_pos"]) + float(rows[0]["probability_neg"]) == pytest.approx(1.0, abs=1e-5)
    assert "no answer for 1 of 3 rows: line 3: no text (column 'review')" in result.err
    lines = works("predict", "runs/sent", "new.csv", "--json", "--out=-").out.splitlines()
    assert json.loads(lines[2])["label"] == "neg" and len(lines) == 3
    works("predict", "runs/sent", "reviews.csv", "--out=again.tsv")
    assert (place / "again.tsv").read_text().splitlines()[0].startswith("id\treview\tsentiment\tlabel\tprobability_neg")
    (place / "lines.csv").write_text('note,review\nx,"a great\tfilm,\nreally"\ny,an awful cast\n')
    works("predict", "runs/sent", "lines.csv", "--out=lines.tsv")
    rows = [line.split("\t") for line in (place / "lines.tsv").read_text().splitlines()]
    assert [row[:3] for row in rows[1:]] == [["x", "a great film, really", "pos"], ["y", "an awful cast", "neg"]]


@pytest.mark.parametrize("name", ["later.dev.csv", "later.tsv", "later.jsonl"])
def test_other_files_are_scored_by_the_columns_of_training(place, name):
    """None of these names is a usual one, so only the run can know them."""
    head = ("Nr", "Was", "Urteil")
    rows = [(str(i), f"a {'dull' if i % 2 else 'lovely'} film {i}", "schlecht" if i % 2 else "gut") for i in range(12)]
    table = [",".join(row) for row in (head, *rows)]
    (place / "urteile.csv").write_text("\n".join(table) + "\n")
    if not (place / "runs/urteil").exists():
        works("train", "classify", "--data=urteile.csv", "--text=Was", "--label=Urteil", "--arch=rnn", "--steps=1",
              "--name=urteil", *FAST)  # fmt: skip
    lines = [json.dumps(dict(zip(head, row, strict=True))) for row in rows]
    tabs = [line.replace(",", "\t") for line in table]
    (place / name).write_text("\n".join({"jsonl": lines, "tsv": tabs, "csv": table}[name.split(".")[-1]]) + "\n")
    assert "12 texts" in works("evaluate", "runs/urteil", f"--data={name}").out


def test_a_transformer_and_a_plain_rnn_stand_side_by_side(place):
    result = works("train", "classify", "--data=reviews.csv", "--text=review", "--label=sentiment", "--steps=60",
                 "--arch=transformer,rnn", "--name=both", "--set=optim.lr=0.003", *FAST)  # fmt: skip
    assert "transformer" in result.out and "rnn" in result.out and (place / "runs/both/curves.png").is_file()
    for arch in ("transformer", "rnn"):
        assert works("classify", f"runs/both/{arch}-seed0", "a lovely film").out.splitlines()[0] == "pos"


def test_an_encoder_is_fine_tuned_to_pairs(place):
    result = works("finetune", "enc", "pair", "--data=pairs.tsv", "--valid=pairs.tsv", "--steps=160", "--name=pair",
                 "--set=optim.lr=0.003", "--set=model.dropout=0.0", "--set=model.attention_dropout=0.0",
                 "--set=data.balanced=true", "--device=cpu")  # fmt: skip
    assert 'regard classify runs/pair "…" "…"' in result.err
    assert works("classify", "runs/pair", "the film was good", "a good film").out.splitlines()[0] == "same"
    assert works("classify", "runs/pair", "the film was good", "a good cast").out.splitlines()[0] == "other"
    assert "trained on pairs; expected two texts" in regard("classify", "runs/pair", "one").err
    assert "got 3 texts; expected two" in regard("classify", "runs/pair", "one", "two", "three").err
    assert "trained on single texts" in regard("classify", "runs/sent", "one", "two").err


def test_an_exported_classifier_is_opened_as_one(place):
    transformers = pytest.importorskip("transformers")
    works("finetune", "enc", "classify", "--data=reviews.csv", "--steps=1", "--name=out", "--device=cpu")
    output = works("export", "runs/out", "--out=exported").err
    name, folder = re.search(r'transformers\.(\w+)\.from_pretrained\("(.+)"\)', output).groups()
    theirs, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert list(theirs.config.id2label.values()) == ["neg", "pos"]


def test_a_probe_leaves_the_encoder_alone_and_is_compared(place):
    result = works("finetune", "enc", "classify", "--data=reviews.csv", "--text=review", "--label=sentiment", "--probe",
                 "--steps=40", "--name=features", "--device=cpu")  # fmt: skip
    assert "the encoder is frozen" in result.err and read_run("runs/features").frozen
    assert works("classify", "runs/features", "a lovely film").out.splitlines()[0] in ("pos", "neg")
    assert "bag of words" in works("evaluate", "runs/features").out
    comparison = json.loads(works("compare", "runs/features", "runs/sent", "--data=reviews.csv", "--json").out)
    (metric,) = comparison["metrics"]
    right = json.loads(works("evaluate", "runs/features", "--data=reviews.csv", "--json").out)["accuracy"]
    assert metric["first"] == pytest.approx(100 * right) and metric["second"] == 100.0 and comparison["examples"] == 200
    output = works("compare", "runs/sent", "runs/sent").out
    assert "on 22 texts of its own validation set" in output and "score the same accuracy" in output
    result = regard("finetune", "enc", "classify", "--data=reviews.csv", "--probe", "--lora")
    assert result.code == 2 and "--probe does not combine with --lora" in result.err


def test_an_encoder_is_fine_tuned_to_entities(place):
    trained = works("finetune", "enc", "tag", "--data=train.conll", "--steps=60", "--name=ner",
                    "--set=optim.lr=0.003", "--set=model.dropout=0.0", "--device=cpu")  # fmt: skip
    assert "50% of 48 names are replaced" in trained.err
    predictions = json.loads(works("tag", "runs/ner", "Ada met Grace in Paris.", "--json").out)
    assert [w["word"] for w in predictions] == ["Ada", "met", "Grace", "in", "Paris", "."]
    assert [w["label"] for w in predictions] == ["B-person", "O", "B-person", "O", "B-place", "O"]
    assert "Ada met Grace in Paris."[predictions[4]["start"] : predictions[4]["end"]] == "Paris"
    output = works("evaluate", "runs/ner", "--data=train.conll").out
    assert "entity F1  100.00%" in output and "54 entities" in output and "person" in output
    assert "entity F1 100.00 100.00" in works("compare", "runs/ner", "runs/ner", "--data=train.conll").out
    assert "do not do the same" in regard("compare", "runs/ner", "runs/sent").err
    (place / "lines.txt").write_text("Bert met Ada in Rome.\n")
    assert works("predict", "runs/ner", "lines.txt").out.startswith("Bert\tB-person\nmet\tO\n")
    (place / "words.conll").write_text("Bert\nmet\nAda\n\nRome\n")
    (place / "words.jsonl").write_text('{"words": ["Bert", "met", "Ada"]}\n{"words": ["Rome"]}\n')
    output = [works("predict", "runs/ner", name).out for name in ("words.conll", "words.jsonl")]
    words = [line.split("\t")[0] for line in output[0].split("\n\n")[0].splitlines()]
    assert output[0] == output[1] and words == ["Bert", "met", "Ada"]
    assert works("predict", "runs/ner", "train.conll").out.startswith("Ada\tB-person\nmet\tO\nAda\tB-person\n")
    words = package.load("runs/ner").tag("Ada met Grace in Paris . " * 12)
    assert len(words) == 72 and all(w.probability > 0 for w in words), "a text over the limit is read in parts"


@pytest.mark.parametrize("line", ["train tag --data=train.conll --arch=gru", "finetune enc pair --data=pairs.tsv"])
def test_a_dry_run_counts_and_writes_nothing(place, line):
    before = sorted((place / "runs").iterdir())
    output = works(*line.split(), "--dry-run", "--device=cpu").out
    assert "memory of a training step" in output and "data.held_out" in output
    assert sorted((place / "runs").iterdir()) == before


def test_bert_makes_dirt(place):
    """The lecture's PERSON OTHER OTHER, with plain labels."""
    works("train", "tag", "--data=dirt.conll", "--valid=dirt.conll", "--arch=transformer", "--steps=40", "--name=dirt",
          "--set=optim.lr=0.003", *FAST)  # fmt: skip
    predictions = json.loads(works("tag", "runs/dirt", "BERT makes dirt", "--json").out)
    assert [(w["word"], w["label"]) for w in predictions] == [("BERT", "PERSON"), ("makes", "OTHER"), ("dirt", "OTHER")]
    output = works("evaluate", "runs/dirt").out
    assert "accuracy   100.00% of 6 words" in output and "entity" not in output


def test_a_stopped_run_resumes_exactly(place, tmp_path):
    class Stop(Exception):
        pass

    from regard.data.loader import Loader

    run = run_from_dict(read_run("runs/sent").to_dict() | {"steps": 12, "eval_every": 4, "minutes": 0.0})
    train_run(run, tmp_path / "whole", quiet=True)
    count, real = [0], Loader.__next__

    def stopping(self):
        count[0] += 1
        if count[0] > 7:
            raise Stop
        return real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loader, "__next__", stopping)
        with pytest.raises(Stop):
            train_run(run, tmp_path / "parts", quiet=True)
    train_run(run, tmp_path / "parts", quiet=True, resume=True)
    whole, parts = (package.load(tmp_path / name).model.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train classify", "train on what? type: regard train classify --data reviews.csv"),
        ("train classify --data=nowhere.csv", "no such file or folder"),
        ("train classify --data=reviews.csv --text=body", "no column 'body'; there are: id, review, sentiment"),
        ("train classify --data=reviews.csv --second=review", "--second: not for the task classify"),
        ("train classify --data=one.csv", "all examples have the label 'pos'"),
        ("train classify --data=reviews.csv --arch=gpt", "no architecture 'gpt'"),
        ("train tag --data=broken.conll", "broken.conll line 2: malformed CoNLL line"),
        (
            "finetune enc translate --data=reviews.csv",
            "which cannot be fine-tuned to translate; it can be fine-tuned to: classify, pair",
        ),
        ("finetune enc clasify --data=reviews.csv", "no task 'clasify'; did you mean 'classify'?"),
        ("finetune nowhere classify --data=reviews.csv", "no run or model folder 'nowhere'"),
        ("finetune enc lm --data=reviews.csv", "which cannot be fine-tuned to lm; it can be fine-tuned to: classify"),
        ("evaluate runs/sent --data=unseen.csv", "unseen.csv line 3: the label 'mixed' is not among those trained on"),
        ("evaluate runs/sent --data=reviews.csv --picture=x.doc", "a picture's name must end in"),
        ("classify runs/sent", "Missing argument"),
        ("tag runs/sent hello", "regard tag is not for runs/sent"),
        ("predict runs/sent new2.csv --text=body", "no column 'body'"),
        ("predict runs/sent new2.csv --out=new2.csv", "new2.csv is the input file; name another one"),
        ("train classify --data=reviews.csv --text=review --label=id", "each of one example: is it the right column?"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(place, line, message):
    (place / "one.csv").write_text("text,label\na,pos\nb,pos\nc,pos\n")
    (place / "broken.conll").write_text("Ada\tB-person\nmet\n")
    (place / "unseen.csv").write_text("id,review,sentiment\n1,good,pos\n2,so so,mixed\n")
    (place / "new2.csv").write_text("review\na film\n")
    before = sorted(p.name for p in (place / "runs").iterdir())
    got = regard(*line.split(), *(["--device=cpu"] if line.startswith(("train", "finetune")) else []))
    assert got.code == 2, got.err
    assert message in got.err and len(got.err.strip().splitlines()[-1]) < 400
    assert sorted(p.name for p in (place / "runs").iterdir()) == before


def test_an_empty_text_is_refused(place):
    assert "empty; there is nothing to classify" in regard("classify", "runs/sent", " ").err
