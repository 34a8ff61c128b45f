"""Tag: a label for each word of a text."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.tasks.base import Card, Fit
from regard.tasks.classify import Labels
from regard.tasks.served import INTEGER, NUMBER, STRING, array, record
from regard.tasks.use import Inputs, Options, TestSet, Verdict, text_inputs
from regard.ticks import Console
from regard.words import count, table

if TYPE_CHECKING:
    import numpy as np

    from regard.data.contents import Contents
    from regard.data.labelled import PreparedLabels
    from regard.data.settings import LabelledConfig
    from regard.metrics.compare import Sums
    from regard.objectives.classify import Scores
    from regard.training.run import Run


ENOUGH = 10_000  # sentences that tell how entities begin; every saved model asks
SEGMENTS = """
Its vocabulary is lower-cased, and its token types say how words are written. Other programs have to pass
`token_type_ids`, for every token of a word: {codes}. Without them it reads all words as lower-cased.
"""


class Tag(Labels):
    name = "tag"
    summary = "a label for each word"
    data_help = "A CoNLL file, or JSONL or Parquet of words and tags; or a name."
    examples = ("regard train tag --data sentences.conll",)
    card = Card(pipeline="token-classification", title="A tagger", use='tag {} "…"')
    head = "token"
    answer_schema = array(record(word=STRING, label=STRING, probability=NUMBER, start=INTEGER, end=INTEGER))
    per_piece = True
    family, views = "tagger", ("tags",)
    example_texts = ("Ada Lovelace met Charles Babbage in London.",)
    purpose = "tag words"
    verbs = ("tag",)
    writes_lines = True
    table_ending = ".jsonl"
    predict_takes = ("text",)
    unit = "texts"
    evaluate_takes = ("data", "strict")
    compare_takes = ("data",)

    def fits(self, contents: "Contents") -> Fit | None:
        from regard.data.examples import TAGS, WORDS

        conll = contents.count((".conll", ".conllu"))
        if not conll and not (contents.named(WORDS) and contents.named(TAGS)):
            return None
        return self.fit_for(contents, "words with a tag each", "minilm")

    def finetune_run(self, start: Path, data: "LabelledConfig", device: str, lora: int) -> "Run":
        """Segments tell a model that lower-cases words how they are written, as names mostly begin with a capital. LoRA
        would not train them. Half of the mentions are replaced, so that names are not learned by heart."""
        from regard.data.labelled import own_tokenizer

        run = super().finetune_run(start, data, device, lora)
        case = bool(run.model.types) and not lora and own_tokenizer(run.start).lowers
        lr = run.optim.lr if lora or run.consistency else 2e-4  # docs/finetune.md has what both gain
        data = dataclasses.replace(run.data, case=case, replace_mentions=run.data.replace_mentions or 0.5)
        return dataclasses.replace(run, data=data, optim=dataclasses.replace(run.optim, lr=lr))

    def fit(self, run: "Run", data: "PreparedLabels") -> "Run":
        from regard.data.tokenizers.encoder import CASES

        run = super().fit(run, data)
        if not self.follows_iob2(data):
            run = dataclasses.replace(run, data=dataclasses.replace(run.data, replace_mentions=0.0))
        return run.with_model(types=len(CASES)) if run.data.case else run

    def source(self, run: "Run", data: "PreparedLabels", part: str, device: str) -> Any:
        from regard.data.mentions import Mentions

        source, share = super().source(run, data, part, device), run.data.replace_mentions
        if part == "train" and share:
            columns = source.ids, source.labels, source.cases
            source.mentions = Mentions.of(data.labels, *columns, share, run.data.max_length)
        return source

    def remarks(self, run: "Run", data: "PreparedLabels", loader: Any) -> Iterable[str]:
        yield from super().remarks(run, data, loader)
        if mentions := loader.source.mentions:
            yield f"{mentions.share:.0%} of {count(mentions.size, 'name')} are replaced each time they are read"

    def objective(self, run: "Run", data: "PreparedLabels | None" = None) -> Any:
        from regard.objectives.tag import TagLoss as Objective

        texts, iob2 = super().objective(run, data), data is not None and self.follows_iob2(data)
        return Objective(texts.smoothing, texts.weights, texts.scores, data.labels if data and iob2 else ())

    def write_files(self, folder: Path, run: "Run", data: "PreparedLabels") -> None:
        from regard.data.tokenizers.encoder import CASES

        super().write_files(folder, run, data)
        if run.data.case:
            codes = ", ".join(f"{code} {name}" for code, name in enumerate(CASES))
            with open(folder / "README.md", "a", encoding="utf-8") as card:
                card.write(SEGMENTS.format(codes=codes))

    def scores(self, run: "Run", data: "PreparedLabels") -> "Scores | None":
        """Entity F1, if the labels are IOB2."""
        import numpy as np

        from regard.data.iob import is_iob
        from regard.metrics.labels import entity_score

        labels, marks = data.labels, data.valid["labels"]
        if not is_iob(labels):
            return None
        ends = np.cumsum([int((marks[i] >= 0).sum()) for i in range(len(marks))])[:-1]

        def scores(true: "np.ndarray", predicted: "np.ndarray") -> dict[str, float]:
            names = ([[labels[i] for i in row] for row in np.split(x, ends)] for x in (true, predicted))
            return {"entity_f1": entity_score(*names).f1}

        return scores

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        from regard.data.tokenizers import load
        from regard.predictors import Tagger

        return Tagger(model, load(folder), device, iob2=about.get("calibration", {}).get("iob2", False))

    def calibration(self, run: "Run", model: Any, data: "PreparedLabels") -> dict[str, Any]:
        """Whether the tags are IOB2, which their names do not tell."""
        return {"iob2": True} if self.follows_iob2(data) else {}

    def follows_iob2(self, data: "PreparedLabels") -> bool:
        from regard.data.iob import is_iob2
        from regard.data.settings import NONE

        marks = data.train["labels"]
        return is_iob2(data.labels, (marks[i][marks[i] != NONE] for i in range(min(len(marks), ENOUGH))))

    def text(self, answer: Any) -> str:
        return table([(w.word, w.label, f"{w.probability:.1%}") for w in answer.words], right=[2])

    def to_json(self, answer: Any) -> Any:
        return [dataclasses.asdict(word) for word in answer.words]

    def row(self, predictor: Any, answer: Any) -> dict[str, Any]:
        words = [] if answer is None else answer.words
        return {"words": [w.word for w in words], "tags": [w.label for w in words]}

    def line(self, row: dict[str, Any]) -> str:
        """Word, tab, label, one word per line; with the writer's line break, an empty line after each sentence."""
        return "".join(f"{word}\t{label}\n" for word, label in zip(row["words"], row["tags"], strict=True))

    def read_inputs(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Inputs:
        """The lines of a text, the texts of a table, or the sentences of a CoNLL or JSONL file."""
        from regard.data.columnar import OBJECTS
        from regard.data.examples import read_tagged
        from regard.data.files import ending

        if ending(file) in (".conll", ".conllu", *OBJECTS) and not options.text:
            rows = read_tagged(file, labelled=False, say=console.say, gaps=True)
            return Inputs(examples=(({}, row.words or None) for row in rows), unit="texts")
        return text_inputs(file, options.text, console.say)

    def inputs_and_targets(self, rows: Sequence[Any], predictor: Any, file: str) -> tuple[list[Any], Any]:
        from regard.data.labelled import labels_of, places_of
        from regard.data.targets import check_known

        check_known(labels_of(rows), predictor.labels, places_of(rows, file))
        return [row.words for row in rows], [list(row.tags) for row in rows]

    def tags(self, predictor: Any, test: TestSet, console: Console) -> list[list[str]]:
        with console.progress("texts", len(test.targets)):
            return [[word.label for word in tags.words] for tags in predictor.predict(test.inputs)]

    def evaluate(self, predictor: Any, folder: Path, options: Options, console: Console) -> Verdict:
        """Word accuracy, and entity F1 by strict IOB2 if labels have that form, otherwise F1 of each class."""
        from regard.metrics.classes import judge_tags

        test = self.test_set(predictor, folder, options, console)
        values, text = judge_tags(test.targets, self.tags(predictor, test, console), predictor.labels)
        detail = f"{len(test.targets):,} texts"
        return Verdict(on=test.on, detail=detail, values=values, text=text, contents=test.contents)

    def outcomes(self, predictor: Any, test: TestSet, options: Options, console: Console) -> "Sums":
        from regard.data.iob import is_iob
        from regard.metrics.compare import Sums, counted

        entities = is_iob(predictor.labels)
        pairs = zip(test.targets, self.tags(predictor, test, console), strict=True)
        above, below = zip(*(counted(true, predicted, entities) for true, predicted in pairs), strict=True)
        return Sums(metric="entity F1" if entities else "accuracy", above=above, below=below)
