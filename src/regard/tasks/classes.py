"""What all classification tasks share: validation scores, and the majority-class baseline."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.tasks.base import Fit, Task
from regard.tasks.served import NUMBERS, STRING, record
from regard.tasks.use import Options, TestSet, Verdict
from regard.ticks import Console
from regard.training.baseline import Baseline
from regard.words import count, table

if TYPE_CHECKING:
    import numpy as np

    from regard.data.contents import Contents
    from regard.metrics.compare import Sums
    from regard.objectives.classify import Scores
    from regard.predictors import Classification
    from regard.training.run import Run

RARE = 4  # a class with this many times fewer examples than the majority is reported as rare


@dataclass
class ClassScores:
    """Validation scores other than accuracy; `warning` is set if all of the last predictions were one class."""

    labels: tuple[str, ...]
    balanced: bool
    more: "Scores"
    warning: str = ""

    def __call__(self, true: "np.ndarray", predicted: "np.ndarray") -> dict[str, float]:
        from regard.metrics.labels import alarm, macro_f1

        self.warning = alarm(true, predicted, self.labels, self.balanced)
        return {**self.more(true, predicted), "macro_f1": macro_f1(true, predicted, len(self.labels))}


def class_scores(run: "Run", labels: tuple[str, ...], more: "Scores" = lambda *_: {}) -> ClassScores | None:
    return ClassScores(labels, run.data.balanced, more) if labels else None


def imbalance(labels: Sequence[str], counts: Sequence[int], effect: str) -> Iterable[str]:
    """A hint at `data.balanced` if a class is rare; `effect` is what that does: weighs, or samples."""
    by_size = sorted((number, label) for number, label in zip(counts, labels, strict=True) if number)
    (fewest, rare), (most, common) = by_size[0], by_size[-1]
    if most >= RARE * fewest:
        yield (
            f"IMBALANCED: {rare!r} has {fewest:,} of {sum(counts):,} training examples, {common!r} {most:,}; the model "
            f"may neglect it. --set data.balanced=true {effect} every {rare!r} {most / fewest:.1f} times as much as "
            f"every {common!r}: recall of rare classes rises, accuracy may fall"
        )


@dataclass(frozen=True)
class Extras:
    """What is reported in addition to a classifier's scores: baselines, other scores, remarks."""

    values: dict[str, Any]
    lines: Sequence[str]  # below the accuracy
    remarks: Sequence[str] = ()  # below the scores


class Classes(Task):
    """How models that predict a class are used, whatever they read."""

    verbs = ("classify",)
    answer_schema = record(label=STRING, probabilities=NUMBERS)
    evaluate_takes: tuple[str, ...] = ("data", "picture", "strict")
    compare_takes: tuple[str, ...] = ("data",)

    def targets(self, predictor: Any, cells: Sequence[str], places: Sequence[str]) -> "np.ndarray":
        """The label column of a test set as numbers; `places` locates each cell for error messages."""
        import numpy as np

        from regard.data.targets import check_known

        check_known(cells, predictor.labels, places)
        codes = {label: code for code, label in enumerate(predictor.labels)}
        return np.array([codes[cell] for cell in cells], np.int64)

    def text(self, answer: Any) -> str:
        ranked = sorted(answer.probabilities.items(), key=lambda item: -item[1])
        return f"{answer.label}\n" + table([(f"  {label}", f"{p:.1%}") for label, p in ranked], right=[1])

    def brief(self, answer: Any) -> tuple[str, ...]:
        """The cells of an answer in a printed table."""
        return answer.label, f"{answer.probabilities[answer.label]:.1%}"

    def row(self, predictor: Any, answer: Any) -> dict[str, Any]:
        return class_row(predictor.labels, answer)

    def probabilities(self, predictor: Any, test: TestSet, console: Console) -> "np.ndarray":
        with console.progress(self.unit, len(test.targets)):
            return predictor.probabilities(test.inputs)

    def extras(self, predictor: Any, test: TestSet, probabilities: "np.ndarray", console: Console) -> Extras:
        """The majority-class baseline."""
        import numpy as np

        majority = float(np.bincount(test.targets).max() / len(test.targets))
        return Extras({"majority": majority}, [f"baseline     majority class, accuracy {majority:.2%}"])

    def evaluate(self, predictor: Any, folder: Path, options: Options, console: Console) -> Verdict:
        """Accuracy, F1, confusion and calibration, compared with a baseline; `--picture` draws the calibration."""
        from regard.explain.reliability import draw
        from regard.metrics.classes import judge_classes
        from regard.metrics.labels import Bin

        test = self.test_set(predictor, folder, options, console)
        probabilities = self.probabilities(predictor, test, console)
        extras = self.extras(predictor, test, probabilities, console)
        scores, text = judge_classes(
            probabilities, test.targets, predictor.labels, self.unit, extras.lines, extras.remarks
        )
        if options.picture:
            bins = [Bin(**b) for b in scores["reliability"]]
            console.say(f"picture: {draw(bins, scores['ece'], options.picture)}")
        detail = f"{len(test.targets):,} {self.unit}"
        return Verdict(on=test.on, detail=detail, values=extras.values | scores, text=text, contents=test.contents)

    def outcomes(self, predictor: Any, test: TestSet, options: Options, console: Console) -> "Sums":
        import numpy as np

        from regard.metrics.compare import Sums

        right = self.probabilities(predictor, test, console).argmax(1) == test.targets
        return Sums(metric="accuracy", above=right, below=np.ones(len(right)))


