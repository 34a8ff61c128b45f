"""Classifiers and taggers at the exact limits of what they read."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import regard
from regard.data.tokenizers.encoder import Encoded
from regard.data.tokenizers.wordpiece import WordPiece
from regard.models.bert import Bert, BertConfig
from regard.models.published import to_published, weights_bytes
from regard.models.rnn_classifier import RecurrentClassifier, RecurrentClassifierConfig
from regard.predictors.labeller import Classifier, Tagger

LINES = ["low lower lowest new newer newest wide wider widest", "slow slower"] * 4
PIECES = WordPiece.train(LINES, 70)
BERT = BertConfig(
    vocab=PIECES.size, width=8, layers=1, heads=2, ffn=8, max_length=128, head="sequence", labels=("a", "b")
)


@pytest.mark.parametrize(
    ("tokenizer", "model", "limit"),
    [(512, 128, 128), (64, 128, 64), (128, 128, 128), (None, 128, 128), (10**30, 128, 128), (96, None, 96),
     (None, None, 512)],
)  # fmt: skip
def test_the_smaller_of_two_limits_counts(tmp_path, tokenizer, model, limit):
    """A tokenizer may claim more than the model has places for, and a recurrent model has no limit of its own."""
    torch.manual_seed(0)
    if model is None:
        net = RecurrentClassifier(RecurrentClassifierConfig(vocab=PIECES.size, embedding=4, width=4, labels=("a", "b")))
    else:
        net = Bert(replace(BERT, max_length=model))
    PIECES.save(tmp_path, 0)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del config["model_max_length"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"model_max_length": tokenizer}))
    (tmp_path / "config.json").write_text(json.dumps(to_published(net.config)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(net))
    classifier = regard.load(tmp_path)
    assert classifier.max_length == limit
    assert classifier.classify(["low " * 600])[0].label in ("a", "b"), "a long text is cut, whatever the file claims"


def test_a_text_is_cut_only_over_the_limit(shake):
    torch.manual_seed(0)
    classifier = Classifier(shake(Bert(replace(BERT, max_length=8))), PIECES)
    fits, over = "low " * 6, "low " * 6 + "wide"  # and [CLS] and [SEP]
    assert (classifier.cut([fits]), classifier.cut([over]), classifier.cut([over, fits, over])) == (0, 1, 2)
    assert np.allclose(classifier.probabilities([fits]), classifier.probabilities([over]))
    assert not np.allclose(classifier.probabilities(["low " * 5]), classifier.probabilities([fits]))


class Counting(Tagger):
    """Says of each word how many of its pieces it sees, as tenths of a probability."""

    def _states(self, texts: list[Encoded], tokens: int = 4096) -> list[np.ndarray]:
        seen = [[text.words.count(word) / 10 if word is not None else 0.0 for word in text.words] for text in texts]
        return [np.array([[0.0, p] for p in row]) for row in seen]


@pytest.mark.parametrize("room", range(7, 24))
def test_a_word_cut_at_the_limit_is_read_again_whole(room):
    """Wherever the limit falls, each word is labelled by a part that holds all of its pieces."""
    torch.manual_seed(0)
    tagger = Counting(Bert(replace(BERT, max_length=room, head="token", labels=("O", "x"))), PIECES)
    words = ["newness", "low", "wideness", "slowest", "low", "lowerer", "newestest", "wide", "lowness"]
    sizes = [len(PIECES.encode_words([word]).ids) - 2 for word in words]
    assert max(sizes) <= 5 and len(set(sizes)) > 2, "words of many lengths, all of which fit"
    ((_, likely),) = tagger.tag_words([words])
    assert [round(10 * p) for p in likely] == sizes
    both = tagger.tag_words([words, words[:2], words[::-1]])
    assert [round(10 * p) for p in both[2][1]] == sizes[::-1] and len(both[1][0]) == 2


def test_a_word_longer_than_the_limit_does_not_stop_the_tagger():
    torch.manual_seed(0)
    tagger = Counting(Bert(replace(BERT, max_length=6, head="token", labels=("O", "x"))), PIECES)
    words = ["low", "neweweweweww", "low"]
    ((labels, likely),) = tagger.tag_words([words])
    assert len(labels) == 3 and [round(10 * p) for p in likely] == [1, 4, 1]
