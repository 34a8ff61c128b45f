"""Run a model on one text and keep everything that a figure may need."""

from collections.abc import Callable
from typing import Any

import torch

from regard.errors import ConfigError
from regard.inside.attention import overview
from regard.inside.findings import add_findings
from regard.inside.looked import Check, Looked, Question, interruptible
from regard.inside.samples import DRAWN, of_captioner, of_sample
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
    "captioner": of_captioner,
    **dict.fromkeys(DRAWN, of_sample),
}


def look(predictor: Any, question: Question, check: Check = lambda: None) -> Looked:
    """Run the model once and record it. `check` is called between layers and steps, and may raise to stop."""
    family = getattr(predictor, "family", "")
    if family not in LOOKS:
        raise ConfigError("there are no figures for this model", "its training curves are shown if it was trained here")
    with torch.inference_mode(), interruptible(predictor.model, check):
        looked = LOOKS[family](predictor, question, check)
        for kind, attention in looked.attention.items():
            looked.overviews[kind] = overview(attention, check)
    add_findings(looked)
    return looked
