"""Embed: a vector for each text, by a published encoder; it is not trained here."""

from pathlib import Path
from typing import Any

from regard.tasks.base import Card, Task


class Embed(Task):
    name = "embed"
    summary = "a vector for each text"
    settings = type(None)
    card = Card(pipeline="feature-extraction", title="A text encoder", use='similar {} "…" --in FILE')
    scored = False

    def serves(self, config: Any) -> bool:
        from regard.models.bert import LABELLED, MASKED, BertConfig

        return isinstance(config, BertConfig) and config.head not in (*MASKED, *LABELLED)

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str, int8: bool) -> Any:
        from regard.data.tokenizers import load
        from regard.models.published.sentence import Sentences
        from regard.predictors import Embedder

        return Embedder(model, load(folder), device, int8, Sentences.load(folder))
