"""Where an image model looks: attention rolled out through the layers, laid over the picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.explain import picture


def rollout(weights: Tensor) -> Tensor:
    """Abnar and Zuidema 2020: L T T -> T T, how much of each input is in each output.

    A layer keeps half of the residual stream and takes the other half by its attention; layers multiply.
    """
    T = weights.size(-1)
    total = torch.eye(T, dtype=weights.dtype)
    for layer in weights:
        total = (layer + torch.eye(T, dtype=weights.dtype)) / 2 @ total
    return total


def draw(pixels: np.ndarray, whole: np.ndarray, heads: np.ndarray, title: str, path: str | Path) -> Path:
    """Draw H W 3 pixels, the rollout over them, and next to it each head (column) of each layer (row), L H h w."""
    layers, count = heads.shape[:2]
    fig = picture.figure(6.4 + 0.9 * count, max(3.4, 0.95 * layers + 0.6))
    left, right = fig.subfigures(1, 2, width_ratios=[6.4, max(1, 0.9 * count)])
    for axis, map_, name in zip(left.subplots(1, 2), (None, whole), (title, "rollout"), strict=True):
        overlay(axis, pixels, map_)
        axis.set_title(name, fontsize=10)
    axes = right.subplots(layers, count, squeeze=False)
    for (layer, head), axis in np.ndenumerate(axes):
        overlay(axis, pixels, heads[layer, head])
        if layer == 0:
            axis.set_title(f"head {head + 1}", fontsize=8)
        if head == 0:
            axis.set_ylabel(f"layer {layer + 1}", fontsize=8)
    return picture.save(fig, path)


def overlay(axis: Any, pixels: np.ndarray, seen: np.ndarray | None) -> None:
    """The picture in grey with a map over it; without a map, in colour."""
    high, wide = pixels.shape[:2]
    if seen is None:
        axis.imshow(pixels, extent=(0, wide, high, 0))
    else:
        axis.imshow(pixels.mean(-1), cmap="gray", vmin=0, vmax=255, extent=(0, wide, high, 0))
        axis.imshow(seen, cmap="inferno", alpha=0.6, extent=(0, wide, high, 0), interpolation="bilinear")
    axis.set_xticks([])
    axis.set_yticks([])


def draw_words(pixels: np.ndarray, words: Sequence[str], maps: Sequence[np.ndarray], path: str | Path) -> Path:
    """Draw the picture once for each word of its caption, with the attention when the word was emitted."""
    columns = min(6, len(words) + 1)
    rows = -(-(len(words) + 1) // columns)
    fig = picture.figure(1.9 * columns, 2.1 * rows)
    axes = fig.subplots(rows, columns, squeeze=False).ravel()
    overlay(axes[0], pixels, None)
    for axis, word, seen in zip(axes[1:], words, maps, strict=False):
        overlay(axis, pixels, seen)
        axis.set_title(word, fontsize=10)
    for axis in axes[len(words) + 1 :]:
        axis.set_axis_off()
    return picture.save(fig, path)
