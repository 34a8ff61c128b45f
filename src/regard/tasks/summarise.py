"""Summarising: a language model fine-tuned to say a text in one sentence, or an encoder-decoder that learned it."""

from typing import TYPE_CHECKING, Any

from regard.errors import DataError
from regard.tasks.base import Card, Fit, Say
from regard.tasks.lm import LanguageModelling
from regard.tasks.translate import Translate

if TYPE_CHECKING:
    from regard.data.contents import Contents
    from regard.data.text import PreparedText
    from regard.training.run import Run


class Summarise(LanguageModelling):
    name = "summarise"
    summary = "a text in one sentence, by a language model that is fine-tuned"
    options = ("valid",)
    data_help = "A .jsonl, .json, .parquet or .arrow with texts and their summaries."
    archs, usual_start = {}, "smollm2-135m"
    answering = ""
    purpose = "summarise"
    longest = 512  # a text and its summary are long
    prompt = "Summarise in one sentence:\n\n{prompt}"

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
    settings = type(None)
    options = ()
    examples = ()
    archs = {}
    presets = {}
    card = Card(pipeline="summarization", title="A model to summarise", use="summarise {} < article.txt")
    purpose = "summarise"
    verbs = ("summarise",)
    views = ()

    def fits(self, contents: "Contents") -> Fit | None:
        return None

    @property
    def can_finetune(self) -> bool:
        return False
