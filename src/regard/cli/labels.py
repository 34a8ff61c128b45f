"""`regard classify`, `regard tag`, and how classifiers and taggers are scored and run over files."""

import csv
import dataclasses
import io
import json as jsonlib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.classes import show_answer
from regard.cli.common import Device, Json, Run, names_file, pick_device, show, write_lines
from regard.cli.images import classify_image
from regard.cli.series import classify_file
from regard.cli.sounds import classify_clip
from regard.cli.tables import classify_row
from regard.errors import ConfigError, DataError
from regard.jsonfile import group, read_json_if_any
from regard.ticks import Console
from regard.words import table

if TYPE_CHECKING:
    from regard.data.labelled import LabelledConfig, Rows
    from regard.predictors import Classifier, Labeller, Tagger

CHUNK = 2048  # rows labelled at a time
SPACES = dict.fromkeys(map(ord, "\t\n\r"), " ")  # what no cell of a TSV can hold


def classify(
    ctx: typer.Context,
    run: Run,
    text: Annotated[
        str,
        typer.Argument(
            metavar="THING",
            help="A text, the file of an image, of a sound or of series, or a row: column=value, …",
            show_default=False,
        ),
    ],
    second: Annotated[
        str,
        typer.Argument(
            metavar="SECOND",
            help="For pairs: the second text. For series: the table of what else is known of each.",
            show_default=False,
        ),
    ] = "",
    attention: Annotated[
        str,
        typer.Option(metavar="FILE", help="For an image or a series: draw where the model looked.", show_default=False),
    ] = "",
    json: Json = False,
    device: Device = "auto",
) -> None:
    """The label of a text, a pair of texts, an image, a sound, series or a row, with all probabilities.

    \b
    Examples:
      regard classify runs/sent "A stirring, funny film."
      regard classify runs/pair "A man sleeps." "Nobody is awake."
      regard classify runs/vit picture.png --attention overlay.png
      regard classify runs/digits seven.wav
      regard classify runs/pass "hours=12, school=north"
      regard classify runs/s curve.csv --attention curve.png
      regard predict runs/sent new.csv --out scored.csv      # a whole file
    """
    from regard.predictors import Classifier, ClipClassifier, ImageClassifier, RowClassifier, SeriesClassifier
    from regard.tasks.load import load

    model = load(run, device=pick_device(device))
    if isinstance(model, SeriesClassifier):
        classify_file(model, run, text, second, attention, json, ctx.obj)
        return
    if attention and not isinstance(model, ImageClassifier):
        raise ConfigError("--attention is for images and series; leave it out")
    if isinstance(model, ImageClassifier | RowClassifier | ClipClassifier):
        if second:
            raise ConfigError(f"{run} reads one thing at a time; for several type: regard predict {run} FILE")
        if isinstance(model, ImageClassifier):
            answer = classify_image(model, text, attention, ctx.obj)
        else:
            rows = isinstance(model, RowClassifier)
            answer = classify_row(model, text, ctx.obj) if rows else classify_clip(model, text)
        show_answer(answer, json)
        return
    if not isinstance(model, Classifier):
        raise ConfigError(f"{run} is no classifier; train one: regard train classify --data reviews.csv")
    named = len(os.fsencode(text)) < 256 and Path(text).suffix  # the longest name of a file has 255 bytes
    if not second and named and names_file(text):
        raise ConfigError(
            f"{text} is a file, and what is wanted a text; for all of its rows: regard predict {run} {text}"
        )
    pairs = of_pairs(run)
    if pairs is not None and pairs != bool(second):
        wanted = "two texts: TEXT SECOND" if pairs else "one text; put it in quotes"
        raise ConfigError(f"{run} was trained on {'pairs' if pairs else 'single texts'}; it wants {wanted}")
    (answer,) = model.classify([text], [second] if second else None)
    if model.cut([text], [second] if second else None):
        ctx.obj.say(f"the text is longer than {model.max_length} pieces; the rest was not read")
    show_answer(answer, json)


def tag(
    run: Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A text.", show_default=False)],
    json: Json = False,
    device: Device = "auto",
) -> None:
    """The label of each word of a text.

    \b
    Examples:
      regard tag runs/ner "Ada met Grace in Paris."
      regard predict runs/ner lines.txt --out tagged.conll   # a whole file
    """
    from regard.predictors import Tagger
    from regard.tasks.load import load

    model = load(run, device=pick_device(device))
    if not isinstance(model, Tagger):
        raise ConfigError(f"{run} is no tagger; train one: regard finetune minilm tag --data train.conll")
    words = model.tag(text)
    if json:
        show([dataclasses.asdict(word) for word in words])
    else:
        print(table([(w.word, w.label, f"{w.probability:.1%}") for w in words], right=[2]))


