"""A head that begins as a probe gives the probabilities of scikit-learn's logistic regression on the same states."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from regard.data.batch import collate_labelled
from regard.data.settings import NONE
from regard.models.bert import Bert, BertConfig
from regard.tasks.head import C, fit_head_


class Texts:
    """Random texts of 3 to 7 pieces."""

    def __init__(self, labels: np.ndarray):
        rng = np.random.default_rng(0)
        self.labels, self.lengths = labels, rng.integers(3, 8, (len(labels), 1))
        self.ids = [rng.integers(0, 20, n) for n in self.lengths[:, 0]]

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: np.ndarray):
        return collate_labelled([(self.ids[i], len(self.ids[i]), self.labels[[i]]) for i in rows], 0, False, rows)


def classifier(labels: int) -> Bert:
    torch.manual_seed(0)
    shape = dict(vocab=20, width=16, layers=1, heads=2, ffn=16, max_length=8, dropout=0.1)
    return Bert(BertConfig(**shape, head="sequence", pooling="mean", labels=tuple("abc"[:labels])))


@pytest.mark.parametrize("labels", [2, 3])
def test_the_head_is_a_logistic_regression_of_the_states(labels):
    texts, model = Texts(np.arange(90) % labels), classifier(labels)
    assert fit_head_(model, texts, seed=0) == 90
    model.eval()
    batch = texts.batch(np.arange(90))
    with torch.no_grad():
        states = model.summary(model(batch.ids, batch.lengths, batch.sentences), batch.lengths)
        ours = model.scores(states).softmax(-1).numpy()
    states = states if model.pooler is None else model.pooled(states)
    theirs = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=100))
    theirs.fit(states.double().numpy(), texts.labels)
    np.testing.assert_allclose(ours, theirs.predict_proba(states.double().numpy()), atol=1e-3)


def test_states_that_hardly_vary_get_no_large_weights():
    """MiniLM's last norm scales two of its states by 1e-33; a probe of standardised states divides by their spread."""
    texts, usual, flat = Texts(np.arange(90) % 2), classifier(2), classifier(2)
    with torch.no_grad():
        flat.layers[-1].norm2.weight[3] = 6e-33
        flat.layers[-1].norm2.bias[3] = 8e-33
    for model in (usual, flat):
        fit_head_(model, texts, seed=0)
    assert flat.classifier.weight.abs().max() < 2 * usual.classifier.weight.abs().max()


def test_a_missing_class_leaves_the_head_as_it_is():
    model = classifier(3)
    before = model.classifier.weight.clone()
    assert fit_head_(model, Texts(np.arange(60) % 2), seed=0) == 0
    assert torch.equal(model.classifier.weight, before)


def test_a_tagger_begins_as_a_probe_of_its_words():
    torch.manual_seed(0)
    shape = dict(vocab=20, width=16, layers=1, heads=2, ffn=16, max_length=8, dropout=0.1)
    model, rng = Bert(BertConfig(**shape, head="token", labels=("a", "b", "c", "d"))), np.random.default_rng(1)
    texts = Texts(np.zeros(60, int))
    tags = [np.where(rng.random(len(ids)) < 0.2, NONE, ids % 3) for ids in texts.ids]  # "d" is never met

    class Words(Texts):
        def batch(self, rows: np.ndarray):
            return collate_labelled([(self.ids[i], len(self.ids[i]), tags[i]) for i in rows], 0, True, rows)

    words = Words(texts.labels)
    assert fit_head_(model, words, seed=0) == 60
    model.eval()
    batch = words.batch(np.arange(60))
    with torch.no_grad():
        hidden = model(batch.ids, batch.lengths, batch.sentences)[batch.labels != NONE]
        ours = model.scores(hidden).numpy()
    theirs = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=100))
    theirs.fit(hidden.double().numpy(), batch.labels[batch.labels != NONE].numpy())
    expected = theirs.decision_function(hidden.double().numpy())
    np.testing.assert_allclose(ours[:, :3] - ours[:, :1], expected - expected[:, :1], atol=1e-3)
    assert (ours.argmax(1) < 3).all()
