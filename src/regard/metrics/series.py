"""Baselines and scores for classifiers of series: nearest neighbours of simple summaries, class-balanced scores."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.series import Curves

NEIGHBOURS = 5
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
LAGS = (1, 2, 4, 8, 16)


def summary(curves: Curves) -> np.ndarray:
    """N F features of each series: quantiles and spread, autocorrelation, the levels of its bands, its length in time
    and points, and its metadata."""
    rows = []
    for i in range(len(curves)):
        at = slice(curves.offsets[i], curves.offsets[i + 1])
        x, t = curves.values[at], curves.times[at]
        which = np.zeros(len(x), int) if curves.bands is None else curves.bands[at]
        middle, spread = x.mean(), x.std()
        z = (x - middle) / (spread or 1.0)
        lags = [float((z[k:] * z[:-k]).mean()) if len(z) > k else 0.0 for k in LAGS]
        levels = [float((x[which == b]).mean() - middle) if (which == b).any() else 0.0 for b in _bands(curves)]
        features = [*np.quantile(z, SHARES), np.arcsinh(middle), np.log(spread + 1e-9), *lags]
        features += [np.arcsinh(level) for level in levels] + [np.log(len(x)), np.log1p(t[-1] - t[0])]
        rows.append([*features, *(curves.known[i] if curves.known is not None else ())])
    return np.array(rows, dtype=np.float64)


def _bands(curves: Curves) -> range:
    return range(len(curves.band_names) if len(curves.band_names) > 1 else 0)


def nearest(train: Curves, test: Curves) -> list[str]:
    """The majority label of the five training series with the nearest summaries, standardised."""
    ours, theirs = summary(train), summary(test)
    there = ~np.isnan(ours)
    middle = np.where(there, ours, 0.0).sum(0) / np.maximum(1, there.sum(0))
    ours, theirs = (np.where(np.isnan(x), middle, x) for x in (ours, theirs))  # where a number is missing
    spread = ours.std(0)
    spread[spread == 0] = 1.0
    ours, theirs = (ours - middle) / spread, (theirs - middle) / spread
    labels, nearest_labels = np.array(train.labels), []
    for start in range(0, len(theirs), 256):
        some = theirs[start : start + 256]
        distance = (some**2).sum(1)[:, None] - 2 * some @ ours.T + (ours**2).sum(1)
        near = np.argsort(distance, 1, kind="stable")[:, :NEIGHBOURS]
        for row in labels[near]:
            names, counts = np.unique(row, return_counts=True)
            best = names[counts == counts.max()]
            nearest_labels.append(str(next(name for name in row if name in best)))  # a tie goes to the nearest
    return nearest_labels


def balanced_accuracy(true: np.ndarray, predicted: np.ndarray) -> float:
    """The mean recall over the classes that occur."""
    return float(np.mean([(predicted[true == c] == c).mean() for c in np.unique(true)]))


def weighted_log_loss(likely: np.ndarray, true: np.ndarray, weights: Sequence[float]) -> float:
    """The PLAsTiCC challenge's metric (Malz et al. 2019): the weighted mean of the log-losses of the classes that
    occur. N L probabilities, N classes, L weights."""
    logs = -np.log(np.clip(likely[np.arange(len(true)), true], 1e-15, 1.0))
    classes = np.unique(true)
    w = np.asarray(weights, dtype=float)[classes]
    return float(sum(w * [logs[true == c].mean() for c in classes]) / w.sum())


@dataclass(frozen=True)
class SeriesBaseline:
    """Accuracy and balanced accuracy of the nearest neighbours by summary, and accuracy of the majority class."""

    nearest: float
    balanced: float
    majority: float

    def __str__(self) -> str:
        return (
            f"nearest neighbours by summary, accuracy {self.nearest:.1%} (balanced {self.balanced:.1%}); "
            f"majority class, accuracy {self.majority:.1%}"
        )


def baseline(train: Curves, test: Curves) -> SeriesBaseline:
    true, predicted = np.array(test.labels), np.array(nearest(train, test))
    common = max(sorted(set(train.labels)), key=train.labels.count)
    return SeriesBaseline(
        float((true == predicted).mean()), balanced_accuracy(true, predicted), float((true == common).mean())
    )
