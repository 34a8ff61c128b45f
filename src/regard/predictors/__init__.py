"""Predictors: trained models ready for use. `regard.load` returns the one for a folder.

Names are imported on first use, so that a translator does not import what classifies series.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.predictors.audio import AudioClassifier
    from regard.predictors.base import Classification, Predictor
    from regard.predictors.captioner import ImageCaptioner
    from regard.predictors.embedder import Embedder, Filler, Infiller
    from regard.predictors.images import ImageClassifier
    from regard.predictors.labeller import Classifier, Labeller, NextSentencePredictor, Tagger
    from regard.predictors.series import ForecastPredictor, Outlook, SeriesClassifier
    from regard.predictors.tables import TableClassifier
    from regard.predictors.transcriber import Transcriber
    from regard.predictors.translator import Hypothesis, Translator
    from regard.predictors.writer import Writer

__all__ = [
    "AudioClassifier",
    "Classification",
    "Classifier",
    "Embedder",
    "Filler",
    "ForecastPredictor",
    "Hypothesis",
    "ImageCaptioner",
    "ImageClassifier",
    "Infiller",
    "Labeller",
    "NextSentencePredictor",
    "Outlook",
    "Predictor",
    "SeriesClassifier",
    "TableClassifier",
    "Tagger",
    "Transcriber",
    "Translator",
    "Writer",
]
_NAMES = {
    "audio": ("AudioClassifier",),
    "base": ("Classification", "Predictor"),
    "captioner": ("ImageCaptioner",),
    "embedder": ("Embedder", "Filler", "Infiller"),
    "images": ("ImageClassifier",),
    "labeller": ("Classifier", "Labeller", "NextSentencePredictor", "Tagger"),
    "series": ("ForecastPredictor", "Outlook", "SeriesClassifier"),
    "tables": ("TableClassifier",),
    "transcriber": ("Transcriber",),
    "translator": ("Hypothesis", "Translator"),
    "writer": ("Writer",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'regard.predictors' has no attribute {name!r}")
    return getattr(importlib.import_module(f"regard.predictors.{_HOME[name]}"), name)
