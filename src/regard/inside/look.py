"""One text through one model, with everything kept that a figure may need."""

from collections.abc import Callable
from typing import Any

import torch

from regard.errors import ConfigError
from regard.inside.attention import overview
from regard.inside.findings import add_findings
from regard.inside.looked import Check, Looked, Question, interruptible
from regard.inside.text import of_classifier, of_encoder, of_tagger, of_writer
from regard.inside.translation import of_translator
from regard.predictors import Classifier, Embedder, Filler, Tagger, Translator, Writer

WAYS: dict[type, Callable[[Any, Question, Check], Looked]] = {
    Translator: of_translator,
    Writer: of_writer,
    Filler: of_encoder,
    Embedder: of_encoder,
    Classifier: of_classifier,
    Tagger: of_tagger,
}


def look(predictor: Any, question: Question, check: Check = lambda: None) -> Looked:
    """Run the model once, watched. `check` is called between its layers and steps, and may raise to stop."""
    if type(predictor) not in WAYS:
        raise ConfigError("this model reads no text", "regard look and the studio show those that do")
    with torch.inference_mode(), interruptible(predictor.model, check):
        looked = WAYS[type(predictor)](predictor, question, check)
        for kind, attention in looked.attention.items():
            looked.overviews[kind] = overview(attention, check)
    add_findings(looked)
    return looked