def of_pairs(run: str) -> bool | None:
    """Whether a run was trained on pairs; None where nobody wrote that down."""
    task = str(read_json_if_any(Path(run) / "regard.json").get("task", ""))
    return {"pair": True, "classify": False}.get(task)


# -- scoring ------------------------------------------------------------------------------------------------------


def evaluate_labels(model: "Labeller", run: str, data: str, picture: str, json: bool, flags: Console) -> None:
    """Accuracy, F1, confusion and calibration of a classifier beside a bag of words; token accuracy and entity F1 of a
    tagger."""
    from regard.cli.evaluate import note
    from regard.predictors import Classifier, Tagger

    if picture:
        from regard.explain.picture import check_picture

        check_picture(picture)
        if isinstance(model, Tagger):
            raise ConfigError("--picture shows how sure a classifier is; a tagger has none yet")
    what, config, kind, train, rows = labelled_set(run, data, isinstance(model, Tagger), flags)
    from regard.data.labelled import check_known, content, is_empty

    check_known(rows, model.labels, data or config.valid or config.path)
    full = [row for row in rows if not is_empty(row)]
    if len(full) < len(rows):
        flags.say(f"passed over {len(rows) - len(full):,}: empty")
    if not full:
        raise DataError(f"{what}: no examples to score on")
    learned = {content(row) for row in train or ()}
    if shared := sum(content(row) in learned for row in full):
        flags.say(f"{shared:,} of them it was trained on; the score flatters")
    if isinstance(model, Tagger):
        found, text = score_tags(model, full)
    else:
        assert isinstance(model, Classifier)
        found, text = score_classes(model, full, train, picture, flags)
    noted = {"on": what, **found}
    flat = {k: v for k, v in noted.items() if isinstance(v, int | float | str)}
    note(Path(run), flat)
    if json:
        show({"run": run, "task": kind, **noted})
    else:
        print(f"{run} on {what}, {len(full):,} examples\n{text}")


def labelled_set(run: str, data: str, tags: bool, flags: Console) -> tuple[str, "LabelledConfig", str, Any, Any]:
    """What to score on: its name, the settings it is read with, the task, the training part and the examples."""
    from regard.data.labelled import LabelledConfig, read_parts, read_rows
    from regard.tasks.plan import read_run

    kind, config = "tag" if tags else "classify", None
    if (Path(run) / "run.json").is_file():
        known = read_run(run)
        assert isinstance(known.data, LabelledConfig), "a labeller was trained on labels"
        kind, config = known.task, known.data
    train: Any = None
    if config is not None:
        try:
            train, valid, _ = read_parts(config, kind, flags.say)
            if not data:
                return "its own held-out examples", config, kind, train, valid
        except DataError:
            if not data:
                raise
    if not data:
        raise ConfigError(f"{run} has no examples of its own; type: regard evaluate {run} --data FILE")
    config = config or LabelledConfig(path=data)
    return data, config, kind, train, read_rows(Path(data), columns_of(config, data, kind), kind)


def columns_of(config: "LabelledConfig", data: str, kind: str) -> "LabelledConfig":
    """The columns asked for in training, for a file of the same form or with the same names; else the usual ones."""
    from regard.data.files import ending
    from regard.data.tables import is_delimited, read_table

    same = ending(config.path) == ending(data) or (is_delimited(config.path) and is_delimited(data))
    asked = [name for name in (config.text, config.second, config.label) if name]
    if not same and kind != "tag" and asked:
        there = [name.lower() for name in read_table(Path(data), asked).columns]
        same = all(name.lower() in there for name in asked)
    return config if same else dataclasses.replace(config, text="", second="", label="")


