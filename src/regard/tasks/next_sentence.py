"""Next sentence: whether a text follows another, by a BERT with its pre-training heads."""

from pathlib import Path
from typing import Any

from regard.tasks.base import Card
from regard.tasks.classify import Pair


class NextSentence(Pair):
    name = "next-sentence"
    summary = "whether the second text follows the first"
    settings = type(None)
    options = ()
    examples = ()
    archs = {}
    presets, starts = {}, ()
    card = Card(pipeline="text-classification", title="BERT", use='classify {} "first" "second"')
    purpose = "predict whether a text follows another"

    def serves(self, config: Any) -> bool:
        return getattr(config, "head", "") == "pretraining"

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        from regard.data.tokenizers import load
        from regard.predictors import NextSentencePredictor

        return NextSentencePredictor(model, load(folder), device)
