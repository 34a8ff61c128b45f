"""Classify and pair: a label for a text or a pair of texts; and what they share with tagging."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.folders import silent
from regard.data.settings import LabelledConfig
from regard.data.skipped import has
from regard.errors import ConfigError, DataError
from regard.jsonfile import group, read_json_if_any
from regard.tasks.base import UNKNOWN_LABELS, Arch, Card, Fit, Say, Task, recurrent
from regard.tasks.classes import Classes, Extras, class_scores, imbalance
from regard.tasks.presets import fine_tuning, presets_of
from regard.tasks.table import Table
from regard.tasks.use import Inputs, Options, TestSet
from regard.ticks import Console
from regard.training.baseline import Baseline
from regard.training.settings import Optim, Schedule
from regard.words import count, some

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from regard.data.contents import Contents
    from regard.data.labelled import PreparedLabels
    from regard.objectives.classify import Scores
    from regard.training.run import Run

CHUNK = 2048  # rows of a table read at a time
LENGTH = 32  # tokens of a text, for estimating memory
SHORT = 5  # up to this many minutes of fine-tuning, a new head starts as a linear probe


class Labels(Task):
    """What text classification and tagging share."""

    settings = LabelledConfig
    options: tuple[str, ...] = ("valid", "text", "label")
    archs = {"transformer": Arch("bert"), **recurrent("rnn_classifier")}
    uses = ("modernbert",)
    presets = presets_of("labels")
    starts, heads, lora_targets = ("bert", "modernbert"), ("classifier", "pooler"), ("layers.*",)
    finetune_length = "3 epochs"
    head = "sequence"
    per_piece = False  # whether every token has a label

    def model_settings(self, data: Any, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        return {"vocab": data.vocab, "head": self.head, "labels": UNKNOWN_LABELS}

    def finetune_run(self, start: Path, data: LabelledConfig, device: str, lora: int) -> "Run":
        from regard.models.published import read_config
        from regard.training.run import Run

        config: Any = read_config(start)
        where, pooling = str(start.absolute()), config.pooling if self.head == "sequence" else "cls"
        length = min(data.max_length, config.max_length)
        # R-Drop on a GPU, where a second pass costs little: recipes/wnut17_minilm.py has what it gains
        two_passes = device != "cpu" and self.target_kind == "classes"
        return Run(
            **fine_tuning(self.name, start, device, lora),
            model=dataclasses.replace(config, head=self.head, labels=UNKNOWN_LABELS, pooling=pooling),
            data=dataclasses.replace(
                data, targets=self.target_kind, tokenizer=where, vocab=config.vocab, max_length=length
            ),
            optim=Optim(name="adamw", lr=1e-3 if lora else 1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01),
            schedule=Schedule(kind="linear", warmup=50),
            epochs=6.0 if two_passes else 3.0,
            tokens=2048 if two_passes else 1024,  # of about 32 tokens each
            consistency=4.0 if two_passes else 0.0,
            smoothing=0.0,
        )

    def within(self, run: "Run", minutes: float) -> "Run":
        """For a few minutes, mean pooling with a head that starts as a probe: [CLS] would have to be learned first."""
        from regard.models.published import read_config

        config: Any = read_config(Path(run.start))
        if minutes > SHORT or not self.begins_as_probe or self.per_piece or config.head == self.head:
            return run
        return dataclasses.replace(run, model=dataclasses.replace(run.model, pooling="mean"))

    @property
    def begins_as_probe(self) -> bool:
        """Whether the head may start as a logistic regression."""
        return self.target_kind == "classes"

    def probe(self, run: "Run") -> "Run":
        """The feature-based approach (Devlin et al. 2019, section 5.3): a frozen encoder, and a linear head on its
        states; for a text, on their mean."""
        pooling = "mean" if self.head == "sequence" else "cls"
        run = run.with_model(pooling=pooling, dropout=0.0, attention_dropout=0.0)
        optim, data = dataclasses.replace(run.optim, lr=1e-2), dataclasses.replace(run.data, case=False)
        return dataclasses.replace(run, frozen=True, data=data, optim=optim, epochs=5.0, tokens=1024, consistency=0.0)

    def read(self, run: "Run", say: Say) -> "PreparedLabels":
        from regard.data.labelled import prepare_labels

        one_class = self.target_kind == "classes" and not self.per_piece
        return prepare_labels(run.data, self.name, say, summarise if one_class else None)

    def fit(self, run: "Run", data: "PreparedLabels") -> "Run":
        vocab = run.model.vocab if run.start else data.tokenizer.size
        return run.with_model(vocab=vocab, labels=data.labels, head=self.head)

    def build(self, run: "Run", data: "PreparedLabels", say: Say) -> "nn.Module":
        from regard.models.published import load_model
        from regard.tasks.head import fit_head_
        from regard.tasks.start import begin_, freeze_, with_types

        model: Any = super().build(dataclasses.replace(run, start="", frozen=False), data, say)
        if not run.start:
            return model
        started: Any = load_model(Path(run.start))
        same = (started.config.labels, started.config.head) == (run.model.labels, run.model.head)
        state = with_types(started.state_dict(), run.model.types)
        new = begin_(model, state, () if same else ("classifier",))
        short = 0 < run.minutes <= SHORT and self.begins_as_probe
        texts = self.source(run, data, "train", "cpu") if short and new == ["classifier"] else None
        probed = fit_head_(model, texts, run.seed) if texts else 0
        kept = f"randomly initialised: {', '.join(new)}" if new else "all weights come from the model, head included"
        say(f"the head starts as a linear probe of {count(probed, 'text')}" if probed else kept)
        freeze_(model, run, ("classifier",) if run.frozen else self.heads, say, self.lora_targets)
        return model

    def objective(self, run: "Run", data: "PreparedLabels | None" = None) -> Any:
        """The loss; with `data`, also the scores that need label names, and the class weights."""
        from regard.objectives.classify import ClassifyLoss as Objective
        from regard.objectives.classify import balanced_weights

        weights = balanced_weights(data.counts) if data is not None and run.data.balanced else ()
        scores = None if data is None else self.scores(run, data)
        return Objective(run.smoothing, weights, scores)

    def scores(self, run: "Run", data: "PreparedLabels") -> "Scores | None":
        return class_scores(run, data.labels)

    def source(self, run: "Run", data: "PreparedLabels", part: str, device: str) -> Any:
        from regard.data.sources import LabelledSource

        return LabelledSource(**getattr(data, part), pad=data.tokenizer.pad)

    def plan(self, run: "Run", data: "PreparedLabels", part: str, source: Any) -> Any:
        return source.plan(run.tokens)

    def remarks(self, run: "Run", data: "PreparedLabels", loader: Any) -> Iterable[str]:
        yield f"an epoch is {count(loader.batches_per_epoch, 'batch')}, {loader.padding:.1%} padding"
        if example := summary_of(data).get("example"):
            yield f"for example: {example}"
            if not run.data.balanced:
                yield from imbalance(data.labels, data.counts, "weighs")

    def baselines(self, run: "Run", data: "PreparedLabels") -> Sequence[Baseline]:
        scores = summary_of(data).get("accuracy", {})
        return [Baseline(name, "accuracy", value) for name, value in scores.items()]

    def example(self, run: "Run") -> Any:
        from regard.data.batch import collate_labelled

        length = min(LENGTH, run.tokens)
        marks = [0] * length if self.per_piece else [0]
        rows = max(1, run.tokens // length)
        return collate_labelled([([0] * length, length, marks)] * rows, 0, per_piece=self.per_piece)

    def show(self, run: "Run", data: "PreparedLabels", batch: Any, row: int) -> str:
        ids, labels = batch.ids[row, : batch.host_lengths[row]].tolist(), batch.host_labels[row]
        pieces = [data.tokenizer.piece(i) for i in ids]
        if not self.per_piece:
            return f"{some(pieces)} → {data.labels[int(labels)]}"
        marks = ("" if code < 0 else f"/{data.labels[code]}" for code in labels)
        return some(piece + mark for piece, mark in zip(pieces, marks, strict=False))

    def about(self, run: "Run", data: "PreparedLabels") -> dict[str, Any]:
        columns = {name: value for name in ("text", "second", "label") if (value := getattr(run.data, name))}
        return {"name": run.data.name, "inputs": data.manifest["inputs"], **columns}

    def write_files(self, folder: Path, run: "Run", data: "PreparedLabels") -> None:
        data.tokenizer.save(folder, run.data.max_length)

    def serves(self, config: Any) -> bool:
        return super().serves(config) and config.head == self.head

    def test_set(self, predictor: Any, folder: Path, options: Options, console: Console) -> TestSet:
        from regard.data.labelled import content, is_empty, read_parts, read_rows

        data, train, rows = options.data, None, []
        config = LabelledConfig(path=data, strict=options.strict)
        if not data or (folder / "run.json").is_file():
            config = dataclasses.replace(self.own_data(folder), strict=options.strict)
            try:
                train, rows, _ = read_parts(config, self.name, silent if data else console.say)
            except DataError:
                if not data:
                    raise
        if data:
            rows = read_rows(Path(data), columns_of(config, data, self.per_piece), self.name, console.say)
        full = [row for row in rows if not is_empty(row)]
        if len(full) < len(rows):
            console.say(f"skipped {len(rows) - len(full):,}: empty")
        if not full:
            raise DataError(f"{data or folder}: no examples to score on")
        inputs, targets = self.inputs_and_targets(full, predictor, data or config.valid or config.path)
        on, contents = data or "its own validation set", [content(row) for row in full]
        return TestSet(on=on, inputs=inputs, targets=targets, train=train, extra=full, contents=contents)

    def training_contents(self, predictor: Any, data: LabelledConfig) -> Iterable[str]:
        from regard.data.labelled import content, read_parts

        return map(content, read_parts(data, self.name, silent)[0])

    def inputs_and_targets(self, rows: Sequence[Any], predictor: Any, file: str) -> tuple[list[Any], Any]:
        raise NotImplementedError


class Classify(Classes, Labels):
    name = "classify"
    summary = "a label for each text"
    data_help = "A table of texts and labels, or a name."
    examples: tuple[str, ...] = (
        "regard train classify --data reviews.csv --text review --label sentiment",
        "regard train classify --data reviews.csv --arch transformer,lstm",
        "regard train classify --data students.csv --label passed --arch mlp    # rows of numbers and categories",
    )
    card = Card(pipeline="text-classification", title="A text classifier", use='classify {} "…"')
    family, views = "classifier", ("classes",)
    example_texts: tuple[str, ...] = ("A film worth seeing twice.",)
    purpose = "classify texts"
    unit = "texts"
    predict_takes = ("text", "second")

    def fits(self, contents: "Contents") -> Fit | None:
        texts, classes = contents.holding("texts"), contents.labels()
        if len(texts) != 1 or not classes:
            return None
        text, label = texts[0], classes[0]
        reason = f"texts in {text.name!r}, a label in {label}"
        return self.fit_for(contents, reason, "minilm", text=text.name, label=label.name)

    def for_arch(self, arch: str) -> Task:
        """`--arch mlp` reads rows of numbers and categories, not texts."""
        return Table() if arch in Table.archs else self

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        from regard.data.tokenizers import load
        from regard.predictors import Classifier

        ours = about.get("task") == self.name  # a folder from elsewhere may hold either
        return Classifier(model, load(folder), device, pairs=isinstance(self, Pair) if ours else None)

    def parse_inputs(self, predictor: Any, words: Sequence[str], console: Console) -> Any:
        pairs = len(words) > 1
        if predictor.pairs is not None and predictor.pairs != pairs:
            expected = "two texts: TEXT SECOND" if predictor.pairs else "one text; put it in quotes"
            trained = "pairs" if predictor.pairs else "single texts"
            raise ConfigError(f"this model was trained on {trained}; expected {expected}")
        if len(words) > 2:
            raise ConfigError(f"got {len(words)} texts; expected two: TEXT SECOND, each in quotes")
        inputs = [tuple(words)] if pairs else list(words)
        if predictor.cut(inputs):
            console.say(f"the text is longer than {predictor.max_length} tokens; the rest was not read")
        return inputs

    def input_schema(self, predictor: Any) -> dict[str, Any]:
        text = super().input_schema(predictor)
        pair = {
            "type": "array",
            "items": text,
            "minItems": 2,
            "maxItems": 2,
            "examples": [["A man sleeps.", "He rests."]],
        }
        either = {"anyOf": [text, pair], "examples": text["examples"]}
        return {True: pair, False: text, None: either}[predictor.pairs]

    def request_input(
        self, predictor: Any, value: Any, folder: Path, console: Console, most: Mapping[str, float]
    ) -> Any:
        """A text, or a pair of texts as a list."""
        pair = isinstance(value, list) and len(value) == 2
        return self.parse_inputs(predictor, [self.text_value(text) for text in (value if pair else [value])], console)

    def read_inputs(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Inputs:
        """Every row of a table, its columns before the answer. Rows without text, or malformed, get no answer."""
        from regard.data.examples import text_columns
        from regard.data.files import in_groups
        from regard.data.tables import read_table

        trained = group(read_json_if_any(folder / "regard.json"), "data")
        rows = read_table(file, (options.text, options.second), say=console.say, strict=False)
        columns = {name.lower() for name in rows.columns}
        text, second = (
            getattr(options, name) or (trained[name] if str(trained.get(name, "")).lower() in columns else "")
            for name in ("text", "second")
        )
        pairs = bool(predictor.pairs or second)
        names = [name for name in text_columns(rows, text, second, "", pairs, labelled=False) if name]

        def examples() -> Iterator[tuple[dict[str, Any], Any]]:
            cut = 0
            every = rows.with_gaps({name: has("text") for name in names}, console.say)
            for chunk in in_groups(every, CHUNK):
                texts = [tuple(cells[name] for name in names) if usable else None for cells, usable in chunk]
                inputs = [text if pairs or text is None else text[0] for text in texts]
                cut += predictor.cut([x for x in inputs if x is not None])
                yield from zip((cells for cells, _ in chunk), inputs, strict=True)
            if cut:
                console.say(f"{cut:,} texts were cut at {predictor.max_length} tokens")

        return Inputs(examples=examples(), unit="texts", total=len(rows) + len(rows.skipped))

    def inputs_and_targets(self, rows: Sequence[Any], predictor: Any, file: str) -> tuple[list[Any], Any]:
        from regard.data.labelled import labels_of, places_of

        inputs = [row.text if row.second is None else (row.text, row.second) for row in rows]
        return inputs, self.targets(predictor, labels_of(rows), places_of(rows, file))

    def extras(self, predictor: Any, test: TestSet, probabilities: "np.ndarray", console: Console) -> Extras:
        """Baselines from the training set: a bag of words and the majority class."""
        cut = predictor.cut(test.inputs)
        remarks = [f"cut          {cut:,} texts, longer than {predictor.max_length} tokens"] if cut else []
        if test.train is None:
            console.say("no baseline: the training file is missing")
            return Extras({}, [], remarks)
        other = baseline(test.train, test.extra)
        lines = [f"baselines    bag of words {other.bag_of_words:.2%}   majority class {other.majority:.2%}"]
        return Extras(dataclasses.asdict(other), lines, remarks)


class Pair(Classify):
    name = "pair"
    summary = "a label for each pair of texts"
    options = ("valid", "text", "second", "label")
    examples = ("regard train pair --data pairs.csv --text premise --second hypothesis --label label",)
    card = Card(pipeline="text-classification", title="A classifier of pairs", use='classify {} "…" "…"')
    family = "pair"
    example_texts = ("The cat drank the milk because it was hungry.", "The cat drank the milk because it was sweet.")
    purpose = "classify pairs of texts"

    def fits(self, contents: "Contents") -> Fit | None:
        texts, classes = contents.holding("texts"), contents.labels()
        if len(texts) != 2 or not classes:
            return None
        first, second, label = *(column.name for column in texts), classes[0]
        reason = f"two texts in {first!r} and {second!r}, a label in {label}"
        return self.fit_for(contents, reason, "minilm", text=first, second=second, label=label.name)


def columns_of(config: LabelledConfig, data: str, tagged: bool) -> LabelledConfig:
    """The training columns, for a file of the same format or with the same column names; otherwise the defaults."""
    from regard.data.files import ending
    from regard.data.tables import is_delimited, read_table

    same = ending(config.path) == ending(data) or (is_delimited(config.path) and is_delimited(data))
    names = [name for name in (config.text, config.second, config.label) if name]
    if not same and not tagged and names:
        present = [name.lower() for name in read_table(Path(data), names, say=silent, strict=False).columns]
        same = all(name.lower() in present for name in names)
    return config if same else dataclasses.replace(config, text="", second="", label="")


def summary_of(data: "PreparedLabels") -> dict[str, Any]:
    """What `summarise` returned when the data was prepared; earlier versions stored sentences, or nothing."""
    summary = data.manifest.get("summary")
    return summary if isinstance(summary, dict) else {}


def summarise(train: Sequence[Any], valid: Sequence[Any]) -> dict[str, Any]:
    """For texts with one class: an example, which reveals a wrong column, and the accuracy of the baselines."""
    scores = baseline(train, valid)
    return {
        "example": f"{train[0].text[:60]!r} is {train[0].label!r}",
        "accuracy": {"bag of words": scores.bag_of_words, "majority class": scores.majority},
    }


@dataclass(frozen=True)
class TextBaseline:
    """The accuracy of a bag of words, and of always predicting the training set's majority class."""

    bag_of_words: float
    majority: float


def baseline(train: Sequence[Any], test: Sequence[Any]) -> TextBaseline:
    from regard.metrics.labels import bag_of_words

    def texts(row: Any) -> tuple[str, ...]:
        return (row.text,) if row.second is None else (row.text, row.second)

    labels = [row.label for row in train]
    predicted = bag_of_words([texts(row) for row in train], labels, [texts(row) for row in test])
    common = max(sorted(set(labels)), key=labels.count)
    right = [label == row.label for label, row in zip(predicted, test, strict=True)]
    return TextBaseline(sum(right) / len(test), sum(row.label == common for row in test) / len(test))
