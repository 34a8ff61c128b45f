"""`regard gradients` as one picture: a panel for each thing measured."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.explain import picture
from regard.explain.gradients import FLOAT32, Fading
from regard.explain.recall import SYMBOLS, TOKENS, Pace, Recall, Weights

COLOURS = [c for c in picture.COLOURS if c != "#F0E442"]  # yellow is lost on white
MARKS = "os^Dv<P*X"
FLOORS = {"remedies": 1e-15}  # a closer look at what stays; what falls further leaves the panel
FLOOR = 1e-50


def draw(
    groups: Mapping[str, Sequence[Fading]],
    recalls: Sequence[Recall],
    costs: Sequence[Weights],
    paces: Sequence[Pace],
    path: str | Path,
    size: tuple[float, float] = (4.6, 4.4),
) -> Path:
    """Gradients by distance, a panel a group, then recall, weights and speed where they were measured; `size` is that
    of a panel."""
    panels = len(groups) + bool(recalls) + bool(costs) + bool(paces)
    across = 2 if panels == 4 else min(panels, 3)
    down = -(-panels // across)
    fig = picture.figure(size[0] * across, size[1] * down)
    axes = list(fig.subplots(down, across, squeeze=False).flat)
    for title, group in groups.items():
        fadings(axes.pop(0), title, group)
    if recalls:
        memory(axes.pop(0), recalls)
    if costs:
        weights(axes.pop(0), costs)
    if paces:
        speed(axes.pop(0), paces)
    for spare in axes:
        spare.set_axis_off()
    return picture.save(fig, path)


def look(i: int) -> dict[str, Any]:
    """Colour, dash and mark of the i-th line: told apart in grey, too."""
    return dict(color=COLOURS[i % len(COLOURS)], linestyle=picture.DASHES[i % 4], marker=MARKS[i % len(MARKS)])


def fadings(axes: Any, title: str, group: Sequence[Fading]) -> None:
    length, floor = len(group[0].norms) - 1, FLOORS.get(title, FLOOR)
    distances = range(1, length + 1)
    for i, fading in enumerate(group):
        marks = (i * length // 50, max(length // 6, 1))  # not on top of each other
        values = [fading.at(k) for k in distances]
        axes.plot(distances, values, **look(i), markevery=marks, markersize=4, linewidth=1.4, label=fading.name)
    axes.set_yscale("log")
    axes.set_ylim(floor, max(1e3, 30 * max(max(f.norms[1:]) / f.norms[1] for f in group)))
    if floor < FLOAT32:
        note(axes, length, FLOAT32, "float32 ends")
    axes.set_xlabel("distance, in steps back")
    axes.set_ylabel("gradient, relative to distance 1")
    finish(axes, title)


def memory(axes: Any, recalls: Sequence[Recall]) -> None:
    names = list(dict.fromkeys(r.name for r in recalls))
    for r in recalls:
        style = look(names.index(r.name)) | dict(linestyle="-" if r.short_first else ":")
        style |= dict(fillstyle="full" if r.short_first else "none", markersize=6, linewidth=1.4)
        label = f"{r.name}, short first" if r.short_first else f"{r.name}, from nothing"
        beside = [
            d * 1.06 ** names.index(r.name) for d in r.accuracy
        ]  # marks at the same height do not hide each other
        axes.plot(beside, list(r.accuracy.values()), **style, label=label)
    tried = sorted({d for r in recalls for d in r.accuracy})
    note(axes, tried[0], 1 / SYMBOLS, "chance", ha="left")
    axes.set_xscale("log")
    axes.set_xticks(tried, [f"{d:,}" for d in tried])
    axes.set_xticks([], minor=True)
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("distance of the symbol to recall")
    axes.set_ylabel("share of right answers")
    finish(axes, "recall after training (a line ends where it failed)")


def weights(axes: Any, costs: Sequence[Weights]) -> None:
    for i, cost in enumerate(costs):
        axes.plot(list(cost.numbers), list(cost.numbers.values()), **look(i), markersize=5, label=cost.name)
    distances = list(costs[0].numbers)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(distances, [f"{d:,}" for d in distances])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("distance of the symbol to recall")
    axes.set_ylabel("weights of the model")
    finish(axes, "what reading so far costs")


def speed(axes: Any, paces: Sequence[Pace]) -> None:
    for i, p in enumerate(paces):
        axes.plot(list(p.seconds), [1000 * s for s in p.seconds.values()], **look(i), markersize=5, label=p.name)
    lengths = list(paces[0].seconds)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
    axes.set_xlabel(f"length of the sequences, {TOKENS:,} tokens in all")
    axes.set_ylabel("forward and backward, ms")
    finish(axes, "time of a step")


def note(axes: Any, x: float, y: float, words: str, ha: str = "right") -> None:
    """A level, and what it is."""
    axes.axhline(y, color="grey", linewidth=0.8, linestyle=":")
    axes.text(x, y, words, ha=ha, va="bottom", fontsize=8, color="grey")


def finish(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=8, ncol=2, loc="upper center", bbox_to_anchor=(0.46, -0.16), handlelength=3)
