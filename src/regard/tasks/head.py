"""A new head that starts as a linear probe of the model below it."""

from typing import Any

import numpy as np
import torch

from regard.data.settings import NONE
from regard.objectives.base import evaluating

TEXTS = 512  # the probe's training texts, at most: a few seconds on two cores
TOGETHER = 32  # read at a time
FLAT = 0.1  # of the median spread, at least: MiniLM has constant states, and gradients grow with 1/spread
C = 0.01  # the probe's inverse regularisation, on standardised states: strong, as there are more states than texts


def fit_head_(model: Any, source: Any, seed: int) -> int:
    """Set the classifier to a logistic regression on the model's states of some training texts, or of their words for
    taggers (LP-FT, Kumar et al. 2022). Returns how many texts.

    0: they lack a class of texts, or have only one of words, and nothing was changed.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    rows = np.random.default_rng(seed).permutation(len(source))[:TEXTS]
    rows = rows[np.argsort(source.lengths[rows, 0], kind="stable")]  # similar lengths together: little padding
    features, labels = [], []
    with evaluating(model):
        for start in range(0, len(rows), TOGETHER):
            batch = source.batch(rows[start : start + TOGETHER])
            hidden = model(batch.ids, batch.lengths, batch.sentences)
            if model.config.head == "token":
                chosen = batch.labels != NONE
                features.append(hidden[chosen])
                labels.append(batch.labels[chosen])
                continue
            summary = model.summary(hidden, batch.lengths)
            features.append(summary if model.pooler is None else model.pooled(summary))
            labels.append(batch.labels)
    x, y = torch.cat(features).double().numpy(), torch.cat(labels).numpy().reshape(-1)
    classes = np.unique(y)
    if len(classes) < (2 if model.config.head == "token" else len(model.config.labels)):
        return 0
    scaler: Any = StandardScaler().fit(x)
    scaler.scale_ = np.maximum(scaler.scale_, FLAT * np.median(scaler.scale_))
    probe: Any = LogisticRegression(C=C, max_iter=100).fit(scaler.transform(x), y)
    weight, bias = torch.from_numpy(probe.coef_ / scaler.scale_), torch.from_numpy(probe.intercept_)
    bias -= weight @ torch.from_numpy(scaler.mean_)
    if len(bias) == 1:  # two classes have one margin: half of it for each
        weight, bias = torch.cat((-weight, weight)) / 2, torch.cat((-bias, bias)) / 2
    with torch.no_grad():
        model.classifier.weight.zero_()[classes] = weight.float()
        model.classifier.bias.fill_(bias.min().item())[classes] = bias.float()  # unseen tags: as rare as the rarest
    return len(rows)
