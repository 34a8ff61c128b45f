"""One text through one model, with everything kept that a figure may need."""

from collections.abc import Callable
from typing import Any

import torch

from regard.errors import ConfigError
from regard.inside.attention import overview
from regard.inside.findings import add_findings
from regard.inside.looked import Check, Looked, Question, interruptible
from regard.inside.text import of_classifier, of_encoder, of_filler, of_tagger, of_writer
from regard.inside.translation import of_translator

LOOKS: dict[str, Callable[[Any, Question, Check], Looked]] = {  # by a predictor's family
    "translator": of_translator,
    "language": of_writer,
    "masked": of_filler,
    "encoder": of_encoder,
    "classifier": of_classifier,
    "pair": of_classifier,
    "tagger": of_tagger,
}


def look(predictor: Any, question: Question, check: Check = lambda: None) -> Looked:
    """Run the model once, watched. `check` is called between its layers and steps, and may raise to stop."""
    family = getattr(predictor, "family", "")
    if family not in LOOKS:
        hint = "they show models that translate, write, fill gaps, classify, tag or embed texts"
        raise ConfigError("there are no figures of this model", hint)
    with torch.inference_mode(), interruptible(predictor.model, check):
        looked = LOOKS[family](predictor, question, check)
        for kind, attention in looked.attention.items():
            looked.overviews[kind] = overview(attention, check)
    add_findings(looked)
    return looked
