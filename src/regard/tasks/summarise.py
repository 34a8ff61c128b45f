"""Summarising: a fine-tuned language model, or an encoder-decoder trained for it."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.settings import PairsConfig
from regard.errors import ConfigError, DataError
from regard.tasks.base import Card, Fit, Say
from regard.tasks.lm import LanguageModelling
from regard.tasks.translate import Translate
from regard.tasks.use import Options, TestSet
from regard.ticks import Console

if TYPE_CHECKING:
    from regard.data.contents import Contents
    from regard.data.text import PreparedText
    from regard.training.run import Run


class Summarise(LanguageModelling):
    name = "summarise"
    summary = "a text in one sentence, by a model that is fine-tuned"
    options = ("valid",)
    data_help = "A .jsonl, .json, .parquet or .arrow with texts and their summaries."
    archs, usual_start = {}, "smollm2-135m"
    answering = ""
    purpose = "summarise"
    longest = 512  # a text and its summary are long
    prompt = "Summarise in one sentence:\n\n{prompt}"
    starts = (*LanguageModelling.starts, *Translate.starts)

    def finetune_run(self, start: Path, data: Any, device: str, lora: int) -> "Run":
        """From a language model, a run that prompts for a summary; from an encoder-decoder, a run of `Shorten`."""
        from regard.models.published import read_config
        from regard.models.registry import model_type

        if model_type(read_config(start)) in LanguageModelling.starts:
            return super().finetune_run(start, data, device, lora)
        if not data.path:
            raise ConfigError(f"--data {data.name}: an encoder-decoder needs a file of texts and summaries")
        length = self.longest if device == "cpu" else 1024
        files = dict(source=data.path, target=data.path, valid_source=data.valid, valid_target=data.valid)
        pairs = PairsConfig(**files, max_length=length, cut=True, split_rule=data.split_rule)
        return Shorten().finetune_run(start, pairs, device, lora)

    def fits(self, contents: "Contents") -> Fit | None:
        from regard.data.columnar import ARROW, PARQUET

        records = contents.count((".jsonl", ".json", *PARQUET, *ARROW))
        if not records or not (contents.named(("text",)) and contents.named(("summary",))):
            return None
        return self.fit_for(contents, "texts in 'text', summaries in 'summary'", "smollm2-135m")

    def read(self, run: "Run", say: Say) -> "PreparedText":
        data = super().read(run, say)
        if not data.train.records:
            where = run.data.name or run.data.path
            raise DataError(f"{where} is plain text; expected texts and summaries in .jsonl, .json, .parquet or .arrow")
        return data

    def serves(self, config: Any) -> bool:
        return LanguageModelling().serves(config)


class Shorten(Translate):
    name = "shorten"
    summary = "a text in a few sentences, by an encoder-decoder"
    options = ()
    examples = ()
    archs = {}
    presets = {}
    card = Card(pipeline="summarization", title="A model to summarise", use="summarise {} < article.txt")
    purpose = "summarise"
    verbs = ("summarise",)
    views = ()
    longest = 80
    unit = "texts"
    evaluate_takes = ("data", *Translate.search, "out")
    compare_takes = ()
    test_files = "--data FILE"

    def fits(self, contents: "Contents") -> Fit | None:
        return None

    @property
    def can_finetune(self) -> bool:
        return False  # `Summarise` offers it

    def quick_score(self, texts: list[str], references: list[str], run: "Run") -> dict[str, float]:
        from regard.metrics.rouge import quick

        return quick(texts, references)

    def predict_options(self, options: Options) -> dict[str, Any]:
        return super().predict_options(options) | {"max_length": self.longest, "cut": True}

    def test_set(self, predictor: Any, folder: Path, options: Options, console: Console) -> TestSet:
        files = dataclasses.replace(options, source=options.data, target=options.data)
        return super().test_set(predictor, folder, files, console)

    def score(self, texts: list[str], test: TestSet) -> Any:
        """ROUGE-1, -2 and -L, with intervals."""
        from regard.metrics.rouge import score

        return score(texts, test.targets)
