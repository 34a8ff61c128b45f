"""Multi-label classification: all labels that apply to a text or an image."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.tasks.base import Card, Fit, Task
from regard.tasks.classes import Classes
from regard.tasks.classify import Classify
from regard.tasks.image import Image
from regard.tasks.served import NUMBERS, STRING, array, record
from regard.tasks.use import Options, TestSet, Verdict
from regard.ticks import Console
from regard.training.baseline import Baseline
from regard.words import count, table

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from regard.data.contents import Contents
    from regard.metrics.compare import Sums
    from regard.training.run import Run


@dataclasses.dataclass(frozen=True)
class LabelSet:
    """The labels that apply, and the probabilities of all."""

    labels: list[str]
    probabilities: dict[str, float]


class LabelSetOutput:
    """A probability for each label; a label applies if it reaches its threshold."""

    def __init__(self, labels: tuple[str, ...], thresholds: Sequence[float]):
        self.labels, self.thresholds = labels, dict(zip(labels, thresholds, strict=True))

    def values(self, scores: "Tensor") -> "Tensor":
        return scores.sigmoid()

    def answer(self, values: "np.ndarray") -> LabelSet:
        probabilities = dict(zip(self.labels, values.tolist(), strict=True))
        return LabelSet([x for x, p in probabilities.items() if p >= self.thresholds[x]], probabilities)


class MultiLabelled(Classes):
    """What multi-label tasks share; mixed into the task that classifies the same medium."""

    target_kind = "sets"
    answer_schema = record(labels=array(STRING), probabilities=NUMBERS)

    def fits(self, contents: "Contents") -> Fit | None:
        texts, sets = contents.holding("texts"), contents.holding("sets")
        if self.reads != "text" or len(texts) != 1 or not sets:
            return None
        reason = f"texts in {texts[0].name!r}, several labels in {sets[0]}"
        return self.fit_for(contents, reason, "minilm", text=texts[0].name, label=sets[0].name)

    evaluate_takes = ("data", "strict")

    def fit(self, run: "Run", data: Any) -> "Run":
        from regard.data.targets import all_labels

        run = super().fit(run, data)
        return run.with_model(labels=all_labels(data.labels))

    def objective(self, run: "Run", data: Any = None) -> Any:
        import numpy as np

        from regard.data.targets import all_labels
        from regard.objectives.multilabel import MultiLabelLoss as Objective

        examples: Any = super().objective(run)
        if data is None:
            return Objective(examples, np.zeros((1, len(run.model.labels))))
        return Objective(examples, multi_hot(data.labels, all_labels(data.labels)))

    def remarks(self, run: "Run", data: Any, loader: Any) -> Iterable[str]:
        yield f"an epoch is {count(loader.batches_per_epoch, 'batch')}"

    def baselines(self, run: "Run", data: Any) -> Sequence[Baseline]:
        return ()

    def calibration(self, run: "Run", model: Any, data: Any) -> dict[str, Any]:
        """For each label, the threshold with the best F1 on the validation set."""
        from regard.objectives.multilabel import best_thresholds

        device = str(next(model.parameters()).device)
        batches = (batch.to(device) for batch in self.validation(run, data, device))
        targets, logits = self.objective(run, data).outputs(model, batches)
        return {"thresholds": best_thresholds(targets.numpy(), logits.sigmoid().numpy())}

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        predictor: Any = super().predictor(model, folder, about, device)
        predictor.output = LabelSetOutput(predictor.labels, about["calibration"]["thresholds"])
        return predictor

    def text(self, answer: Any) -> str:
        ranked = sorted(answer.probabilities.items(), key=lambda item: -item[1])
        head = ", ".join(answer.labels) or "none of the labels"
        return f"{head}\n" + table([(f"  {label}", f"{p:.1%}") for label, p in ranked], right=[1])

    def brief(self, answer: Any) -> tuple[str, ...]:
        return (", ".join(answer.labels),)

    def row(self, predictor: Any, answer: Any) -> dict[str, Any]:
        if answer is None:
            return {"labels": ""} | {f"probability_{label}": "" for label in predictor.labels}
        probabilities = {f"probability_{label}": round(p, 6) for label, p in answer.probabilities.items()}
        return {"labels": "|".join(answer.labels), **probabilities}

    def targets(self, predictor: Any, cells: Sequence[str], places: Sequence[str]) -> "np.ndarray":
        """N L, 1 where the example has the label."""
        from regard.data.targets import check_known, labels_in

        for cell, place in zip(cells, places, strict=True):
            names = labels_in(cell)
            check_known(names, predictor.labels, [place] * len(names))
        return multi_hot(cells, predictor.labels)

    def decisions(self, predictor: Any, test: TestSet, console: Console) -> "np.ndarray":
        """N L, whether each label is predicted."""
        import numpy as np

        probabilities = self.probabilities(predictor, test, console)
        return probabilities >= np.array([predictor.output.thresholds[x] for x in predictor.labels])

    def evaluate(self, predictor: Any, folder: Path, options: Options, console: Console) -> Verdict:
        """Micro and macro F1 and each label's own, compared with predicting every label."""
        import numpy as np
        from sklearn.metrics import precision_recall_fscore_support

        from regard.objectives.multilabel import f1_scores

        test = self.test_set(predictor, folder, options, console)
        true, predicted = test.targets > 0, self.decisions(predictor, test, console)
        everything = f1_scores(true, np.ones_like(true))
        exact = float((true == predicted).all(1).mean())
        values: dict[str, Any] = f1_scores(true, predicted) | {"exact_match": exact}
        values |= {f"all_labels_{name}": score for name, score in everything.items()}
        each: Any = precision_recall_fscore_support(true, predicted, average=None, zero_division=0)
        columns = (predictor.labels, *(x.tolist() for x in each), predictor.output.thresholds.values())
        names = ("label", "precision", "recall", "f1", "count", "threshold")
        values["by_label"] = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        lines = [
            f"micro F1     {values['micro_f1']:.2%}   (predicting every label: {everything['micro_f1']:.2%})",
            f"macro F1     {values['macro_f1']:.2%}   (predicting every label: {everything['macro_f1']:.2%})",
            f"exact match  {exact:.2%}",
            "",
            label_table(values["by_label"]),
        ]
        detail = f"{len(true):,} {self.unit}"
        return Verdict(on=test.on, detail=detail, values=values, text="\n".join(lines), contents=test.contents)

    def outcomes(self, predictor: Any, test: TestSet, options: Options, console: Console) -> "Sums":
        from regard.metrics.compare import Sums

        true, predicted = test.targets > 0, self.decisions(predictor, test, console)
        return Sums(metric="micro F1", above=2 * (true & predicted).sum(1), below=true.sum(1) + predicted.sum(1))


