"""Trained models at work, one class a kind of answer; `regard.load` finds the one for a folder."""

from regard.predictors.audio import AudioClassifier
from regard.predictors.base import Classification, Predictor
from regard.predictors.captioner import ImageCaptioner
from regard.predictors.embedder import Embedder, Filler
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