class ClassesOfSamples(Classes):
    """A class for each sample: an image, a clip, a row of a table. `data` has train and valid parts with `labels`."""

    valid_batch = 512

    def fits(self, contents: "Contents") -> Fit | None:
        """Files in a folder for each class, or named in a table."""
        from regard.data.files import AUDIO, IMAGES, ending

        endings = {"images": IMAGES, "audio": AUDIO}[self.reads]
        if len(contents.folders) > 1 and contents.mostly(endings):
            return self.fit_for(contents, f"{contents.count(endings):,} {self.unit} in a folder for each class")
        names, classes = contents.holding("files"), contents.labels()
        if not names or not classes or ending(names[0].values[0]) not in endings:
            return None
        reason = f"{self.unit} in {names[0].name!r}, a class in {classes[0]}"
        return self.fit_for(contents, reason, label=classes[0].name)

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

    def show(self, run: "Run", data: Any, batch: Any, row: int) -> str:
        target = batch.targets[row]
        label = data.labels[int(target if target.ndim == 0 else target.argmax())]  # mixed images have several labels
        return f"{self.show_input(data, batch, row)} → {label}"

    def show_input(self, data: Any, batch: Any, row: int) -> str:
        """The input of `show`: its shape and range."""
        x = batch.inputs[0][row]
        shape = " × ".join(map(str, x.shape))
        return (
            f"{shape} {self.measured}, {float(x.min()):.4g} to {float(x.max()):.4g}, mean {float(x.float().mean()):.4g}"
        )

    measured = "numbers"  # what an input consists of

    def remarks(self, run: "Run", data: Any, loader: Any) -> Iterable[str]:
        import numpy as np

        yield f"an epoch is {count(loader.batches_per_epoch, 'batch')}"
        if not run.data.balanced:
            counts = np.bincount(data.train.labels, minlength=len(data.labels)).tolist()
            yield from imbalance(data.labels, counts, "samples")

    def baselines(self, run: "Run", data: Any) -> Sequence[Baseline]:
        import numpy as np

        majority = np.bincount(data.train.labels, minlength=len(data.labels)).argmax()
        return [Baseline("majority class", "accuracy", float((data.valid.labels == majority).mean()))]


def class_row(labels: Sequence[str], answer: "Classification | None", name: str = "label") -> dict[str, Any]:
    """The table cells of a prediction: the top label, then every class probability; empty without a prediction."""
    if answer is None:
        return {name: ""} | {f"probability_{label}": "" for label in labels}
    return {name: answer.label} | {f"probability_{label}": round(p, 6) for label, p in answer.probabilities.items()}