class MultiLabelImage(MultiLabelled, Image):
    name = "multilabel-image"
    summary = "all labels that apply to each image"
    examples = ("regard train multilabel-image --data photos.csv --label tags    # a table of files and labels",)
    card = Card(pipeline="image-classification", title="A multi-label image classifier", use="classify {} picture.png")
    purpose = "find all labels of images"
    draws_attention = False


class MultiLabel(MultiLabelled, Classify):
    name = "multilabel"
    summary = "all labels that apply to each text or image"
    examples = (
        "regard train multilabel --data films.csv --text plot --label genres    # drama|comedy",
        "regard train multilabel --data photos.csv --label tags --arch vit      # a table of images and labels",
    )
    card = Card(pipeline="text-classification", title="A multi-label text classifier", use='classify {} "…"')
    purpose = "find all labels of texts"

    def for_arch(self, arch: str) -> Task:
        """`--arch vit` and `conv` read images, the others texts."""
        return MultiLabelImage() if arch in ("vit", "conv") else self


def multi_hot(cells: Sequence[str], labels: Sequence[str]) -> "np.ndarray":
    import numpy as np

    from regard.data.targets import labels_in

    places, rows = {label: i for i, label in enumerate(labels)}, np.zeros((len(cells), len(labels)), np.float32)
    for row, cell in zip(rows, cells, strict=True):
        row[[places[label] for label in labels_in(cell)]] = 1
    return rows


def label_table(scores: Sequence[dict[str, Any]]) -> str:
    rows: list[tuple[str, ...]] = [("label", "precision", "recall", "F1", "threshold", "examples")]
    for s in scores:
        shares = [f"{s[name]:.1%}" for name in ("precision", "recall", "f1")]
        rows.append((s["label"], *shares, f"{s['threshold']:.2f}", str(s["count"])))
    return table(rows, right=[1, 2, 3, 4, 5])
