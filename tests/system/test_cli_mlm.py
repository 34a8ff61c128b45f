"""BERT by the command line: a toy corpus, a few seconds of training, and gaps filled right."""

import json
import random

import numpy as np
import pytest
import torch
from tests.system.cli_toy import regard, works

import regard as package
from regard.checkpoint import load_state
from regard.tasks import assemble, train_run
from regard.tasks.plan import read_run

SAYS = {"cat": "meows", "dog": "barks", "cow": "moos", "duck": "quacks"}
COLOURS = ("red", "blue", "green")
SMALL = [
    "--set=data.max_length=32",
    "--set=model.max_length=32",
    "--set=data.vocab=150",
    "--set=model.width=64",
    "--set=model.ffn=128",
    "--set=tokens=1024",
    "--set=schedule.warmup=20",
    "--device=cpu",
]


def documents(n: int) -> list[str]:
    """Stories of a house and its animal: what it says and the colour of the door can be known from the rest."""
    rng, results = random.Random(0), []
    for i in range(n):
        a, c = rng.choice(list(SAYS)), rng.choice(COLOURS)
        results.append(f"House {i % 40} is {c} and has a {a}. The {a} {SAYS[a]} all day. The door is {c}. It is big.")
    return results


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a corpus and a BERT trained on it: runs/x."""
    folder = tmp_path_factory.mktemp("mlm")
    (folder / "corpus.txt").write_text("\n\n".join(documents(400)) + "\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))
        patch.chdir(folder)
        result = works("train", "mlm", "--arch=bert", "--data=corpus.txt", *SMALL, "--steps=220", "--name=x")
    assert "masked accuracy" in result.out and "unigram entropy" in result.out and "regard fill runs/x" in result.err
    assert "repeat an earlier one" in result.err and "padding" in result.err
    return folder


@pytest.fixture(autouse=True)
def _here(place, monkeypatch):
    monkeypatch.chdir(place)


def test_it_learned_more_than_how_frequent_words_are(place):
    lines = [json.loads(line) for line in (place / "runs/x/metrics.jsonl").read_text().splitlines()]
    last = lines[-1]
    assert last["held_out_loss"] < 0.5 * last["unigram_entropy"] and last["masked_accuracy"] > 0.6
    curve = [e["held_out_loss"] for e in lines if "held_out_loss" in e and not e.get("final")]
    assert curve[-1] < curve[0] / 2
    assert {"next_sentence_loss", "next_sentence_accuracy"} <= last.keys()
    assert "masked accuracy" in works("info", "runs/x").out


def test_the_gap_is_filled_right(place):
    for animal, says in SAYS.items():
        text = f"House 7 is red and has a {animal}. The {animal} [MASK] all day."
        predictions = json.loads(works("fill", "runs/x", text, "--top=3", "--json").out)
        assert predictions[0][0]["piece"] == says
        assert package.load("runs/x").fill(text, top=1)[0][0].piece == says


def test_evaluate_says_what_training_said(place):
    scores = json.loads(works("evaluate", "runs/x", "--json").out)
    last = json.loads((place / "runs/x/metrics.jsonl").read_text().splitlines()[-1])
    assert scores["loss"] == pytest.approx(last["held_out_loss"], rel=1e-4)
    assert scores["masked_accuracy"] == pytest.approx(last["masked_accuracy"])
    (place / "test.txt").write_text("\n\n".join(documents(20)))
    output = works("evaluate", "runs/x", "--data=test.txt").out
    assert "masked accuracy" in output and "15% of the tokens masked" in output
    assert "sentences were in the training data; the score is inflated" in output
    assert "scored on test.txt" in works("info", "runs/x").out


def test_transformers_opens_the_folder_with_equal_logits(place):
    transformers = pytest.importorskip("transformers")
    theirs, info = transformers.BertForPreTraining.from_pretrained("runs/x", output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokenizer, ours = transformers.AutoTokenizer.from_pretrained("runs/x"), package.load("runs/x")
    pair = ("The dog [MASK] all day.", "The door is red.")
    given = tokenizer(*pair, return_tensors="pt")
    encoded = ours.tokenizer.encode(*pair)
    assert given["input_ids"][0].tolist() == encoded.ids and given["token_type_ids"][0].tolist() == encoded.sentences
    with torch.no_grad():
        x = ours.model(given["input_ids"], sentences=given["token_type_ids"])
        out = theirs(**given)
        torch.testing.assert_close(ours.model.logits(x), out.prediction_logits, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(ours.model.follows(x[:, 0]), out.seq_relationship_logits, atol=1e-4, rtol=1e-4)


def test_without_next_sentence_it_is_a_masked_language_model(place):
    transformers = pytest.importorskip("transformers")
    given = ["--set=data.next_sentence=false", "--set=data.whole_words=true", "--steps=4", "--name=plain"]
    result = works("train", "mlm", "--data=corpus.txt", *SMALL, *given)
    assert "next_sentence" not in result.out
    assert json.loads((place / "runs/plain/config.json").read_text())["architectures"] == ["BertForMaskedLM"]
    _, info = transformers.BertForMaskedLM.from_pretrained("runs/plain", output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    works("fill", "runs/plain", "The [MASK] is red.")


def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(place, monkeypatch):
    said = ["train", "mlm", "--data=corpus.txt", *SMALL, "--steps=8", "--set=eval_every=2", "--set=model.dropout=0.1",
            "--set=keep_state=true"]  # fmt: skip
    works(*said, "--name=whole")
    run, stop = read_run("runs/whole"), KeyboardInterrupt()
    loader_class = type(assemble(run, "cpu", lambda _: None).loader)
    draw, drawn = loader_class.__next__, []

    def broken(self):
        drawn.append(1)
        if len(drawn) == 6:
            raise stop
        return draw(self)

    with monkeypatch.context() as patch:
        patch.setattr(loader_class, "__next__", broken)
        with pytest.raises(KeyboardInterrupt):
            train_run(run, "runs/cut", quiet=True)
    works("train", "--resume=runs/cut")
    (one, about), (two, other) = (load_state(place / f"runs/{name}/state.safetensors") for name in ("whole", "cut"))
    assert about["loader"] == other["loader"] and one.keys() == two.keys()
    for name, tensor in one.items():
        assert np.array_equal(tensor.numpy(), two[name].numpy()), name


def test_dry_run_and_bad_input(place):
    dry = json.loads(works("train", "mlm", "--data=corpus.txt", "--size=small", "--dry-run", "--json").out)[0]
    assert dry["settings"]["model"]["width"] == 512 and dry["memory"]["activations"] > 0 and dry["parameters"]["masked"]
    assert "train on what" in regard("train", "mlm").err
    assert "no such file" in regard("train", "mlm", "--data=nothing").err
    assert "not for the task mlm" in regard("train", "mlm", "--data=corpus.txt", "--tokens=chars").err
    assert "no architecture 'gpt'" in regard("train", "mlm", "--data=corpus.txt", "--arch=gpt").err
    assert "model.max_length=256" in regard("train", "mlm", "--data=corpus.txt", "--set=data.max_length=256").err
    (place / "one.txt").write_text("A single line. And no more.\n")
    assert "data.documents=lines" in regard("train", "mlm", "--data=one.txt", "--steps=1").err


def test_five_short_texts_are_enough_to_train_and_resume(place, tmp_path, monkeypatch):
    """Its own split may leave one document with two sentences on a side; wrong next sentences are swapped there."""
    texts = tmp_path / "texts"
    texts.mkdir()
    short = ["A cat. It meows.", "One dog.", "Red is a colour. So is blue.", "Two cows.", "A duck!"]
    for number, text in enumerate(short):
        (texts / f"{number}.txt").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    result = works("train", "mlm", "--data=texts", *SMALL, "--steps=2", "--set=keep_state=true", "--name=five")
    assert "done: " in result.err
    (tmp_path / "runs/five/metrics.jsonl").write_text("")
    assert works("train", "--resume", "runs/five").code == 0
