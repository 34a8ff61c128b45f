"""Training curves of several runs in one picture, and their scores in one table (mean ± spread over seeds)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from regard.errors import CheckpointError
from regard.explain import picture
from regard.jsonfile import read_json_lines
from regard.words import metric_name, table

# The metrics of metrics.jsonl, with labels. Losses and scores are drawn, in this order.
METRICS = {
    "loss": {"label": "Training loss", "kind": "loss"},
    "held_out_loss": {"label": "Validation loss", "kind": "loss"},
    "bleu": {"label": "BLEU", "kind": "score"},
    "chrf": {"label": "chrF", "kind": "score"},
    "perplexity": {"label": "Perplexity", "kind": "score"},
    "masked_accuracy": {"label": "Masked-token accuracy", "kind": "score"},
    "accuracy": {"label": "Accuracy", "kind": "score"},
    "entity_f1": {"label": "Entity F1", "kind": "score"},
    "targets_per_second": {"label": "Targets per second", "kind": "speed"},
    "lr": {"label": "Learning rate", "kind": "optimiser"},
    "norm": {"label": "Gradient norm", "kind": "optimiser"},
}
PANELS = [name for name, metric in METRICS.items() if metric["kind"] in ("loss", "score")]


@dataclass(frozen=True)
class Summary:
    """One metric over a group of runs; `spread` is the sample standard deviation (0 for a single run)."""

    mean: float
    spread: float
    runs: int

    def __str__(self) -> str:
        digits = 2 if abs(self.mean) >= 10 else 3
        return f"{self.mean:.{digits}f}" + (f" ± {self.spread:.{digits}f}" if self.runs > 1 else "")


def summarise(values: Sequence[float]) -> Summary:
    return Summary(mean(values), stdev(values) if len(values) > 1 else 0.0, len(values))


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """The events of a run's metrics.jsonl; a last line cut short by a crash is ignored."""
    path = Path(folder) / "metrics.jsonl"
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no such file; is {folder} a run folder?")
    return [event for event in read_json_lines(path) if isinstance(event.get("step"), int | float)]


def outcome(events: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The metrics, steps and seconds of a finished run, and which weights were kept; None before the end."""
    if not events or not events[-1].get("final"):
        return None
    last = events[-1]
    metrics = {k: v for k, v in last.items() if k not in ("step", "seconds", "final", "kept")}
    speeds = [e.get("targets_per_second") for e in events]
    if speeds := [speed for speed in speeds if speed and isinstance(speed, int | float)]:
        unit = next((e["unit"] for e in events if "unit" in e), "tokens")
        metrics[f"{unit}_per_second"] = median(speeds)
    return {"metrics": metrics, "steps": last["step"], "seconds": last.get("seconds", 0), "kept": last.get("kept", "")}


def series(events: Sequence[Mapping[str, Any]], name: str) -> tuple[list[float], list[float]]:
    """(steps, values) of one metric, finite values only; the final event belongs to the kept model, not to a step."""
    going = [e for e in events if not e.get("final") and isinstance(e.get(name), int | float)]
    points = [(e["step"], e[name]) for e in going if math.isfinite(e[name])]
    return [float(s) for s, _ in points], [float(v) for _, v in points]


def results_table(groups: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """A row for each group (an architecture), a column for each metric: mean ± spread over its runs."""
    names = list(dict.fromkeys(n for runs in groups.values() for run in runs for n in run))
    rows = [["", "runs", *map(metric_name, names)]]
    for label, runs in groups.items():
        cells = []
        for name in names:
            values = [run[name] for run in runs if run.get(name) is not None]  # a loss may have been NaN
            cells.append(str(summarise(values)) if values else "–")
        rows.append([label, str(len(runs)), *cells])
    return table(rows, right=range(1, len(rows[0])))


def draw(groups: Mapping[str, Sequence[str | Path]], path: str | Path, panels: Sequence[str] = PANELS) -> Path:
    """Draw the curves of groups of run folders: a colour and dash per group, thin lines for seeds, thick for their
    mean."""
    read = {label: [read_metrics(f) for f in folders] for label, folders in groups.items()}
    shown = [n for n in panels if any(series(e, n)[0] for runs in read.values() for e in runs)]
    if not shown:
        raise CheckpointError(f"nothing to draw yet: no run has recorded {' or '.join(panels)}")
    fig = picture.figure(5.0 * len(shown), 3.6)
    for axes, name in zip(fig.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        for i, (label, runs) in enumerate(read.items()):
            colour, dash = picture.COLOURS[i % len(picture.COLOURS)], picture.DASHES[i % len(picture.DASHES)]
            curves = [c for c in (series(events, name) for events in runs) if c[0]]
            for steps, values in curves if len(curves) > 1 else []:
                axes.plot(steps, values, color=colour, linestyle=dash, linewidth=0.6, alpha=0.5)
            if curves:
                axes.plot(*average(curves), color=colour, linestyle=dash, linewidth=1.8, label=label)
        axes.set_xlabel("step")
        axes.set_title(METRICS[name]["label"] if name in METRICS else name, fontsize=10)
        axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9)
    return picture.save(fig, path)


def average(curves: Sequence[tuple[list[float], list[float]]]) -> tuple[list[float], list[float]]:
    """The mean curve, at the steps of the longest one, as far as all curves reach."""
    import numpy as np

    longest = max(curves, key=lambda c: len(c[0]))
    low, high = max(c[0][0] for c in curves), min(c[0][-1] for c in curves)
    steps = [s for s in longest[0] if low <= s <= high] or longest[0]
    values = np.mean([np.interp(steps, *c) for c in curves], axis=0)
    return list(steps), [float(v) for v in values]
