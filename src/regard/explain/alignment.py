"""Which source words a translation attends to: cross-attention weights, from pieces to words.

Row i holds the weights of the decoder when it chose target word i, and sums to one. Attention is evidence of what was
read, not proof of what was meant; `</s>` often takes the weight of words that need nothing from the source, and is
shown for that reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import ConfigError, ShapeError
from regard.explain import picture

END = "</s>"


@dataclass(frozen=True)
class Alignment:
    """Weights of every target word (row) over the source words (columns); each side may end in `</s>`."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: np.ndarray  # T S, rows sum to one

    def links(self) -> list[tuple[int, int]]:
        """(source, target) numbers: each target word with the source word it attends to most, without `</s>`."""
        columns = [i for i, word in enumerate(self.source) if word != END]
        if not columns:
            return []
        rows = [j for j, word in enumerate(self.target) if word != END]
        return [(columns[int(self.weights[j, columns].argmax())], j) for j in rows]

    def pharaoh(self) -> str:
        """The links as `0-0 1-2`, source first: the format of word-alignment tools."""
        return " ".join(f"{i}-{j}" for i, j in sorted(self.links()))

    def table(self, width: int = 10) -> str:
        """Percentages as a table for the terminal: weights under 5 % are a dot, the largest of a row has a star."""
        label = max((len(w) for w in self.target), default=0)
        cells = [max(5, min(width, len(w))) for w in self.source]
        head = " " * label + "  " + " ".join(_cut(w, n).rjust(n) for w, n in zip(self.source, cells, strict=True))
        lines = [head]
        for word, row in zip(self.target, self.weights, strict=True):
            best = int(row.argmax())
            marks = [
                ("·" if x < 0.05 else f"{100 * x:.0f}" + ("*" if i == best else "")).rjust(n)
                for i, (x, n) in enumerate(zip(row, cells, strict=True))
            ]
            lines.append(word.ljust(label) + "  " + " ".join(marks))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": list(self.source),
            "target": list(self.target),
            "weights": [[round(float(x), 4) for x in row] for row in self.weights],
            "links": self.pharaoh(),
        }

    def draw(self, path: str | Path, title: str = "") -> Path:
        """Draw the weights (.png, .svg or .pdf): bright is high."""
        rows, columns = self.weights.shape
        fig = picture.figure(max(3.0, 1.6 + 0.5 * columns), max(2.5, 1.2 + 0.4 * rows))
        axes = fig.add_subplot()
        image = axes.imshow(self.weights, cmap="cividis", vmin=0.0, aspect="auto")
        source, target = ([picture.plain(word) for word in words] for words in (self.source, self.target))
        axes.set_xticks(range(columns), source, rotation=45, ha="left", rotation_mode="anchor")
        axes.set_yticks(range(rows), target)
        axes.xaxis.tick_top()
        axes.set_xlabel("source" if not title else f"source · {picture.plain(title)}")
        axes.set_ylabel("translation")
        fig.colorbar(image, ax=axes, label="attention", shrink=0.8)
        return picture.save(fig, path)


def align_words(
    weights: np.ndarray,
    source: Sequence[str],
    source_sizes: Sequence[int],
    target: Sequence[str],
    target_sizes: Sequence[int],
) -> Alignment:
    """Merge piece weights (T S) to words: source pieces are summed, target pieces averaged, so rows still sum to one.

    `source_sizes[i]` is how many pieces word `source[i]` has. One column or row more than the pieces is `</s>`.
    """
    weights = np.asarray(weights, dtype=np.float64)
    source, source_sizes = _with_end(source, source_sizes, weights.shape[1], "source")
    target, target_sizes = _with_end(target, target_sizes, weights.shape[0], "target")
    columns = np.add.reduceat(weights, _starts(source_sizes), axis=1)
    rows = np.add.reduceat(columns, _starts(target_sizes), axis=0) / np.asarray(target_sizes)[:, None]
    return Alignment(tuple(source), tuple(target), rows)


def align_pieces(weights: np.ndarray, source: Sequence[int], target: Sequence[int], tokenizer: Any) -> Alignment:
    """`align_words` for piece weights (T S) and the ids along both sides; `tokenizer` knows where words begin."""
    sides = [(_words(ids, tokenizer), tokenizer.words(ids)) for ids in (source, target)]
    (left, left_groups), (right, right_groups) = sides
    return align_words(weights, left, [len(g) for g in left_groups], right, [len(g) for g in right_groups])


def choose(weights: np.ndarray, layer: int = 0, head: int = 0) -> np.ndarray:
    """T S out of L H T S. Layers and heads count from 1; head 0 is the mean of all heads, layer 0 the sharpest layer.

    Sharpest: its heads' mean has the least entropy over the source, without the end mark, on which a layer that attends
    to nothing rests. Which layer aligns differs from model to model, but one that aligns is sharp.
    """
    layers, heads = weights.shape[:2]
    if not 0 <= layer <= layers:
        raise ConfigError(f"--layer {layer}: this model's decoder has layers 1 to {layers}")
    if not 0 <= head <= heads:
        raise ConfigError(f"--head {head}: this model has heads 1 to {heads}")
    chosen = weights[layer - 1] if layer else min(weights, key=lambda w: entropy(w.mean(0)[:, :-1]))
    return chosen[head - 1] if head else chosen.mean(0)


def entropy(weights: np.ndarray) -> float:
    """Mean over rows of -Σ p log p, each row normalised: 0 if each attends to one position only."""
    p = np.maximum(weights, 1e-9) / np.maximum(weights, 1e-9).sum(-1, keepdims=True)
    return float(-(p * np.log(p)).sum(-1).mean())


def draw_heads(weights: np.ndarray, source: Sequence[str], target: Sequence[str], path: str | Path) -> Path:
    """Every layer (row) and head (column) of L H T S weights in one picture, piece by piece."""
    layers, heads, rows, columns = weights.shape
    fig = picture.figure(1.0 + heads * max(1.6, 0.22 * columns), 0.8 + layers * max(1.4, 0.2 * rows))
    grid = fig.subplots(layers, heads, squeeze=False, sharex=True, sharey=True)
    for (i, j), axes in np.ndenumerate(grid):
        picture.heatmap(axes, weights[i, j], target, source, f"layer {i + 1}, head {j + 1}", 1.0)
    return picture.save(fig, path)


def _words(ids: Sequence[int], tokenizer: Any) -> list[str]:
    return [tokenizer.decode([ids[i] for i in group]).strip() or "▁" for group in tokenizer.words(ids)]


def _with_end(words: Sequence[str], sizes: Sequence[int], pieces: int, side: str) -> tuple[list[str], list[int]]:
    if sum(sizes) == pieces:
        return list(words), list(sizes)
    if sum(sizes) == pieces - 1:
        return [*words, END], [*sizes, 1]
    raise ShapeError(f"{side}: {sum(sizes)} pieces in {len(words)} words, but weights for {pieces} pieces")


def _starts(sizes: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int)


def _cut(word: str, width: int) -> str:
    return word if len(word) <= width else word[: width - 1] + "…"
