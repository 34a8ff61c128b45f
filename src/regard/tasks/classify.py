"""Classify, pair, tag: a label for a text, for a pair of texts, or for each word."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.settings import LabelledConfig
from regard.errors import ConfigError
from regard.tasks import presets
from regard.tasks.base import UNKNOWN_LABELS, Arch, Card, Say, Task, recurrent
from regard.tasks.classes import class_scores
from regard.tasks.table import Table
from regard.train.settings import Optim, Schedule
from regard.words import count

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from regard.data.labelled import PreparedLabels
    from regard.objectives.classify import Scores
    from regard.train.run import Run

LENGTH = 32  # pieces of a text, when memory is estimated
HEAD = ("classifier", "pooler")  # parts of a fine-tuned encoder that may be new; with LoRA they are trained


class Classify(Task):
    name = "classify"
    summary = "a label for each text"
    settings = LabelledConfig
    options: tuple[str, ...] = ("valid", "text", "label")
    data_help = "A table of texts and labels, or a name."
    examples: tuple[str, ...] = (
        "regard train classify --data reviews.csv --text review --label sentiment",
        "regard train classify --data reviews.csv --arch transformer,lstm",
        "regard train classify --data students.csv --label passed --arch mlp    # rows of numbers and categories",
    )
    archs = {"transformer": Arch("bert"), **recurrent("rnn_classifier")}
    presets = presets.LABELS
    card = Card(pipeline="text-classification", title="A text classifier", use='classify {} "…"')
    finetune_length = "3 epochs"
    head = "sequence"
    per_piece = False  # whether every piece has a label

    def for_arch(self, arch: str) -> Task:
        """`--arch mlp` reads rows of numbers and categories, not texts."""
        return Table() if arch in Table.archs else self

    def model_settings(self, data: Any, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        return {"vocab": data.vocab, "head": self.head, "labels": UNKNOWN_LABELS}

    def finetune_run(self, start: Path, data: LabelledConfig, device: str, lora: int) -> "Run":
        from regard.models.bert import BertConfig
        from regard.models.published import read_config
        from regard.train.run import Run

        config = read_config(start)
        if not isinstance(config, BertConfig):
            raise ConfigError(f"{start} is not a BERT; only encoders, such as minilm, are fine-tuned to {self.name}")
        where, pooling = str(start.absolute()), config.pooling if self.head == "sequence" else "cls"
        length = min(data.max_length, config.max_length)
        return Run(
            task=self.name,
            model=dataclasses.replace(config, head=self.head, labels=UNKNOWN_LABELS, pooling=pooling),
            data=dataclasses.replace(data, tokenizer=where, vocab=config.vocab, max_length=length),
            start=where,
            lora=lora,
            optim=Optim(name="adamw", lr=1e-3 if lora else 1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01),
            schedule=Schedule(kind="linear", warmup=50),
            epochs=3.0,
            tokens=1024,  # about 32 sentences
            precision="fp32" if device == "cpu" else "bf16",
            smoothing=0.0,
            average=False,
            eval_every=0,
            keep=1,
        )

    def probe(self, run: "Run") -> "Run":
        """The feature-based approach (Devlin et al. 2019, section 5.3) instead: the encoder is frozen, and a linear map
        of its states is learned; of a text's, their mean."""
        pooling = "mean" if self.head == "sequence" else "cls"
        model = dataclasses.replace(run.model, pooling=pooling, dropout=0.0, attention_dropout=0.0)
        optim = dataclasses.replace(run.optim, lr=1e-2)
        return dataclasses.replace(run, frozen=True, model=model, optim=optim, epochs=5.0)

    def read(self, run: "Run", say: Say) -> "PreparedLabels":
        from regard.data.labelled import prepare_labels

        return prepare_labels(run.data, self.name, say, None if self.per_piece else summarise)

    def fit(self, run: "Run", data: "PreparedLabels") -> "Run":
        vocab = run.model.vocab if run.start else data.tokenizer.size
        model = dataclasses.replace(run.model, vocab=vocab, labels=data.labels, head=self.head)
        return dataclasses.replace(run, model=model)

    def build(self, run: "Run", data: "PreparedLabels", say: Say) -> "nn.Module":
        from regard.models.published import load_model
        from regard.nn.lora import add_lora_

        started: Any = load_model(Path(run.start)) if run.start else None
        model: Any = super().build(run, data, say)
        if started is not None:
            new = begin_from_(model, started)
            say(f"randomly initialised: {', '.join(new)}" if new else "all weights come from the model, head included")
        if run.lora:
            names = add_lora_(model, run.lora, alpha=2.0 * run.lora, targets=("layers.*",))
            for name in HEAD:
                if (part := getattr(model, name)) is not None:
                    part.requires_grad_(True)
            matrices = count(len(names), "matrix", "matrices")
            say(f"LoRA of rank {run.lora} on {matrices}; everything else but the head is frozen")
        if run.frozen:
            model.requires_grad_(False).classifier.requires_grad_(True)
            say("the encoder is frozen; a linear map of its states is learned")
        return model

    def objective(self, run: "Run", data: "PreparedLabels | None" = None) -> Any:
        """The loss; with data also the scores that need the labels' names, and the weights of the classes."""
        from regard.objectives.classify import Classify as Objective
        from regard.objectives.classify import balanced_weights
        from regard.objectives.tag import Tag as PieceObjective

        weights = balanced_weights(data.counts) if data is not None and run.data.balanced else ()
        kind = PieceObjective if self.per_piece else Objective
        return kind(run.smoothing, weights, None if data is None else self.scores(run, data))

    def scores(self, run: "Run", data: "PreparedLabels") -> "Scores | None":
        return class_scores(run, data.labels)

    def source(self, run: "Run", data: "PreparedLabels", part: str, device: str) -> Any:
        from regard.data.sources import LabelledSource

        return LabelledSource(**getattr(data, part), pad=data.tokenizer.pad)

    def plan(self, run: "Run", data: "PreparedLabels", part: str, source: Any) -> Any:
        return source.plan(run.tokens)

    def remarks(self, run: "Run", data: "PreparedLabels", loader: Any) -> Iterable[str]:
        yield f"an epoch is {count(loader.batches_per_epoch, 'batch')}, {loader.padding:.1%} padding"
        yield from data.manifest.get("summary", [])  # prepared by an earlier version, it has none

    def example(self, run: "Run") -> Any:
        from regard.data.batch import collate_labelled

        length = min(LENGTH, run.tokens)
        marks = [0] * length if self.per_piece else [0]
        rows = max(1, run.tokens // length)
        return collate_labelled([([0] * length, length, marks)] * rows, 0, per_piece=self.per_piece)

    def about(self, run: "Run", data: "PreparedLabels") -> dict[str, Any]:
        columns = {name: value for name in ("text", "second", "label") if (value := getattr(run.data, name))}
        return {"name": run.data.name, "inputs": data.manifest["inputs"], **columns}

    def write_files(self, folder: Path, run: "Run", data: "PreparedLabels") -> None:
        data.tokenizer.save(folder, run.data.max_length)

    def serves(self, config: Any) -> bool:
        return super().serves(config) and config.head == self.head

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str, int8: bool) -> Any:
        from regard.data.tokenizers import load
        from regard.predictors import Classifier, Tagger

        return (Tagger if self.per_piece else Classifier)(model, load(folder), device)


