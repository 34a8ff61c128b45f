"""What every task with classes shares: scores of the validation set, and the baseline of the majority class."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import DataError
from regard.tasks.base import Task
from regard.words import count

if TYPE_CHECKING:
    import numpy as np

    from regard.objectives.classify import Scores
    from regard.tasks.use import Options, Verdict
    from regard.ticks import Console
    from regard.train.run import Run


@dataclass
class ClassScores:
    """Scores of the validation set besides accuracy; `warning` when the last time one class took every prediction."""

    labels: tuple[str, ...]
    balanced: bool
    more: "Scores"
    warning: str = ""

    def __call__(self, true: "np.ndarray", predicted: "np.ndarray") -> dict[str, float]:
        from regard.evaluate.labels import alarm, macro_f1

        self.warning = alarm(true, predicted, self.labels, self.balanced)
        return {**self.more(true, predicted), "macro_f1": macro_f1(true, predicted, len(self.labels))}


def class_scores(run: "Run", labels: tuple[str, ...], more: "Scores" = lambda *_: {}) -> ClassScores | None:
    return ClassScores(labels, run.data.balanced, more) if labels else None


class ClassesOfSamples(Task):
    """A class for each sample: an image, a clip, a row of a table. `data` has train and valid parts with `labels`."""

    valid_batch = 512

    def objective(self, run: "Run", data: Any = None) -> Any:
        from regard.objectives.classify import ClassifySamples

        return ClassifySamples(run.smoothing, scores=self.scores(run, data))

    def scores(self, run: "Run", data: Any) -> "Scores | None":
        return None if data is None else class_scores(run, data.labels)

    def plan(self, run: "Run", data: Any, part: str, source: Any) -> Any:
        from regard.data.loader import FixedSize, class_odds

        if part == "valid":
            return FixedSize(self.valid_batch)
        return FixedSize(run.batch, class_odds(data.train.labels) if run.data.balanced else None)

    def remarks(self, run: "Run", data: Any, loader: Any) -> Iterable[str]:
        import numpy as np

        majority = np.bincount(data.train.labels, minlength=len(data.labels)).argmax()
        share = float((data.valid.labels == majority).mean())
        yield f"an epoch is {count(loader.batches_per_epoch, 'batch')}"
        yield f"baseline: majority class, accuracy {share:.1%}"

    # -- using the model --------------------------------------------------------------------------------------------

    evaluate_takes = ("data", "picture")
    things = "samples"  # what is counted: images, clips, rows

    def test_set(self, predictor: Any, folder: Path, data: str, console: "Console") -> tuple[str, Any, "np.ndarray"]:
        """What to score on: its name, N inputs of `predictor.probabilities`, N true classes."""
        raise NotImplementedError

    def evaluate(self, predictor: Any, folder: Path, options: "Options", console: "Console") -> "Verdict":
        """Accuracy, F1, confusion and calibration, next to the majority class."""
        import numpy as np

        on, inputs, true = self.test_set(predictor, folder, options.data, console)
        with console.progress(self.things, len(true)):
            probabilities = predictor.probabilities(inputs)
        majority = float(np.bincount(true).max() / len(true))
        lines = [f"baseline     {majority:.2%} for the majority class"]
        return class_verdict(on, probabilities, true, predictor.labels, self.things, {"majority": majority}, lines,
                             options.picture, console)  # fmt: skip


def class_verdict(
    on: str,
    probabilities: "np.ndarray",
    true: "np.ndarray",
    labels: Sequence[str],
    things: str,
    more: dict[str, Any],
    baselines: Sequence[str],
    picture: str,
    console: "Console",
    remarks: Sequence[str] = (),
) -> "Verdict":
    """All scores of a classifier; `picture` draws its calibration."""
    from regard.evaluate.classes import judge_classes
    from regard.evaluate.labels import Bin
    from regard.explain.reliability import draw
    from regard.tasks.use import Verdict

    scores, text = judge_classes(probabilities, true, labels, things, baselines, remarks)
    if picture:
        bins = [Bin(**b) for b in scores["reliability"]]
        console.say(f"picture: {draw(bins, scores['ece'], picture)}")
    return Verdict(on=on, count=f"{len(true):,} {things}", values=more | scores, text=text)


def class_indices(names: Sequence[str], labels: Sequence[str], where: Sequence[str]) -> "np.ndarray":
    """The numbers of classes by name; `DataError` for one that the model was not trained on, with where it stands."""
    import numpy as np

    at = {label: i for i, label in enumerate(labels)}
    for name, place in zip(names, where, strict=True):
        if name not in at:
            known = ", ".join(labels)
            raise DataError(f"{place}: the class {name!r} is not among those trained on: {known}")
    return np.array([at[name] for name in names])


def class_row(labels: Sequence[str], probabilities: "np.ndarray | None", name: str = "label") -> dict[str, Any]:
    """The cells of an answer: the likeliest label and the probabilities of all; empty where there is no answer."""
    if probabilities is None:
        return {name: ""} | {f"probability_{label}": "" for label in labels}
    numbers = {f"probability_{x}": round(float(p), 6) for x, p in zip(labels, probabilities, strict=True)}
    return {name: labels[int(probabilities.argmax())], **numbers}
