"""A trained model, ready for use: `load("runs/demo").translate(["Where is the station?"])`."""

import json
from pathlib import Path
from typing import Any

from regard.checkpoint import check_format
from regard.config import no_run
from regard.data.tokenizers import load as load_tokenizer
from regard.errors import CheckpointError
from regard.models.base import EncoderDecoder
from regard.models.bert import LABELLED, MASKED, Bert
from regard.models.captioner import Captioner, ShowAttendTell
from regard.models.fetched import resolve
from regard.models.forecaster import Forecaster
from regard.models.plain import MLP, Conv
from regard.models.published import load_model
from regard.models.published.sentence import Sentences
from regard.models.rnn_classifier import RecurrentClassifier
from regard.models.series import SeriesModel
from regard.models.sound_classifier import SoundClassifier
from regard.models.vit import ViT
from regard.models.whisper import Whisper
from regard.predictors.captioner import ImageCaptioner
from regard.predictors.embedder import Embedder, Filler
from regard.predictors.images import ImageClassifier
from regard.predictors.labeller import Classifier, Labeller, Tagger
from regard.predictors.series import ForecastPredictor, Outlook, SeriesClassifier
from regard.predictors.sounds import ClipClassifier
from regard.predictors.tables import RowClassifier
from regard.predictors.transcriber import Transcriber
from regard.predictors.translator import Hypothesis, Translator
from regard.predictors.writer import Writer

__all__ = [
    "Classifier",
    "ClipClassifier",
    "Embedder",
    "Filler",
    "ForecastPredictor",
    "Hypothesis",
    "ImageCaptioner",
    "ImageClassifier",
    "Labeller",
    "Outlook",
    "RowClassifier",
    "SeriesClassifier",
    "Tagger",
    "Transcriber",
    "Translator",
    "Writer",
    "load",
]
Predictor = (
    Translator
    | Writer
    | Embedder
    | Labeller
    | ImageClassifier
    | ImageCaptioner
    | RowClassifier
    | SeriesClassifier
    | ForecastPredictor
    | ClipClassifier
    | Transcriber
)


def load(path: str | Path, device: str = "cpu", int8: bool = False) -> Predictor:
    """The trained model of a run or model folder, of a GGUF file, or of a name `regard model list` knows."""
    folder = resolve(path)
    if not (folder / "config.json").is_file():
        raise no_run(folder)
    about = _known(folder / "regard.json")
    if about:
        check_format(folder / "regard.json", about)
    model = load_model(folder)
    if isinstance(model, MLP) and len(model.config.shape) == 1:
        return RowClassifier(model, folder, device)
    if isinstance(model, ViT | Conv | MLP):
        return ImageClassifier(model, device, folder)
    if isinstance(model, Forecaster):
        return ForecastPredictor(model, device, about.get("data", {}))
    if isinstance(model, SeriesModel):
        if not model.config.labels:
            raise CheckpointError(f"{path} fills in hidden values; for classes: regard finetune {path} series --data …")
        return SeriesClassifier(model, device, about.get("data", {}))
    if isinstance(model, SoundClassifier):
        return ClipClassifier(model, device)
    tokenizer = load_tokenizer(folder)
    if isinstance(model, Captioner | ShowAttendTell):
        return ImageCaptioner(model, tokenizer, device)
    if isinstance(model, Whisper):
        return Transcriber(model, tokenizer, device, _known(folder / "generation_config.json"))
    if isinstance(model, EncoderDecoder):
        return Translator(model, tokenizer, device)
    if isinstance(model, RecurrentClassifier) or (isinstance(model, Bert) and model.config.head in LABELLED):
        return (Tagger if model.config.head == "token" else Classifier)(model, tokenizer, device)
    if isinstance(model, Bert):
        kind = Filler if model.config.head in MASKED else Embedder
        return kind(model, tokenizer, device, int8, Sentences.load(folder))
    return Writer(model, tokenizer, device, int8, about.get("template", ""))


def _known(path: Path) -> dict[str, Any]:
    """A JSON file that may be missing."""
    try:
        known = json.loads(path.read_bytes()) if path.is_file() else {}
    except ValueError as e:
        raise CheckpointError(f"{path}: cannot be read ({e})") from None
    if not isinstance(known, dict):
        raise CheckpointError(f"{path}: cannot be read (wanted a JSON object)")
    return known
