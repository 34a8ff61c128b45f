"""Series: a class for each series, trained from scratch or from a model that fills in hidden values."""

import dataclasses
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.folders import silent
from regard.data.settings import SeriesConfig
from regard.errors import CheckpointError, ConfigError, DataError
from regard.jsonfile import group
from regard.tasks.base import UNKNOWN_LABELS, Arch, Card, Fit, Say, Task, recurrent
from regard.tasks.classes import Classes, Extras, class_scores, imbalance
from regard.tasks.presets import presets_of
from regard.tasks.use import Options, Predictions, TestSet
from regard.ticks import Console
from regard.training.baseline import Baseline
from regard.words import count, some

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from regard.data.contents import Contents
    from regard.data.series import Curves, SeriesParts
    from regard.data.series_batch import SeriesSource
    from regard.models.series import SeriesTokens
    from regard.training.run import Run

COLUMNS = ("id", "time", "value", "error", "band", "label")


class FillSeries(Task):
    """Self-supervised pre-training: hidden values of a series are filled in."""

    name = "fill-series"
    summary = "fill in hidden values of series, to start a classifier from"
    settings = SeriesConfig
    options = ("valid", "label")
    data_help = "A table of points, a folder of tables or an archive, or a name."
    examples = ("regard train fill-series --data curves.csv",)
    archs = {"transformer": Arch("series"), **recurrent("rnn_series")}
    presets = presets_of("series")
    card = Card(pipeline="time-series", title="A model of series", use="finetune {} series --data curves.csv")
    starts, finetune_length = ("series", "rnn_series"), "3"
    labelled = False
    reads = "series"
    purpose = "fill in hidden values of series"

    def fits(self, contents: "Contents") -> Fit | None:
        from regard.data.series import CLASSES, IDS, TIMES, VALUES

        id, time, value, label = map(contents.named, (IDS, TIMES, VALUES, CLASSES))
        if id is None or time is None or value is None or (label is None and self.labelled):
            return None
        reason = f"a series of {value.name!r} over {time.name!r} for each {id.name!r}"
        if not self.labelled or label is None:
            return self.fit_for(contents, f"{reason}, to pre-train on")
        return self.fit_for(contents, f"{reason}, a class in {label}", label=label.name)

    def model_settings(self, data: Any, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        return {"labels": UNKNOWN_LABELS if self.labelled else ()}

    def finetune_run(self, start: Path, data: SeriesConfig, device: str, lora: int) -> "Run":
        from regard.models.published import read_config

        config: Any = read_config(start)
        if lora:
            raise ConfigError("a series model is small: fine-tune all of it, without --lora")
        run = self.default_run("transformer", "", data, device)
        optim = dataclasses.replace(run.optim, lr=run.optim.lr / 2)
        model = dataclasses.replace(config, labels=UNKNOWN_LABELS if self.labelled else ())
        return dataclasses.replace(run, model=model, start=str(start.absolute()), optim=optim)

    def read(self, run: "Run", say: Say) -> "SeriesParts":
        from regard.data.series import read_parts

        data: SeriesConfig = run.data
        parts = read_parts(data, say, labelled=self.labelled)
        if data.balanced and (not set(parts.train.labels) - {""} or "" in parts.train.labels):
            raise ConfigError("data.balanced needs a label for every series, and some have none; leave it out")
        report(parts.train, parts.valid, data, parts.how, say)
        return parts

    def fit(self, run: "Run", data: "SeriesParts") -> "Run":
        return run.with_model(labels=data.labels if self.labelled else (), **measured(run, data.train))

    def build(self, run: "Run", data: "SeriesParts", say: Say) -> "nn.Module":
        from regard.data.series_batch import SeriesSource
        from regard.models.published import load_model

        model: Any = super().build(dataclasses.replace(run, start=""), data, say)
        standardise_(model.tokens, SeriesSource(data.train, data.labels, run.data.max_length))
        if run.start:
            new = ", ".join(begin_from_(model, load_model(Path(run.start))))
            say(f"randomly initialised: {new or 'nothing'}")
        return model

    def objective(self, run: "Run", data: Any = None) -> Any:
        from regard.objectives.fill_series import FillSeriesLoss as Objective

        return Objective()

    def source(self, run: "Run", data: "SeriesParts", part: str, device: str) -> "SeriesSource":
        from regard.data.series_batch import HiddenSource, SeriesSource

        c, source = run.data, SeriesSource if self.labelled else HiddenSource
        change = (c.window, c.jitter, c.hide, c.thin) if part == "train" else ()
        return source(getattr(data, part), data.labels, c.max_length, *change)

    def show(self, run: "Run", data: "SeriesParts", batch: Any, row: int) -> str:
        times, values, _, _, lengths, *_ = batch.inputs
        length = times.size(1) if lengths is None else int(lengths[row])
        points = zip(times[row, :length].tolist(), values[row, :length].tolist(), strict=True)
        shown = some((f"{time:.4g}: {value:.4g}" for time, value in points), 6, ", ")
        target = int(batch.targets[row])
        return f"{shown} → {data.labels[target] if self.labelled else f'{target} hidden'}"

    def plan(self, run: "Run", data: "SeriesParts", part: str, source: Any) -> Any:
        from regard.data.loader import FixedSize, class_odds

        balanced = part == "train" and run.data.balanced
        return FixedSize(run.batch, class_odds(source.targets) if balanced else None)

    def fingerprint(self, data: "SeriesParts") -> dict[str, int]:
        names = "\t".join([*data.train.ids, *data.train.labels])
        return {"content": zlib.crc32(data.train.values.tobytes(), zlib.crc32(names.encode()))}

    def settings_from_data(self, run: "Run") -> dict[str, Any]:
        return {"known": run.data.known}

    def example(self, run: "Run") -> Any:
        import numpy as np
        import torch

        from regard.data.batch import Samples

        data = run.data
        points = torch.zeros(run.batch, min(data.window or data.max_length, data.max_length))
        known = torch.zeros(run.batch, len(data.known)) if data.known else None
        hidden = () if self.labelled else (torch.ones_like(points, dtype=torch.bool),)
        inputs = (points, points, None, None, None, known, *hidden)
        return Samples(inputs, torch.zeros(run.batch, dtype=torch.long), np.arange(run.batch))

    def about(self, run: "Run", data: Any) -> dict[str, Any]:
        columns = {name: value for name in COLUMNS if (value := getattr(run.data, name))}
        return {"name": run.data.name, "max_length": run.data.max_length, **columns}

    def serves(self, config: Any) -> bool:
        return super().serves(config) and bool(config.labels) == self.labelled

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        way = f"regard finetune {folder} series --data …"
        raise CheckpointError(f"{folder} fills in hidden values; for classes: {way}")


class Series(Classes, FillSeries):
    """A class for each series."""

    name, trains_on = "series", "series"
    summary = "a class for each series or light curve"
    examples = ("regard train series --data curves.csv --label class",)
    card = Card(pipeline="time-series", title="A classifier of series", use="classify {} curve.csv")
    labelled = True
    purpose = "classify series"
    unit = "series"
    evaluate_takes = ("data", "labels", "picture", "strict")
    joins = False
    compare_takes = ("data", "labels")
    predict_takes = ("second", "labels")
    draws_attention = True

    def objective(self, run: "Run", data: Any = None) -> Any:
        from regard.metrics.series import balanced_accuracy
        from regard.objectives.classify import ClassifySamples

        def more(true: "np.ndarray", predicted: "np.ndarray") -> dict[str, float]:
            return {"balanced_accuracy": balanced_accuracy(true, predicted)}

        labels = () if data is None else data.labels
        return ClassifySamples(run.smoothing, scores=class_scores(run, labels, more))

    def metric(self, run: "Run", data: "SeriesParts", device: str) -> Callable[[Any], dict[str, float]] | None:
        """The loss weighted by class, if `data.weights` is set."""
        from regard.metrics.series import weighted_log_loss

        if not run.data.weights:
            return None
        weights, source = class_weights(run.data, data.labels), self.source(run, data, "valid", device)

        def metric(model: Any) -> dict[str, float]:
            p = probabilities(model, source, run.batch, device)
            return {"weighted_loss": weighted_log_loss(p, source.targets, weights)}

        return metric

    def remarks(self, run: "Run", data: "SeriesParts", loader: Any) -> Iterable[str]:
        yield f"an epoch is {count(loader.batches_per_epoch, 'batch')}"
        if not run.data.balanced:
            yield from imbalance(data.labels, [data.train.labels.count(label) for label in data.labels], "samples")

    def baselines(self, run: "Run", data: "SeriesParts") -> Sequence[Baseline]:
        from regard.metrics.series import baseline

        scores = baseline(data.train, data.valid)
        values = {"nearest neighbours by summary": scores.nearest, "majority class": scores.majority}
        return [Baseline(name, "accuracy", value) for name, value in values.items()]

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        from regard.predictors import SeriesClassifier

        return SeriesClassifier(model, device, group(about, "data"))

    family, views = "series", ("classes",)

    def one_of(self, inputs: "Curves", number: int) -> "Curves":
        from regard.data.series import part

        return part(inputs, [number])

    def parse_inputs(self, predictor: Any, words: Sequence[str], console: Console) -> "Curves":
        """The series of a file; a second word is the table of other known values."""
        curves = predictor.read(*words)
        for line in curves.notes():
            console.say(line)
        if cut := int((curves.lengths > predictor.max_length).sum()):
            console.say(f"{cut:,} series are longer than {predictor.max_length} points; the rest was not read")
        return curves

    def example_input(self, predictor: Any) -> Any:
        """A few points in every band; None if the model also needs a table of known values."""
        c, bands = predictor.config, predictor.model.config.bands
        if c.known:
            return None
        of_bands = [{c.band or "band": band} for band in bands] if len(bands) > 1 else [{}]
        points = [{c.time or "time": i, c.value or "value": i % 3} for i in range(8)]
        return {"rows": [point | band for point in points for band in of_bands]}

    def explain(self, predictor: Any, one: Any, answer: Any) -> Any:
        """The last layer's attention to each point."""
        return {"points": predictor.attention(one).round(6).tolist()}

    def draw_attention(self, predictor: Any, words: Sequence[str], inputs: Any, answers: Any, path: str) -> Path:
        from regard.explain.series import draw_attention

        best = answers[0]
        title = f"{inputs.ids[0]}: {best.label} ({best.probabilities[best.label]:.0%})"
        return draw_attention(inputs, 0, predictor.attention(inputs), title, path)

    def predictions(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Predictions:
        """A row for each series of the file; one without usable points gets no label."""
        curves = self.parse_inputs(predictor, [str(file), options.labels or options.second], console)
        with console.progress("series", len(curves)):
            answers = dict(zip(curves.ids, predictor.predict(curves), strict=True))
        rows = ({"id": name, **self.row(predictor, answers.get(name))} for name in curves.listed)
        return Predictions(rows=rows, unit="series", total=len(curves.listed))

    def test_set(self, predictor: Any, folder: Path, options: Options, console: Console) -> TestSet:
        from regard.data.series import digests, with_bands

        on, config, train, curves = self.scored_curves(predictor, folder, options, console)
        curves = with_bands(curves, predictor.model.config.bands)
        targets = self.targets(predictor, curves.labels, curves.ids)
        contents = digests(curves) if options.data else []
        return TestSet(on=on, inputs=curves, targets=targets, train=train, extra=config, contents=contents)

    def training_contents(self, predictor: Any, data: SeriesConfig) -> Iterable[bytes]:
        from regard.data.series import digests, read_parts, with_bands

        return digests(with_bands(read_parts(data, silent).train, predictor.model.config.bands))

    def scored_curves(
        self, predictor: Any, folder: Path, options: Options, console: Console
    ) -> tuple[str, SeriesConfig, "Curves | None", "Curves"]:
        """The series to score on: name, data settings, the training set if available, and the series."""
        from regard.data.series import read_parts, read_test

        data, config, parts = options.data, SeriesConfig(), None
        if not data or (folder / "run.json").is_file():
            config = dataclasses.replace(self.own_data(folder), strict=options.strict)
            try:
                parts = read_parts(config, console.say)
            except DataError:
                if not data:
                    raise
        train = parts.train if parts else None
        if data:
            settings = dict(strict=options.strict, targets=self.target_kind)
            curves = predictor.read(data, options.labels or config.labels, labelled=True, **settings)
            return data, config, train, curves
        assert parts is not None
        if (test := read_test(config, console.say)) is not None:
            return f"{config.name} (test)", config, train, test
        return "its own validation set", config, train, parts.valid

    def extras(self, predictor: Any, test: TestSet, probabilities: "np.ndarray", console: Console) -> Extras:
        """Balanced accuracy, a weighted loss if weights are set, and nearest neighbours as a baseline."""
        from regard.metrics.series import balanced_accuracy, baseline, weighted_log_loss

        values: dict[str, Any] = {"balanced_accuracy": balanced_accuracy(test.targets, probabilities.argmax(1))}
        lines = [f"balanced     {values['balanced_accuracy']:.2%}, the mean over the classes"]
        if weights := test.extra.weights:
            loss = weighted_log_loss(probabilities, test.targets, class_weights(test.extra, predictor.labels))
            values["weighted_loss"] = loss
            lines.append(f"weighted     log-loss {loss:.4f} ({', '.join(weights)}, the others 1)")
        if test.train is None:
            console.say("no baseline: the training file is missing")
            return Extras(values, lines)
        other = baseline(test.train, test.inputs)
        return Extras(values | dataclasses.asdict(other), [*lines, f"baselines    {other}"])


def report(train: "Curves", valid: "Curves", data: SeriesConfig, how: str, say: Say) -> None:
    from regard.data import split
    from regard.data.targets import TARGETS

    counts = Counter(label for label in train.labels if label or data.targets != "classes")
    points = f"{int(train.lengths.min())} to {int(train.lengths.max())} points, {len(train.band_names)} bands"
    say(f"{split.report(len(train), len(valid), 'series', how)}; {points}")
    if counts:
        say(TARGETS[data.targets].report(counts, "", "labels")[0])
    if cut := int((train.lengths > data.max_length).sum()):
        say(f"cut {cut:,}: longer than {data.max_length} points (--set data.max_length=…)")


def measured(run: "Run", train: "Curves") -> dict[str, Any]:
    """Model settings from the data: its bands, and the scale of its times."""
    import numpy as np

    spans = train.times[train.offsets[1:] - 1] - train.times[train.offsets[:-1]]
    span, tick = float(spans.max()), float(np.median(spans / np.maximum(1, train.lengths - 1)))
    if not span:  # one point per series
        span = tick = 1.0
    if run.start:  # a trained model keeps its scale of time
        tick, span = run.model.tick, run.model.span
    return dict(bands=train.band_names, known=run.data.known, tick=tick or span, span=span)


def standardise_(tokens: "SeriesTokens", source: "SeriesSource") -> None:
    """Set the first token's mean and standard deviation of its inputs, over the training set."""
    import torch

    from regard.data.loader import FixedSize, in_order

    rows = []
    for batch in in_order(source, FixedSize(256)):
        rows.append(tokens.summary(*batch.inputs))
    every = torch.cat(rows)
    mean = every.nanmean(0).nan_to_num(0.0)  # arbitrary for a number known of no object
    spread = torch.where(every.isnan(), mean, every).std(0, correction=0)
    tokens.usual.copy_(torch.stack((mean, torch.where(spread > 1e-6, spread, 1.0))))


def begin_from_(model: Any, started: Any) -> list[str]:
    """Copy what both have in the same shape; returns the parts that stay randomly initialised."""
    theirs, mine = started.state_dict(), model.state_dict()
    fits = {name: t for name, t in theirs.items() if name in mine and mine[name].shape == t.shape}
    model.load_state_dict(mine | fits)
    return sorted({name.split(".")[0] for name in mine if name not in fits})


def class_weights(data: SeriesConfig, labels: tuple[str, ...]) -> list[float]:
    weights = {name: float(weight) for name, weight in (pair.rsplit("=", 1) for pair in data.weights)}
    if unknown := set(weights) - set(labels):
        raise ConfigError(f"data.weights names {', '.join(sorted(unknown))}; the classes are: {', '.join(labels)}")
    return [weights.get(label, 1.0) for label in labels]


def probabilities(model: Any, source: "SeriesSource", size: int, device: str) -> "np.ndarray":
    """Class probabilities, N L."""
    import torch

    from regard.data.loader import FixedSize, in_order

    with torch.no_grad():
        rows = [
            model.scores(model(*b.to(device).inputs)).double().softmax(-1).cpu()
            for b in in_order(source, FixedSize(size))
        ]
    return torch.cat(rows).numpy()