class Pair(Classify):
    name = "pair"
    summary = "a label for each pair of texts"
    options = ("valid", "text", "second", "label")
    examples = ("regard train pair --data pairs.csv --text premise --second hypothesis --label label",)
    card = Card(pipeline="text-classification", title="A classifier of pairs", use='classify {} "…" "…"')


class Tag(Classify):
    name = "tag"
    summary = "a label for each word"
    data_help = "A CoNLL file or a .jsonl of words and tags, or a name."
    examples = ("regard train tag --data sentences.conll",)
    card = Card(pipeline="token-classification", title="A tagger", use='tag {} "…"')
    head = "token"
    per_piece = True

    def scores(self, run: "Run", data: "PreparedLabels") -> "Scores | None":
        """F1 of entities, where the labels are IOB2."""
        import numpy as np

        from regard.evaluate.labels import entity_score, is_iob

        labels, marks = data.labels, data.valid["labels"]
        if not is_iob(labels):
            return None
        ends = np.cumsum([int((marks[i] >= 0).sum()) for i in range(len(marks))])[:-1]

        def scores(true: "np.ndarray", predicted: "np.ndarray") -> dict[str, float]:
            names = ([[labels[i] for i in row] for row in np.split(x, ends)] for x in (true, predicted))
            return {"entity_f1": entity_score(*names).f1}

        return scores


def begin_from_(model: Any, started: Any) -> list[str]:
    """Copy what both have; the parts that `started` does not have, or has for other labels."""
    theirs = started.state_dict()
    if started.config.labels != model.config.labels or started.config.head != model.config.head:
        theirs = {name: t for name, t in theirs.items() if not name.startswith("classifier.")}
    mine = model.state_dict()
    model.load_state_dict({name: theirs.get(name, tensor) for name, tensor in mine.items()})
    return sorted({name.split(".")[0] for name in mine if name not in theirs})


def summarise(train: Sequence[Any], valid: Sequence[Any]) -> list[str]:
    return [
        f"for example: {train[0].text[:60]!r} is {train[0].label!r}",  # so that a column mistaken is seen
        f"baselines on the validation set: {baseline(train, valid)}",
    ]


@dataclass(frozen=True)
class Baseline:
    """Accuracy of a bag of words, and of always predicting the majority class of the training set."""

    bag_of_words: float
    majority: float

    def __str__(self) -> str:
        return f"bag of words, accuracy {self.bag_of_words:.1%}; majority class, accuracy {self.majority:.1%}"


def baseline(train: Sequence[Any], test: Sequence[Any]) -> Baseline:
    from regard.evaluate.labels import BagOfWords

    def texts(row: Any) -> tuple[str, ...]:
        return (row.text,) if row.second is None else (row.text, row.second)

    labels = [row.label for row in train]
    bag = BagOfWords([texts(row) for row in train], labels)
    common = max(sorted(set(labels)), key=labels.count)
    right = [bag.guess(texts(row)) == row.label for row in test]
    return Baseline(sum(right) / len(test), sum(row.label == common for row in test) / len(test))