def score_tags(model: "Tagger", rows: "Rows") -> tuple[dict[str, Any], str]:
    from regard.evaluate.classes import class_table
    from regard.evaluate.labels import entity_score, is_iob

    true = [list(row.tags) for row in rows]
    guessed = [labels for labels, _ in model.tag_words([row.words for row in rows])]
    pairs = [(a, b) for x, y in zip(true, guessed, strict=True) for a, b in zip(x, y, strict=True)]
    found: dict[str, Any] = {"accuracy": sum(a == b for a, b in pairs) / len(pairs), "words": len(pairs)}
    lines = [f"accuracy   {found['accuracy']:.2%} of {len(pairs):,} words"]
    if is_iob(model.labels):
        score = entity_score(true, guessed)
        found |= {"entity_f1": score.f1, "entity_precision": score.precision, "entity_recall": score.recall}
        found["by_type"] = [dataclasses.asdict(t) for t in score.by_type]
        lines.append(
            f"entity F1  {score.f1:.2%} (precision {score.precision:.2%}, recall {score.recall:.2%}) "
            f"of {score.entities:,} entities, strict IOB2\n"
        )
        lines.append(class_table(score.by_type))
    else:
        from regard.evaluate.labels import by_class, confusion

        at = {label: i for i, label in enumerate(model.labels)}
        counts = confusion([at[a] for a, _ in pairs], [at[b] for _, b in pairs], len(at))
        classes = by_class(counts, model.labels)
        found["by_class"] = [dataclasses.asdict(c) for c in classes]
        lines += ["", class_table(classes)]
    return found, "\n".join(lines)


def score_classes(
    model: "Classifier", rows: Any, train: Any, picture: str, flags: Console
) -> tuple[dict[str, Any], str]:
    import numpy as np

    from regard.tasks.classes import class_verdict
    from regard.tasks.classify import baseline

    seconds = [row.second for row in rows] if rows[0].second is not None else None
    with flags.progress("texts", len(rows)):
        likely = model.probabilities([row.text for row in rows], seconds)
    at = {label: i for i, label in enumerate(model.labels)}
    cut = model.cut([row.text for row in rows], seconds)
    found, said, beside = {}, [], []
    if train is None:
        flags.say("no baseline beside it: the training file is not here")
    else:
        other = baseline(train, rows)
        found = {"bag_of_words": other.bag_of_words, "majority": other.majority}
        beside.append(f"bag of words {other.bag_of_words:.2%}   commonest label {other.majority:.2%}")
    if cut:
        said.append(f"cut          {cut:,} texts, longer than {model.max_length} pieces")
    true = np.array([at[row.label] for row in rows])
    verdict = class_verdict("", likely, true, model.labels, "texts", found, beside, picture, flags, said)
    return verdict.values, verdict.text


def labels_of_run(run: str) -> bool:
    """Whether a run was trained on labels."""
    from regard.tasks.classify import Classify
    from regard.tasks.registry import TASKS

    name = str(read_json_if_any(Path(run) / "regard.json").get("task", ""))
    return isinstance(TASKS.get(name), Classify)


def compare_labellers(
    first: str, second: str, data: str, samples: int, json: bool, device: str, flags: Console
) -> None:
    """Two classifiers, or two taggers, on the same examples, text by text."""
    from regard.data.labelled import check_known, is_empty
    from regard.evaluate.compare import compare_labels, counted, verdict
    from regard.evaluate.labels import is_iob
    from regard.predictors import Classifier, Tagger
    from regard.tasks.load import load

    one, two = (load(run, device=device) for run in (first, second))
    kind = Tagger if isinstance(one, Tagger) else Classifier
    if not isinstance(one, kind) or not isinstance(two, kind):
        raise ConfigError(f"{first} and {second} do not do the same; compare two classifiers, or two taggers")
    what, config, _, _, rows = labelled_set(first, data, kind is Tagger, flags)
    rows = [row for row in rows if not is_empty(row)]
    answers = []
    for model in (one, two):
        check_known(rows, model.labels, data or config.valid or config.path)
        if isinstance(model, Tagger):
            answers.append([labels for labels, _ in model.tag_words([row.words for row in rows])])
        else:
            seconds = [row.second for row in rows] if rows and rows[0].second is not None else None
            answers.append([[answer.label] for answer in model.classify([row.text for row in rows], seconds)])
    of_entities = kind is Tagger and is_iob(one.labels)
    true = [row.tags if kind is Tagger else (row.label,) for row in rows]
    metric = "entity F1" if of_entities else "accuracy"
    counts = [[counted(a, b, of_entities) for a, b in zip(true, guessed, strict=True)] for guessed in answers]
    found = compare_labels(metric, *counts, samples=samples)
    if json:
        values = dataclasses.asdict(found) | {"difference": found.difference}
        show({"first": first, "second": second, "on": what, "examples": len(rows), "metrics": [values]})
        return
    print(f"first {first}, second {second}, on {len(rows):,} examples: {what}")
    print(f"{metric} {found.first:.2f} {found.second:.2f}   {found.difference:+.2f}   p = {found.p_value:.4f}")
    print(verdict(found, first, second))


