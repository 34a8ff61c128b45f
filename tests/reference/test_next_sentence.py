"""The next-sentence head, asked by `regard classify`: transformers' probabilities."""

import json

import pytest
import torch
import transformers
from tests.system.cli_toy import regard, works

from regard.data.tokenizers.wordpiece import WordPiece
from regard.models import build
from regard.models.bert import BertConfig
from regard.predictors import Embedder
from regard.tasks.load import open_model

PAIRS = [("the cat sat", "it was on the mat"), ("be alert", "the cat"), ("a", "b " * 60)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tests.conftest import shake

    path = tmp_path_factory.mktemp("bert") / "b"
    pieces = WordPiece.train(["the cat sat on the mat", "be alert it was a b"] * 4, 80)
    config = BertConfig(vocab=pieces.size, width=16, layers=2, heads=2, ffn=24, max_length=32, head="pretraining")
    Embedder(shake(build(config), 4.0), pieces).save(path)
    (path / "regard.json").unlink()
    return path


def test_probabilities_are_theirs(folder):
    theirs = transformers.BertForNextSentencePrediction.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    firsts, seconds = zip(*PAIRS, strict=True)
    batch = tokenizer(list(firsts), list(seconds), padding=True, truncation=True, max_length=32, return_tensors="pt")
    expected = theirs(**batch).logits.softmax(-1)
    task, predictor = open_model(folder, verb="classify")
    mine = torch.tensor([list(a.probabilities.values()) for a in predictor.predict(PAIRS)])
    torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-6, check_dtype=False)
    assert task.name == "next-sentence" and predictor.labels == ("is next", "not next")


def test_the_command_line_asks_either_head(folder):
    answer = json.loads(works("classify", folder, *PAIRS[0], "--json").out)
    assert sum(answer["probabilities"].values()) == pytest.approx(1.0)
    assert works("fill", folder, "the [MASK] sat", "--json").code == 0
    alone = regard("classify", folder, "the cat sat")
    assert alone.code == 2 and "expected two texts" in alone.err
