"""Draws the figures of docs/lectures.md into docs/figures/: a few seconds, the same pictures each time. `make docs`"""

from pathlib import Path

import torch
from torch import Tensor

from regard.explain import picture
from regard.nn import ladder
from regard.nn.masks import Causal
from regard.nn.positions import Sinusoidal
from regard.nn.recurrent import PLAIN_CELLS, unroll

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


def largest_weight(step: str, d: int) -> float:
    """How much the most-looked-at of 10 words gets on average; queries and keys are random, of 200 sentences."""
    draw = torch.Generator().manual_seed(d)
    words, total = torch.eye(10), 0.0  # one-hot words: their queries and keys are the rows of the maps
    for _ in range(200):
        query, key = torch.randn(2, 10, d, generator=draw)
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


def reach(cell: str, steps: int, draws: int, forget: float = 0.0) -> Tensor:
    """The norm of d(last state)/d(input k steps before), k = 0, 1, …; the mean of `draws` untrained cells.

    `forget` is added to an LSTM's forget gate: 3 opens it by 95 %.
    """
    total = torch.zeros(steps)
    for seed in range(draws):
        torch.manual_seed(seed)
        net = PLAIN_CELLS[cell](64, 64)
        if forget:
            net.bias_ih.data.chunk(4)[1].add_(forget)
        x = torch.randn(1, steps, 64, requires_grad=True)
        first = tuple(torch.zeros(1, 64) for _ in range(2 if cell == "lstm" else 1))
        last = unroll(net, x, first)[1][0]
        (grad,) = torch.autograd.grad(last, x, torch.randn(1, 64))
        total += grad[0].norm(dim=-1).flip(0)
    return total / draws


def gradients() -> None:
    """How fast the past fades from untrained recurrent cells."""
    fig = picture.figure(4.6, 3.0)
    axes = fig.add_subplot()
    cells = {"rnn": ("rnn", 0.0), "gru": ("gru", 0.0), "lstm": ("lstm", 0.0), "lstm, forget gate open": ("lstm", 3.0)}
    for (label, (cell, forget)), colour, dash in zip(cells.items(), picture.COLOURS, picture.DASHES, strict=False):
        axes.plot(reach(cell, 40, 20, forget), dash, color=colour, label=label)
    axes.set_yscale("log")
    axes.set_xlabel("k, steps back")
    axes.set_ylabel("gradient of the last state")
    axes.legend(frameon=False, fontsize=8)
    picture.save(fig, FOLDER / "gradients.png")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for draw in (causal, positions, scaling, gradients):
        draw()
        print(f"docs/figures/{draw.__name__}.png")
