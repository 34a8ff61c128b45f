"""Draws the figures of docs/lectures.md into docs/figures/: two minutes, the same pictures each time. `make docs`"""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from regard.explain import picture
from regard.explain.alignment import Alignment
from regard.lab import figure, recall
from regard.lab import gradients as measured
from regard.lab.report import Measurements
from regard.nn import ladder
from regard.nn.masks import Causal
from regard.nn.positions import Sinusoidal

FOLDER = Path(__file__).parent / "figures"
SENTENCE = ["Lass", "uns", "diesen", "Satz", "uebersetzen"]


def causal() -> None:
    """Who may look at whom in the decoder."""
    fig = picture.figure(4.2, 3.4)
    axes = fig.add_subplot()
    axes.imshow(Causal(len(SENTENCE)).dense(), cmap="cividis", vmin=0, vmax=1)
    axes.set_xticks(range(5), SENTENCE, rotation=45, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(5), SENTENCE)
    axes.xaxis.tick_top()
    axes.set_xlabel("may be looked at (bright)")
    axes.set_ylabel("looks")
    picture.save(fig, FOLDER / "causal.png")


def positions() -> None:
    """The table of section 3.5, and the products of its rows."""
    table = Sinusoidal(48, 48).table
    fig = picture.figure(7.2, 2.8)
    left, right = fig.subplots(1, 2)
    image = left.imshow(table, cmap="cividis", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    left.set_title("PE(p): sines, then cosines", fontsize=9)
    left.set_xlabel("column")
    left.set_ylabel("position p")
    fig.colorbar(image, ax=left)
    image = right.imshow(table @ table.T, cmap="cividis", interpolation="nearest")
    right.set_title("PE(p) · PE(p+k): equal along diagonals", fontsize=9)
    right.set_xlabel("position p + k")
    right.set_ylabel("position p")
    fig.colorbar(image, ax=right)
    picture.save(fig, FOLDER / "positions.png")


def alignment() -> None:
    """The first table under "Alignments" in docs/lectures.md, as `regard translate … --picture` draws it."""
    lines = (FOLDER.parent / "lectures.md").read_text("utf-8").split('red car." --alignment\n', 1)[1].splitlines()[2:]
    source, *rows = [line.split() for line in lines[: lines.index("```")]]
    weights = [[0.0 if cell == "·" else int(cell.rstrip("*")) / 100 for cell in row[1:]] for row in rows]
    drawn = Alignment(tuple(source), tuple(row[0] for row in rows), np.array(weights))
    shrink(drawn.draw(FOLDER / "alignment.png"))


def largest_weight(step: str, d: int) -> float:
    """How much the most-looked-at of 10 words gets on average; queries and keys are random, of 200 sentences."""
    rng = torch.Generator().manual_seed(d)
    words, total = torch.eye(10), 0.0  # one-hot words: their queries and keys are the rows of the maps
    for _ in range(200):
        query, key = torch.randn(2, 10, d, generator=rng)
        total += getattr(ladder, step)(words, query, key, words)[1].amax(-1).mean().item()
    return total / 200


def scaling() -> None:
    """Why scores are divided by √d."""
    widths = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    fig = picture.figure(4.6, 3.0)
    axes = fig.add_subplot()
    steps = {"with_queries_and_keys": "q·k", "scaled": "q·k / √d"}
    for (step, label), colour, dash in zip(steps.items(), picture.COLOURS, picture.DASHES, strict=False):
        axes.plot(widths, [largest_weight(step, d) for d in widths], dash, color=colour, label=label, marker="o")
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1)
    axes.set_xlabel("d, the width of queries and keys")
    axes.set_ylabel("largest of 10 weights")
    axes.legend(frameon=False)
    picture.save(fig, FOLDER / "scaling.png")


def gradients() -> None:
    """How fast the past fades from untrained networks, and what helps: `regard gradients`, the left panel left out."""
    panels = Measurements(radii=measured.radii(200, 0), remedies=measured.remedies(200, 0))
    shrink(figure.draw(panels, FOLDER / "gradients.png", size=(4.6, 3.9)))


def limits() -> None:
    """Plain networks on text: `regard gradients --arch mlp,conv3,conv9,lstm,gpt --memory`, the panels that differ."""
    archs = ("mlp", "conv3", "conv9", "lstm", "gpt")
    models = [measured.architecture(arch, 200, 0) for arch in archs]
    ways = [(arch, first) for arch in archs for first in (False, True) if not (first and arch == recall.FIXED_LENGTH)]
    recalls = [recall.recall(arch, first, 0, "cpu") for arch, first in ways]
    costs = [recall.parameters(arch) for arch in archs]
    panels = Measurements(models=models, memory=recalls, weights=costs)
    shrink(figure.draw(panels, FOLDER / "limits.png"))


def shrink(path: Path) -> None:
    """A third of the size, and it looks the same."""
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for draw in (causal, positions, alignment, scaling, gradients, limits):
        draw()
        print(f"docs/figures/{draw.__name__}.png")