# -- files --------------------------------------------------------------------------------------------------------


def predict_labels(
    model: "Labeller", run: str, file: Path, out: Path | None, text: str, second: str, json: bool, flags: Console
) -> None:
    """Every row of a table with its label and probabilities after the other columns; every line of a text tagged."""
    from regard.predictors import Classifier, Tagger

    if isinstance(model, Tagger):
        lines = tagged_lines(model, file, json)
    else:
        assert isinstance(model, Classifier)
        lines = labelled_rows(model, run, file, out, text, second, json, flags)
    write_lines(lines, out, flags, "texts")


def tagged_lines(model: "Tagger", file: Path, json: bool) -> Iterator[str]:
    """Word, tab, label, and an empty line after each sentence: a line of a text, or a sentence of a CoNLL file."""
    from regard.data.examples import read_tagged
    from regard.data.files import ending
    from regard.data.pairs import read_lines

    def sentences() -> Iterator[list[tuple[str, str]]]:
        if ending(file) in (".conll", ".conllu", ".jsonl"):
            rows = read_tagged(file, labelled=False)
            for row, (labels, _) in zip(rows, model.tag_words([row.words for row in rows]), strict=True):
                yield list(zip(row.words, labels, strict=True))
            return
        for line in read_lines(file):
            yield [(w.word, w.label) for w in model.tag(line)] if line.strip() else []

    for found in sentences():
        if json:
            words, labels = ([pair[i] for pair in found] for i in (0, 1))
            yield jsonlib.dumps({"words": words, "tags": labels}, ensure_ascii=False) + "\n"
        else:
            yield "".join(f"{word}\t{label}\n" for word, label in found) + "\n"


def labelled_rows(
    model: "Classifier", run: str, file: Path, out: Path | None, text: str, second: str, json: bool, flags: Console
) -> Iterator[str]:
    from regard.data.examples import text_columns
    from regard.data.tables import read_table

    known = group(read_json_if_any(Path(run) / "regard.json"), "data")
    found = read_table(file, (text, second))
    lower = [name.lower() for name in found.columns]
    text = text or (known.get("text", "") if known.get("text", "").lower() in lower else "")
    second = second or (known.get("second", "") if known.get("second", "").lower() in lower else "")
    column, other, _ = text_columns(found, text, second, "", bool(of_pairs(run)) or bool(second), labelled=False)
    sides = [found.columns.index(name) for name in (column, other) if name]
    names = found.columns
    added = ["label" if "label" not in lower else "predicted_label", *(f"probability_{x}" for x in model.labels)]
    ending = (out or Path("x.csv")).suffix.lower()
    objects = json or ending == ".jsonl"

    def written(cells: list[Any]) -> str:
        if objects:
            return jsonlib.dumps(dict(zip([*names, *added], cells, strict=True)), ensure_ascii=False) + "\n"
        if ending == ".tsv":
            return "\t".join(str(c).translate(SPACES) for c in cells) + "\n"
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(cells)
        return line.getvalue()

    if not objects:
        yield written([*names, *added])
    empty = cut = 0
    every = found.rows()
    while rows := list(islice(every, CHUNK)):
        full = [cells for cells in rows if all(cells[side].strip() for side in sides)]
        texts, *seconds = ([cells[side] for cells in full] for side in sides)
        seconds = seconds[0] if seconds else None
        likely = iter(model.probabilities(texts, seconds).tolist())
        cut += model.cut(texts, seconds)
        empty += len(rows) - len(full)
        kept = {id(cells) for cells in full}
        for cells in rows:
            if id(cells) in kept:
                p = next(likely)
                best = model.labels[max(range(len(p)), key=p.__getitem__)]
                yield written([*cells, best, *(round(x, 6) for x in p)])
            else:
                yield written([*cells, "", *("" for _ in model.labels)])
    if empty:
        flags.say(f"{empty:,} rows without text got no label")
    if cut:
        flags.say(f"{cut:,} texts were cut at {model.max_length} pieces")
