"""Transcribe: what is said in a recording, by Whisper; it is not trained here."""

from pathlib import Path
from typing import Any

from regard.jsonfile import read_json_if_any
from regard.tasks.base import Card, Task


class Transcribe(Task):
    name = "transcribe"
    summary = "what is said in a recording"
    settings = type(None)
    card = Card(pipeline="automatic-speech-recognition", title="A transcriber", use="transcribe {} clip.wav")

    def serves(self, config: Any) -> bool:
        from regard.models.whisper import WhisperConfig

        return isinstance(config, WhisperConfig)

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str, int8: bool) -> Any:
        from regard.data.tokenizers import load
        from regard.predictors import Transcriber

        settings = read_json_if_any(folder / "generation_config.json")
        return Transcriber(model, load(folder), device, settings)
