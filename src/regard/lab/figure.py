"""`regard gradients` as one picture: a panel for each measurement."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.explain import picture
from regard.lab.gradients import FLOAT32, Decay
from regard.lab.recall import SYMBOLS, TOKENS, Recall
from regard.lab.report import TITLES, Measurements

COLOURS = [c for c in picture.COLOURS if c != "#F0E442"]  # yellow is hard to see on white
MARKERS = "os^Dv<P*X"
FLOOR, FLOORS = 1e-50, {"remedies": 1e-15}  # remedies: zoomed in on what persists


def draw(measured: Measurements, path: str | Path, size: tuple[float, float] = (4.6, 4.4)) -> Path:
    """Draw gradients by distance, a panel per group, then recall, parameters and speed if measured; `size` is a
    panel's."""
    panels = [(name, group) for name, group in vars(measured).items() if group and name != "clipping"]
    across = 2 if len(panels) == 4 else min(len(panels), 3)
    down = -(-len(panels) // across)
    fig = picture.figure(size[0] * across, size[1] * down)
    axes = list(fig.subplots(down, across, squeeze=False).flat)
    for name, group in panels:
        {"memory": memory, "weights": weights, "speed": speed}.get(name, decays)(axes.pop(0), group, name)
    for spare in axes:
        spare.set_axis_off()
    return picture.save(fig, path)


def style(i: int) -> dict[str, Any]:
    """Colour, dash and marker of the i-th line, distinct in grey too."""
    return dict(color=COLOURS[i % len(COLOURS)], linestyle=picture.DASHES[i % 4], marker=MARKERS[i % len(MARKERS)])


def decays(axes: Any, group: Sequence[Decay], name: str) -> None:
    length, floor = len(group[0].norms) - 1, FLOORS.get(name, FLOOR)
    distances = range(1, length + 1)
    for i, decay in enumerate(group):
        marks = (i * length // 50, max(length // 6, 1))  # staggered
        values = [decay.at(k) for k in distances]
        axes.plot(distances, values, **style(i), markevery=marks, markersize=4, linewidth=1.4, label=decay.name)
    axes.set_yscale("log")
    axes.set_ylim(floor, max(1e3, 30 * max(max(d.norms[1:]) / d.norms[1] for d in group)))
    if floor < FLOAT32:
        level(axes, length, FLOAT32, "float32 ends")
    finish(axes, TITLES[name], "distance, in steps back", "gradient, relative to distance 1")


def memory(axes: Any, recalls: Sequence[Recall], _: str) -> None:
    names = list(dict.fromkeys(r.name for r in recalls))
    for r in recalls:
        line = style(names.index(r.name)) | dict(linestyle="-" if r.short_first else ":")
        line |= dict(fillstyle="full" if r.short_first else "none", markersize=6, linewidth=1.4)
        shifted = [d * 1.06 ** names.index(r.name) for d in r.accuracy]  # so that markers do not hide each other
        label = f"{r.name}, {'short first' if r.short_first else 'from scratch'}"
        axes.plot(shifted, list(r.accuracy.values()), **line, label=label)
    tried = sorted({d for r in recalls for d in r.accuracy})
    level(axes, tried[0], 1 / SYMBOLS, "guessing", ha="left")
    axes.set_ylim(0, 1.05)
    axes.set_xscale("log")
    title = "recall after training (a line ends where it failed)"
    finish(axes, title, "distance of the symbol to recall", "accuracy", tried)


def weights(axes: Any, group: Sequence[Any], _: str) -> None:
    for i, cost in enumerate(group):
        axes.plot(list(cost.numbers), list(cost.numbers.values()), **style(i), markersize=5, label=cost.name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    title = "parameters needed for a distance"
    finish(axes, title, "distance of the symbol to recall", "parameters of the model", group[0].numbers)


def speed(axes: Any, group: Sequence[Any], _: str) -> None:
    for i, timed in enumerate(group):
        milliseconds = [1000 * s for s in timed.seconds.values()]
        axes.plot(list(timed.seconds), milliseconds, **style(i), markersize=5, label=timed.name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    xlabel = f"length of the sequences, {TOKENS:,} tokens in all"
    finish(axes, "time of a step", xlabel, "forward and backward, ms", group[0].seconds)


def level(axes: Any, x: float, y: float, label: str, ha: str = "right") -> None:
    """A horizontal line and its label."""
    axes.axhline(y, color="grey", linewidth=0.8, linestyle=":")
    axes.text(x, y, label, ha=ha, va="bottom", fontsize=8, color="grey")


def finish(axes: Any, title: str, xlabel: str, ylabel: str, ticks: Any = ()) -> None:
    if ticks:
        axes.set_xticks(list(ticks), [f"{n:,}" for n in ticks])
        axes.set_xticks([], minor=True)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=8, ncol=2, loc="upper center", bbox_to_anchor=(0.46, -0.16), handlelength=3)
