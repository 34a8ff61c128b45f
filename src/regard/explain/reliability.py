"""A reliability diagram: confidence vs. accuracy of a classifier (DeGroot and Fienberg 1983)."""

from collections.abc import Sequence
from pathlib import Path

from regard.explain import picture
from regard.metrics.labels import Bin


def draw(bins: Sequence[Bin], error: float, path: str | Path) -> Path:
    """Bars on the dashed line are calibrated; below it the model is overconfident. Underneath, a histogram."""
    fig = picture.figure(4.2, 5.0)
    top, bottom = fig.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    middles, width = [(b.low + b.high) / 2 for b in bins], bins[0].high - bins[0].low
    top.bar(middles, [b.accuracy for b in bins], width, color=picture.COLOURS[0], edgecolor="white")
    top.plot([0, 1], [0, 1], color=picture.COLOURS[6], linestyle="--", linewidth=1)
    top.plot([b.confidence for b in bins], [b.accuracy for b in bins], "o", color=picture.COLOURS[1], markersize=4)
    top.set_ylabel("accuracy")
    top.set_ylim(0, 1)
    top.set_title(f"calibration error {error:.1%}", fontsize=10)
    bottom.bar(middles, [b.count for b in bins], width, color=picture.COLOURS[5], edgecolor="white")
    bottom.set_ylabel("predictions")
    bottom.set_xlabel("confidence")
    bottom.set_xlim(0, 1)
    return picture.save(fig, path)
