"""sentence-transformers, where it is installed, opens our embedding folder and makes the same vectors; and back."""

import numpy as np
import pytest
import torch

import regard
from regard.data.tokenizers.wordpiece import WordPiece
from regard.models import build
from regard.models.bert import BertConfig
from regard.models.published.sentence import Sentences
from regard.predictors import Embedder

theirs = pytest.importorskip("sentence_transformers")
TEXTS = ["A cat sits on the mat.", "dogs", "", "The curious kitten climbed the bookshelf!", "the cat sat on " * 30]


@pytest.mark.parametrize(
    "settings", [{}, dict(pooling="cls", normalise=False), dict(pooling="max", max_length=16)], ids=str
)
def test_folders_go_both_ways(shake, tmp_path, settings):
    pieces = WordPiece.train(TEXTS, 110)
    config = BertConfig(vocab=pieces.size, width=32, layers=2, heads=4, ffn=48, max_length=40)
    ours = Embedder(shake(build(config), 4.0), pieces, settings=Sentences(**settings))
    ours.save(tmp_path / "ours")
    model = theirs.SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    with torch.no_grad():
        np.testing.assert_allclose(model.encode(TEXTS), ours.embed(TEXTS), rtol=1e-4, atol=1e-5)
    model.save(str(tmp_path / "theirs"))
    again = regard.load(tmp_path / "theirs")
    assert again.settings == ours.settings
    np.testing.assert_allclose(again.embed(TEXTS), ours.embed(TEXTS), rtol=1e-4, atol=1e-5)
