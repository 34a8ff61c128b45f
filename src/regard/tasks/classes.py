"""What every task with classes shares: scores of the validation set, and the baseline of the majority class."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.tasks.base import Say, Task
from regard.words import count

if TYPE_CHECKING:
    from regard.objectives.classify import Scores
    from regard.train.run import Run


def class_scores(run: "Run", labels: tuple[str, ...], say: Say | None, more: Any = lambda *_: {}) -> "Scores | None":
    """Scores of the validation set besides accuracy; and, once, a warning when one class takes every prediction."""
    from regard.evaluate.labels import alarm, macro_f1

    warned: set[str] = set()

    def scores(true: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
        warning = alarm(true, predicted, labels, run.data.balanced)
        if say is not None and warning and warning not in warned:
            say(warning)
            warned.add(warning)
        return {**more(true, predicted), "macro_f1": macro_f1(true, predicted, len(labels))}

    return scores if labels else None


class ClassesOfSamples(Task):
    """A class for each sample: an image, a clip, a row of a table. `data` has train and valid parts with `labels`."""

    valid_batch = 512

    def objective(self, run: "Run", data: Any = None, say: Say | None = None) -> Any:
        from regard.objectives.classify import ClassifySamples

        return ClassifySamples(run.smoothing, scores=self.scores(run, data, say))

    def scores(self, run: "Run", data: Any, say: Say | None) -> "Scores | None":
        return None if data is None else class_scores(run, data.labels, say)

    def plan(self, run: "Run", data: Any, part: str, source: Any) -> Any:
        from regard.data.loader import FixedSize, class_odds

        if part == "valid":
            return FixedSize(self.valid_batch)
        return FixedSize(run.batch, class_odds(data.train.labels) if run.data.balanced else None)

    def remarks(self, run: "Run", data: Any, loader: Any) -> Iterable[str]:
        majority = np.bincount(data.train.labels, minlength=len(data.labels)).argmax()
        share = float((data.valid.labels == majority).mean())
        yield f"an epoch is {count(loader.batches_per_epoch, 'batch')}"
        yield f"baseline: majority class, accuracy {share:.1%}"
