"""Whether training was worth it: the score of the kept model compared with those of simple methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.words import metric_name


@dataclass(frozen=True)
class Baseline:
    """The score of a simple method on the validation set."""

    name: str
    metric: str
    value: float
    lower_is_better: bool = False

    def __str__(self) -> str:
        return f"{self.name}, {metric_name(self.metric)} {self.shown(self.value)}"

    def shown(self, value: float) -> str:
        return f"{value:.1%}" if self.metric.endswith("accuracy") else f"{value:.4f}"

    def beaten_by(self, value: float) -> bool:
        return value < self.value if self.lower_is_better else value > self.value

    def tied_with(self, value: float) -> bool:
        """Whether both scores look the same in a report."""
        return self.shown(value) == self.shown(self.value)


def compared(baselines: Sequence[Baseline], metrics: Mapping[str, float], what_next: str) -> str:
    """The model compared with the baselines, with `what_next` if it is not better; "" without baselines."""
    measured = [b for b in baselines if b.metric in metrics]
    if not measured:
        return ""
    best, *others = sorted(measured, key=lambda b: b.value if b.lower_is_better else -b.value)
    more = "; ".join(f"{b.name} {b.shown(b.value)}" for b in others)
    listed = f"{best} ({more})" if more else str(best)
    score = f"{metric_name(best.metric)} {best.shown(metrics[best.metric])}"
    if best.tied_with(metrics[best.metric]):
        perfect = best.value == 1.0 and not best.lower_is_better
        advice = "To tell them apart, use a larger validation set: --valid FILE" if perfect else what_next
        return f"NO BETTER THAN THE BASELINE: {listed}; this model: {score}. {advice}"
    if best.beaten_by(metrics[best.metric]):
        return f"better than the baseline: {score}; {listed}"
    return f"THE BASELINE WON: {listed}; this model: {score}. {what_next}"
