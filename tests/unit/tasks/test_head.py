"""A head that begins as a probe gives the probabilities of scikit-learn's logistic regression on the same states."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from regard.data.batch import collate_labelled
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
    theirs = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=300))
    theirs.fit(states.double().numpy(), texts.labels)
    np.testing.assert_allclose(ours, theirs.predict_proba(states.double().numpy()), atol=1e-3)


def test_a_missing_class_leaves_the_head_as_it_is():
    model = classifier(3)
    before = model.classifier.weight.clone()
    assert fit_head_(model, Texts(np.arange(60) % 2), seed=0) == 0
    assert torch.equal(model.classifier.weight, before)
